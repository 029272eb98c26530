"""One optimizer step in PyTorch: encode, draw, differentiate, update, average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from elf_engine.backends.torch.backend import load_network, load_t5
from elf_engine.backends.torch.model import Elf
from elf_engine.backends.torch.weights import slots
from elf_engine.errors import ElfError
from elf_engine.types import Weights
from training.config import TrainConfig
from training.cpu.objective import draw, losses
from training.cpu.optimizer import Muon, Named, average
from training.data import TrainBatch
from training.objective import Inputs, split_step

CPU = torch.device("cpu")


def visible(known: Tensor, valid: Tensor, drop: Tensor) -> Tensor:
    """What each token sees in the encoder, (B,S,S); see `training.step.visible`."""
    columns_known, columns_valid = (known & valid)[:, None, :], valid[:, None, :]
    others = columns_valid & ~(columns_known & drop[:, None, None])
    return torch.where(known[:, :, None], columns_known, others)


class Trainer:
    """A network in training with everything a step changes. `dtype` is that of the matrix
    products; weights, sums and losses are float32."""

    def __init__(
        self, config: TrainConfig, weights: Weights, encoder: Weights, dtype: torch.dtype
    ) -> None:
        self.config, self.dtype = config, dtype
        self.encoder = load_t5(config.encoder, encoder, CPU)
        self.net: Elf = load_network(config.network, weights, CPU, torch.float32).train()
        self.net.requires_grad_(True)
        self._slots = slots(self.net)
        self.params = {k: self._view(k, grad=False) for k in self._slots}
        self.average = {k: p.clone() for k, p in self.params.items()}
        self.optimizer = Muon(self.params, config.optimizer, config.steps, dtype)
        self.step = 0

    def _view(self, name: str, grad: bool) -> Tensor:
        slot = self._slots[name]
        parameter: Any = getattr(slot.owner, slot.attribute)
        found = parameter.grad if grad else parameter.data
        if found is None:
            found = torch.zeros_like(parameter.data)
        view: Tensor = found.T if slot.transposed else found
        return view

    def prepare(self, batch: TrainBatch, generator: torch.Generator) -> Inputs:
        """The batch as tensors, with latents and dropped conditions."""
        b = batch.batch
        ids, known, valid = (torch.from_numpy(np.asarray(a)) for a in (b.ids, b.known, b.valid))
        drop = torch.rand(len(ids), generator=generator) < self.config.objective.label_drop
        spec = self.config.encoder
        with torch.no_grad():
            h = self.encoder(ids.long(), visible(known, valid, drop))
        return Inputs(ids, (h - spec.latent_mean) / spec.latent_std, known, valid, drop)

    def update(self, batch: TrainBatch) -> dict[str, Any]:
        """One step; its metrics. The randomness follows from (seed, step)."""
        c = self.config
        split = split_step(len(batch.tasks), c.objective, c.seed, self.step)
        seed = np.random.SeedSequence([c.seed + 1, self.step]).generate_state(2)
        generator = torch.Generator().manual_seed(int(seed[0]) << 16 | int(seed[1]) & 0xFFFF)
        inputs = self.prepare(batch, generator)
        draws = draw(generator, tuple(inputs.x.shape), split, c.flow, c.objective)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            loss, metrics = losses(self.net, inputs, draws, split, c.flow, c.objective)
        self.net.zero_grad(set_to_none=True)
        loss.backward()
        grads = {k: self._view(k, grad=True) for k in self._slots}
        norm = self.optimizer.update(grads)
        average(self.average, self.params, c.optimizer, self.step)
        self.step += 1
        return {**metrics, "loss": loss.detach(), "grad_norm": norm, "decode_rows": split.decode}

    def save(self, file: Path) -> None:
        """Write everything a resumed run needs, whole or not at all."""
        named = {**_prefixed("params", self.params), **_prefixed("average", self.average)}
        named |= self.optimizer.state()
        named["step"] = torch.tensor([self.step])
        scratch = file.with_suffix(".new")
        save_file({k: v.contiguous() for k, v in named.items()}, scratch)
        scratch.replace(file)

    def load(self, file: Path) -> None:
        """Go on from `file`. Raises ElfError when it is not of this network."""
        stored = load_file(file)
        mine = {**_prefixed("params", self.params), **_prefixed("average", self.average)}
        mine |= self.optimizer.state()
        for name, a in mine.items():
            if name not in stored or stored[name].shape != a.shape:
                raise ElfError(f"{file}: {name} is missing or of another shape; is it this run's?")
            a.copy_(stored[name])
        self.step = self.optimizer.count = int(stored["step"])


def _prefixed(prefix: str, named: Named) -> Named:
    return {f"{prefix}/{name}": a for name, a in named.items()}
