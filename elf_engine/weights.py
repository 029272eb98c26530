"""Flat weights ("blocks_0/attn/qkv/kernel" -> array) and nested trees of the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elf_engine.errors import ElfError


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping -> flat one, keys joined with "/"."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}/")
        else:
            flat[name] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Flat mapping -> nested one, the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split("/")
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[last] = value
    return tree


def check_shapes(
    weights: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Raise ElfError naming the first missing, unexpected or misshapen weight."""
    for name, shape in expected.items():
        if name not in weights:
            raise ElfError(f"{where}: weight {name} is missing; expected shape {shape}")
        found = tuple(weights[name].shape)
        if found != shape:
            raise ElfError(f"{where}: weight {name} is {found}, the config implies {shape}")
    for name in weights:
        if name not in expected:
            raise ElfError(f"{where}: weight {name} is not part of this model")
