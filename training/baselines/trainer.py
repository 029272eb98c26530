"""One optimizer step of a decoder in PyTorch, and its state on disk."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elf_engine.backends.torch.decoder import Decoder
from elf_engine.backends.torch.weights import slots
from elf_engine.errors import ElfError
from training.baselines.config import BaselineConfig
from training.baselines.rows import PackedBatch
from training.cpu.optimizer import Muon, Named, average

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TABLE_STD = 0.02


def initialise(net: Decoder, seed: int) -> None:
    """Kernels of unit gain, and none where a block writes: every block begins as the identity."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, slot in slots(net).items():
            p: Tensor = getattr(slot.owner, slot.attribute)
            if name.endswith(("bias", "proj/kernel", "w3/kernel")):
                p.zero_()
            elif name.endswith("kernel"):
                p.normal_(0.0, slot.shape[0] ** -0.5, generator=generator)
            elif name.endswith("embedding"):
                p.normal_(0.0, TABLE_STD, generator=generator)


def token_losses(net: Decoder, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each learned token (M,), natural log, and its text's number (M,)."""
    ids = torch.from_numpy(batch.batch.ids).long()
    learned = torch.from_numpy(batch.learned)[:, 1:]
    h = net.trunk(ids, torch.from_numpy(batch.seen))[:, :-1]
    nll = F.cross_entropy(net.logits(h[learned]), ids[:, 1:][learned], reduction="none")
    return nll, torch.from_numpy(batch.owner)[:, 1:][learned]


class Trainer:
    """A decoder in training with everything a step changes. `compute` of the config is the type of
    the matrix products; weights, sums and losses are float32."""

    def __init__(self, config: BaselineConfig) -> None:
        self.config, self.dtype = config, DTYPES[config.compute]
        self.net = Decoder(config.network)
        initialise(self.net, config.seed)
        self._slots = slots(self.net)
        self.params = {k: self._view(k, grad=False) for k in self._slots}
        self.average = {k: p.clone() for k, p in self.params.items()}
        self.optimizer = Muon(self.params, config.optimizer, config.steps, self.dtype)
        self.step = 0

    def _view(self, name: str, grad: bool) -> Tensor:
        slot = self._slots[name]
        parameter: Any = getattr(slot.owner, slot.attribute)
        found: Tensor = parameter.grad if grad else parameter.data
        return found.T if slot.transposed else found

    def update(self, batch: PackedBatch, limit: float = math.inf) -> dict[str, Any]:
        """One step and its metrics; nothing changes where "ok" is false: the loss is above `limit`
        or something is not finite."""
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            nll, owner = token_losses(self.net, batch)
        loss = nll.mean()
        self.net.zero_grad(set_to_none=True)
        loss.backward()
        grads = {k: self._view(k, grad=True) for k in self._slots}
        norm = math.sqrt(sum((g * g).sum().item() for g in grads.values()))
        total = loss.item()
        ok = math.isfinite(norm) and total <= limit
        if ok:
            self.optimizer.update(grads, norm)
            average(self.average, self.params, self.config.optimizer, self.step)
            self.step += 1
        sums = torch.zeros(2, len(batch.tasks))
        sums.index_add_(1, owner, torch.stack([nll.detach(), torch.ones_like(nll)]))
        return {
            "loss": total, "grad_norm": norm, "ok": ok, "per_row": sums[0], "targets": sums[1],
        }  # fmt: skip

    def _named(self) -> Named:
        groups = {
            "params": self.params,
            "average": self.average,
            "mu": self.optimizer.mu,
            "nu": self.optimizer.nu,
        }
        return {f"{group}/{k}": a for group, named in groups.items() for k, a in named.items()}

    def save(self, file: Path, facts: dict[str, str]) -> None:
        """Write everything a resumed run needs, whole or not at all. `facts` go into its header."""
        part = file.with_suffix(".part")
        tensors = {k: a.contiguous() for k, a in self._named().items()}
        tensors["step"] = torch.tensor([self.step])
        save_file(tensors, part, facts)
        os.replace(part, file)

    def load(self, file: Path) -> None:
        """Go on from `file`. Raises ElfError when it is damaged or of another network."""
        try:
            stored = load_file(file)
        except (SafetensorError, OSError) as error:
            raise ElfError(f"'{file}' cannot be read ({error}); remove it to begin anew") from error
        for name, a in self._named().items():
            if name not in stored or stored[name].shape != a.shape:
                raise ElfError(f"{file}: {name} is missing or of another shape; is it this run's?")
            a.copy_(stored[name])
        self.step = self.optimizer.count = int(stored["step"])
