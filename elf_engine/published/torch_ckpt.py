"""Checkpoints of the PyTorch releases, and of the converter of the JAX release's pull request 5.

Names follow the flax path with "." for "/", "blocks.3" for "blocks_3", "weight" for "kernel";
Linear weights are (out, in) and are transposed. The two head matrices are bare and stay (in, out),
except in the converter's layout, where they are Linear layers `proj` and `unembed`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine.errors import ElfError
from elf_engine.types import Weights

SUBTREES = ("ema_params1", "params", "model")
_COMPILED = "_orig_mod."
_HEADS = {
    "proj.weight": "proj_kernel",
    "proj.bias": "proj_bias",
    "unembed.weight": "unembed_kernel",
    "unembed.bias": "unembed_bias",
}


def read_torch(path: Path) -> Weights:
    """Weights of a torch zip checkpoint, in the engine's naming.

    Raises ElfError when it is truncated, damaged or of another layout, or torch is not installed.
    """
    tensors = _state_dict(read_tensors(path), path.name)
    weights: Weights = {}
    for key, tensor in tensors.items():
        name = engine_name(key, tensor.ndim)
        if name in weights:
            raise ElfError(f"{path.name}: two tensors are named {name}")
        array = tensor.float().numpy()
        linear = name.endswith("/kernel") or key.removeprefix(_COMPILED) in _HEADS
        weights[name] = np.array(array.T if linear else array, order="C")
    return weights


def read_tensors(path: Path) -> dict[str, Any]:
    """Whatever dict `path` holds, tensors mapped lazily; no code in the file is run."""
    try:
        import torch
    except ImportError as error:
        raise ElfError(
            "torch checkpoints need the package 'torch'; install it with: pip install -e '.[torch]'"
        ) from error
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ElfError(f"{path.name}: '{damaged}' in it is damaged; copy or download it again")
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except ElfError:
        raise
    # zipfile and torch raise a dozen unrelated types for a damaged archive; a refusal is the same.
    except Exception as error:
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise ElfError(
            f"{path.name}: truncated, damaged or not a torch checkpoint ({reason})"
        ) from error
    if not isinstance(loaded, dict):
        raise ElfError(f"{path.name}: holds a {type(loaded).__name__}, not a checkpoint")
    return loaded


def engine_name(key: str, rank: int) -> str:
    """Torch parameter name -> engine name ("_orig_mod.blocks.3.mlp.w3.weight" ->
    "blocks_3/mlp/w3/kernel")."""
    key = key.removeprefix(_COMPILED)
    if key in _HEADS:
        return _HEADS[key]
    parts = key.split(".")
    if len(parts) > 1 and parts[0] == "blocks":
        parts[:2] = [f"blocks_{parts[1]}"]
    if parts[-1] == "weight" and rank == 2:
        parts[-1] = "kernel"
    return "/".join(parts)


def _state_dict(loaded: dict[str, Any], file: str) -> Mapping[str, Any]:
    import torch

    for subtree in SUBTREES:
        tensors = loaded.get(subtree)
        if tensors:
            break
    else:
        raise ElfError(f"{file}: holds none of {', '.join(SUBTREES)}")
    if not isinstance(tensors, dict):
        raise ElfError(f"{file}: '{subtree}' is a {type(tensors).__name__}, not a state dict")
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, torch.Tensor):
            raise ElfError(f"{file}: '{subtree}' holds '{key}', which is not a named tensor")
        if not tensor.is_floating_point():
            raise ElfError(f"{file}: {key} holds {tensor.dtype}, weights are floating point")
    return tensors
