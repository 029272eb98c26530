"""One optimizer step in PyTorch, in place of `training.step.Stepper` on a CPU, where its bfloat16
products are over twice as fast as float32: the same state, so checkpoints serve both.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from elf_engine.backends.torch.backend import DTYPES, load_network, load_t5
from elf_engine.backends.torch.model import Elf
from elf_engine.backends.torch.weights import slots
from elf_engine.errors import ElfError
from elf_engine.layout import rotary_positions
from elf_engine.types import Weights
from elf_engine.weights import flatten, unflatten
from training.config import TrainConfig
from training.cpu.objective import draw, losses
from training.cpu.optimizer import Muon, average
from training.data import TrainBatch
from training.mesh import make_mesh, state_shardings
from training.objective import Inputs, Split, split_step
from training.step import COMPILER, State, initial_state

CPU = torch.device("cpu")


def visible(known: Tensor, valid: Tensor, drop: Tensor) -> Tensor:
    """What each token sees in the encoder, (B,S,S); see `training.step.visible`."""
    columns_known, columns_valid = (known & valid)[:, None, :], valid[:, None, :]
    others = columns_valid & ~(columns_known & drop[:, None, None])
    return torch.where(known[:, :, None], columns_known, others)


def peak_flops(dtype: str) -> float:
    """Floating-point operations a second of PyTorch's matrix products here, measured."""
    a = torch.ones(1024, 1024, dtype=DTYPES[dtype])
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - began)
    return 2.0 * 1024**3 / min(seconds)


class CpuStepper:
    """The interface of `training.step.Stepper`. The state it returns is views of the tensors that
    the next step changes: whoever keeps one copies it.

    Raises ElfError for a config with options of the JAX step alone.
    """

    def __init__(self, config: TrainConfig, encoder: Weights) -> None:
        refuse(config)
        self.config, self.dtype = config, DTYPES[config.compute]
        self.mesh = make_mesh(config.mesh)
        self._start = partial(initial_state, config, encoder)
        shapes = jax.eval_shape(self._start)
        self.like = jax.tree.map(
            lambda a, where: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where),
            shapes,
            state_shardings(self.mesh, shapes),
        )
        self._encoder = load_t5(config.encoder, encoder, CPU)
        blank = {k: np.zeros(a.shape, np.float32) for k, a in flatten(shapes.params).items()}
        self.net: Elf = load_network(config.network, blank, CPU, torch.float32).train()
        self.net.requires_grad_(True)
        self._slots = slots(self.net)
        self.params = {k: self._view(k, grad=False) for k in self._slots}
        self.average = {k: p.clone() for k, p in self.params.items()}
        self.optimizer = Muon(self.params, config.optimizer, config.steps, self.dtype)
        self._state: State | None = None

    def start(self) -> State:
        """The state of step 0."""
        state: State = jax.jit(self._start, compiler_options=COMPILER or None)()
        return state

    def split(self, step: int, batch: TrainBatch) -> Split:
        """Which of the batch's rows train what."""
        return split_step(len(batch.tasks), self.config.objective, self.config.seed, step)

    def flops(self, state: State, batch: TrainBatch, step: int) -> float:
        """Floating-point operations of a step, as PyTorch counts them."""
        self._take(state)
        with FlopCounterMode(display=False) as counter:
            loss, _ = self._losses(batch, step, self.split(step, batch))
            loss.backward()
        return float(counter.get_total_flops())

    def __call__(
        self,
        state: State,
        batch: TrainBatch,
        step: int,
        limit: float = float("inf"),
        ok: Any = None,
    ) -> tuple[State, dict[str, Any]]:
        """The state after step `step` (from 0) and its metrics; see `training.step.Stepper`."""
        self._take(state)
        loss, metrics = self._losses(batch, step, self.split(step, batch))
        self.net.zero_grad(set_to_none=True)
        loss.backward()
        grads = {k: self._view(k, grad=True) for k in self._slots}
        norm = math.sqrt(sum((g * g).sum().item() for g in grads.values()))
        total = loss.item()
        good = bool(ok is None or ok) and math.isfinite(norm) and total <= limit
        if good:
            self.optimizer.update(grads, norm)
            average(self.average, self.params, self.config.optimizer, step)
            self._state = self._shown(step + 1)
        assert self._state is not None
        found = {**metrics, "loss": total, "grad_norm": norm, "ok": good}
        return self._state, found

    def _losses(
        self, batch: TrainBatch, step: int, split: Split
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and metrics; the randomness follows from (seed, step)."""
        c = self.config
        seed = np.random.SeedSequence([c.seed + 1, step]).generate_state(2)
        generator = torch.Generator().manual_seed(int(seed[0]) << 16 | int(seed[1]) & 0xFFFF)
        inputs = self._prepare(batch, generator)
        draws = draw(generator, tuple(inputs.x.shape), split, c.flow, c.objective)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            return losses(self.net, inputs, draws, split, c.flow, c.objective)

    def _prepare(self, batch: TrainBatch, generator: torch.Generator) -> Inputs:
        """The batch as tensors, with latents and dropped conditions."""
        b = batch.batch
        ids, known, valid = (torch.from_numpy(np.asarray(a)) for a in (b.ids, b.known, b.valid))
        drop = torch.rand(len(ids), generator=generator) < self.config.objective.label_drop
        spec = self.config.encoder
        with torch.no_grad():
            h = self._encoder(ids.long(), visible(known, valid, drop))
        x = (h - spec.latent_mean) / spec.latent_std
        return Inputs(ids, x, known, valid, drop, rotary_positions(self.config.layout, ids))

    def _view(self, name: str, grad: bool) -> Tensor:
        slot = self._slots[name]
        parameter: Any = getattr(slot.owner, slot.attribute)
        found = parameter.grad if grad else parameter.data
        if found is None:  # the head of the other branch
            found = torch.zeros_like(parameter.data)
        view: Tensor = found.T if slot.transposed else found
        return view

    def _shown(self, step: int) -> State:
        """The tensors as a `State`, without a copy."""
        params, kept = (
            unflatten({k: a.numpy() for k, a in named.items()})
            for named in (self.params, self.average)
        )
        at: Any = np.int32(step)
        return State(params, kept, (optax.EmptyState(), self.optimizer.state()), at)

    def _take(self, state: State) -> None:
        """Copy a state from elsewhere (a checkpoint, the start) into the tensors."""
        if state is self._state:
            return
        for named, tree in ((self.params, state.params), (self.average, state.average)):
            for name, a in flatten(tree).items():
                named[name].copy_(torch.from_numpy(np.array(a)))
        self.optimizer.take(state.optimizer[1])
        self._state = self._shown(int(state.step))


def refuse(config: TrainConfig) -> None:
    """Raise ElfError where a config asks the PyTorch step for what only the JAX one has."""
    plan = config.optimizer
    wrong = {
        "embeddings": config.embeddings == "learned",
        "remat": config.remat,
        "optimizer.kind": plan.kind != "muon",
        "optimizer.accumulate": plan.accumulate != 1,
        "optimizer.weight_decay": plan.weight_decay != 0,
        "optimizer.untaken": plan.untaken != "move",
    }
    for key, asked in wrong.items():
        if asked:
            raise ElfError(f"{key}: this value needs backend: jax; the PyTorch step lacks it")
    if jax.process_count() > 1 or jax.device_count() > 1:
        raise ElfError("backend torch trains on one CPU alone; set backend: jax")
