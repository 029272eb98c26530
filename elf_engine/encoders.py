"""Text encoders other than T5, plugged in by name.

A plug-in is `make(spec, weights) -> encode(ids, visible)`, giving hidden states (B,S,D) float32
in the arrays of its backend; the backend normalises them. `EncoderSpec.kind` names it.
"""

from __future__ import annotations

from collections.abc import Callable

from elf_engine.config import EncoderSpec
from elf_engine.errors import ElfError
from elf_engine.types import Array, Weights

Encode = Callable[[Array, Array | None], Array]
MakeEncoder = Callable[[EncoderSpec, Weights], Encode]

_REGISTRY: dict[tuple[str, str], MakeEncoder] = {}


def register(kind: str, backend: str, make: MakeEncoder) -> None:
    """Make encoder `kind` available on `backend` ("jax" or "torch")."""
    _REGISTRY[(kind, backend)] = make


def get(kind: str, backend: str) -> MakeEncoder:
    """The registered encoder. Raises ElfError when there is none."""
    if (kind, backend) not in _REGISTRY:
        raise ElfError(
            f"encoder kind '{kind}' is unknown on {backend}; use 't5' or register it with "
            "elf_engine.encoders.register"
        )
    return _REGISTRY[(kind, backend)]
