"""Array libraries, imported only when asked for."""

from __future__ import annotations

import importlib
from typing import Any, cast

from elf_engine.backends.protocol import BackendFactory, DecoderFactory, LeftToRight
from elf_engine.config import DecoderSpec
from elf_engine.errors import ElfError
from elf_engine.types import Weights

NAMES = ("jax", "torch")


def load(name: str) -> BackendFactory:
    """The `make_backend` of backend `name`. Raises ElfError when unknown or not installed."""
    if name not in NAMES:
        raise ElfError(f"backend '{name}' is unknown; choose one of {', '.join(NAMES)}")
    return cast(BackendFactory, _import(name, "backend").make_backend)


def load_decoder(spec: DecoderSpec, weights: Weights, dtype: str = "float32") -> LeftToRight:
    """An autoregressive baseline, which PyTorch alone has. Raises ElfError when it is not
    installed or the weights do not fit."""
    make: DecoderFactory = _import("torch", "decoder").make_decoder
    return make(spec, weights, dtype)


def _import(name: str, module: str) -> Any:
    try:
        return importlib.import_module(f"elf_engine.backends.{name}.{module}")
    except ModuleNotFoundError as error:
        raise ElfError(
            f"backend '{name}' needs the package '{error.name}'; "
            f"install it with: pip install -e '.[{name}]'"
        ) from error
