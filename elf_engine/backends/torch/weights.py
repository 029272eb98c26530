"""Engine-named NumPy weights into and out of torch modules.

The engine's name of a parameter follows from its attribute path: `blocks.3.attn.qkv.weight` of a
Linear is `blocks_3/attn/qkv/kernel`, stored (in, out). Everything else keeps name and layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from elf_engine.backends.torch.layers import RmsNorm
from elf_engine.types import Weights
from elf_engine.weights import check_shapes

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Slot:
    """Where one engine weight lives: `getattr(owner, attribute)`, transposed or not."""

    owner: nn.Module
    attribute: str
    transposed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the engine's layout."""
        shape = tuple(getattr(self.owner, self.attribute).shape)
        return shape[::-1] if self.transposed else shape


def slots(module: nn.Module) -> dict[str, Slot]:
    """Every parameter of `module` by engine name, in module order."""
    found = {}
    for path, owner in module.named_modules():
        for attribute, _ in owner.named_parameters(recurse=False):
            transposed = isinstance(owner, nn.Linear) and attribute == "weight"
            name = _engine_path(path, _engine_leaf(path, owner, attribute))
            found[name] = Slot(owner, attribute, transposed)
    return found


def _engine_leaf(path: str, owner: nn.Module, attribute: str) -> str:
    if isinstance(owner, nn.Embedding):
        return "rel_embedding" if path.endswith("relative_attention_bias") else "embedding"
    return "kernel" if isinstance(owner, nn.Linear) and attribute == "weight" else attribute


def _engine_path(path: str, leaf: str) -> str:
    parts: list[str] = []
    for part in path.split(".") if path else []:
        if part.isdigit():
            parts[-1] += f"_{part}"
        else:
            parts.append(part)
    return "/".join([*parts, leaf])


def load(module: M, weights: Weights, device: torch.device, dtype: torch.dtype, where: str) -> M:
    """Replace every parameter by a frozen copy of its engine weight; norms stay float32.

    The module may live on the "meta" device, which saves initialising it. Raises ElfError,
    starting with `where`, on the first missing, unexpected or misshapen weight.
    """
    places = slots(module)
    check_shapes(weights, {name: slot.shape for name, slot in places.items()}, where)
    for name, slot in places.items():
        array = np.asarray(weights[name], np.float32)
        kept = torch.float32 if isinstance(slot.owner, RmsNorm) else dtype
        value = torch.tensor(array.T if slot.transposed else array).to(device, kept)
        setattr(slot.owner, slot.attribute, nn.Parameter(value, requires_grad=False))
    return module.eval()


def export(module: nn.Module) -> Weights:
    """The inverse of `load`: float32 arrays by engine name."""
    out: Weights = {}
    for name, slot in slots(module).items():
        array = getattr(slot.owner, slot.attribute).detach().float().cpu().numpy()
        out[name] = np.ascontiguousarray(array.T if slot.transposed else array)
    return out
