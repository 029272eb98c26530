"""Clipping, Muon with Adam, and the moving average, in PyTorch: the update of
`training.optimizer.make_optimizer` (kind "muon"), matrices of one shape in one batched product."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elf_engine.weights import flatten, unflatten
from training.config import OptimizerConfig
from training.muon import MuonState
from training.optimizer import schedule

NS = (3.4445, -4.7750, 2.0315)  # Newton-Schulz coefficients (Jordan 2024)
BETA, EPS = 0.95, 1e-8
ADAM_B1, ADAM_EPS = 0.9, 1e-8

Named = dict[str, Tensor]


def orthogonalise(x: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Newton-Schulz iteration on stacked matrices (N,short,long), in `dtype`."""
    a, b, c = NS
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + EPS)
    x = x.to(dtype)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.float()


def _look_ahead(mu: Tensor, g: Tensor, beta: float, n: int) -> Tensor:
    """Nesterov's momentum after update `n` (from 1), bias-corrected as optax does."""
    return mu * (beta / (1 - beta ** (n + 1))) + g * ((1 - beta) / (1 - beta**n))


class Muon:
    """Keeps momenta by engine name; matrices are in the engine's (in, out) layout as views."""

    def __init__(
        self, params: Named, config: OptimizerConfig, steps: int, dtype: torch.dtype
    ) -> None:
        self.params, self.config, self.dtype, self.count = params, config, dtype, 0
        self.matrices = [
            k for k, p in params.items() if p.ndim == 2 and not k.endswith(config.adam_for)
        ]
        matrices = set(self.matrices)
        self.others = [k for k in params if k not in matrices]
        self.mu = {k: torch.zeros_like(p) for k, p in params.items()}
        self.nu = {k: torch.zeros_like(params[k]) for k in self.others}
        self._rate = schedule(config, config.learning_rate, steps)
        self._adam_rate = schedule(config, config.adam_learning_rate, steps)

    def state(self) -> MuonState:
        """The momenta, without a copy, as the JAX step keeps them."""
        mu, nu = (unflatten({k: a.numpy() for k, a in m.items()}) for m in (self.mu, self.nu))
        count: Any = np.int32(self.count)
        return MuonState(mu, nu, unflatten(dict.fromkeys(self.params, count)), count)

    def take(self, state: MuonState) -> None:
        """Go on from `state`, which is copied."""
        for named, tree in ((self.mu, state.mu), (self.nu, state.nu)):
            for name, a in flatten(tree).items():
                named[name].copy_(torch.from_numpy(np.array(a)))
        self.count = int(state.count)

    @torch.no_grad()
    def update(self, grads: Named, norm: float) -> None:
        """Change the parameters in place; `norm` is the global one of the gradients."""
        if 0 < self.config.clip < norm:
            grads = {k: g * (self.config.clip / norm) for k, g in grads.items()}
        rate, adam = float(self._rate(self.count)), float(self._adam_rate(self.count))
        self.count += 1
        self._adam(grads, adam)
        self._muon(grads, rate)

    def _adam(self, grads: Named, rate: float) -> None:
        b2, n = self.config.adam_b2, self.count
        for name in self.others:
            g, mu, nu = grads[name], self.mu[name], self.nu[name]
            mu.lerp_(g, 1 - ADAM_B1)
            nu.mul_(b2).addcmul_(g, g, value=1 - b2)
            root = (nu / (1 - b2**n)).sqrt_().add_(ADAM_EPS)
            self.params[name].addcdiv_(_look_ahead(mu, g, ADAM_B1, n), root, value=-rate)

    def _muon(self, grads: Named, rate: float) -> None:
        n = self.count
        groups: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name in self.matrices:
            shape = grads[name].shape
            groups[min(shape), max(shape)].append(name)
        for names in groups.values():
            stack = []
            for name in names:
                g, mu = grads[name], self.mu[name]
                mu.lerp_(g, 1 - BETA)
                hat = _look_ahead(mu, g, BETA, n)
                stack.append(hat if hat.shape[0] <= hat.shape[1] else hat.T)
            found = orthogonalise(torch.stack(stack), self.config.ns_steps, self.dtype)
            for name, change in zip(names, found, strict=True):
                p = self.params[name]
                flat = change if p.shape[0] <= p.shape[1] else change.T
                p.add_(flat, alpha=-rate * max(1.0, p.shape[1] / p.shape[0]) ** 0.5)


def average(kept: Named, params: Named, config: OptimizerConfig, step: int) -> None:
    """Move the average in place after step `step` (from 0), as
    `training.optimizer.average_step` does."""
    decay = min(config.ema, (1 + step) / (10 + step)) if config.ema_ramp else config.ema
    with torch.no_grad():
        for name, a in kept.items():
            a.lerp_(params[name], 1 - decay)
