"""train_* and optim on the PyTorch step for processors: losses, gradients and Muon's updates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from elf_engine.backends.torch.backend import load_network
from elf_engine.backends.torch.model import Elf
from elf_engine.backends.torch.weights import slots
from elf_engine.config import NetworkSpec
from elf_engine.types import Weights
from tests.golden import optim
from tests.golden.archive import Archive, Case
from tests.golden.compare import Row, Tolerance, compare, compare_all
from tests.golden.models import network_spec, row_length
from tests.golden.train import GRADIENT, LOSS, Replay, replayed
from training.config import OptimizerConfig
from training.cpu.objective import losses
from training.cpu.optimizer import Muon
from training.objective import Draws, Inputs


def trainable(spec: NetworkSpec, params: Weights) -> Elf:
    """The network with `params`, its gradients wanted."""
    net = load_network(spec, params, torch.device("cpu"), torch.float32).train()
    return net.requires_grad_(True)


def tensors(arrays: Iterable[Any]) -> list[torch.Tensor | None]:
    return [None if a is None else torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


def gradients(net: Elf, case: Replay) -> tuple[float, Weights]:
    """Loss and gradients by engine name."""
    inputs, draws = Inputs(*tensors(case.inputs)), Draws(*tensors(case.draws))
    net.zero_grad(set_to_none=False)
    loss, _ = losses(net, inputs, draws, case.split, case.flow, case.config)
    loss.backward()
    found: Weights = {}
    for name, slot in slots(net).items():
        grad = getattr(slot.owner, slot.attribute).grad
        if grad is None:  # the head of the other branch
            grad = torch.zeros(slot.shape[::-1] if slot.transposed else slot.shape)
        found[name] = (grad.T if slot.transposed else grad).numpy()
    return loss.item(), found


def check(archive: Archive, only: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Loss and gradients of every case, or of those named."""
    params = archive.under("params")
    net = trainable(network_spec(params, row_length(archive, "x0_encoded")), params)
    for case in archive.cases.values():
        if only is not None and case.name not in only:
            continue
        loss, grads = gradients(net, replayed(net.spec, case))
        yield compare((case.name, "loss", "torch"), loss, case["loss"], LOSS)
        limit = Tolerance(GRADIENT * case.number("grad_global_norm"))
        stored = Archive(archive.path, case.arrays).under("grad")
        yield compare_all((case.name, "gradients", "torch"), grads, stored, limit)


def check_muon(archive: Archive) -> Iterator[Row]:
    """Parameters after every gradient of the rules that the PyTorch step has."""
    for name in ("muon", "muon_noclip", "muon_warmup2"):
        case = archive.cases[name]
        yield from _replay(archive, case, replace(optim.RULES[name], ema_ramp=False))


def _replay(archive: Archive, case: Case, rule: OptimizerConfig) -> Iterator[Row]:
    stored = Archive(archive.path, case.arrays)
    params = {k: torch.tensor(a) for k, a in archive.under("params0").items()}
    muon = Muon(params, rule, steps=1000, dtype=torch.float32)
    tops = {key.split("/")[0] for key in case.arrays}
    for i in range(1, 1 + sum(top.startswith("params") for top in tops)):
        grads = {k: torch.tensor(a) for k, a in archive.under(f"grads{i - 1}").items()}
        muon.update(grads, math.sqrt(sum((g * g).sum().item() for g in grads.values())))
        found = {k: a.numpy().copy() for k, a in params.items()}
        where = (case.name, f"params{i}", "torch")
        yield compare_all(where, found, stored.under(f"params{i}"), optim.LIMIT)
