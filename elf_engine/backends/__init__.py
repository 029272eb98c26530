"""Array libraries, imported only when asked for."""

from __future__ import annotations

import importlib
from typing import cast

from elf_engine.backends.protocol import BackendFactory
from elf_engine.errors import ElfError

NAMES = ("jax", "torch")


def load(name: str) -> BackendFactory:
    """The `make_backend` of backend `name`. Raises ElfError when unknown or not installed."""
    if name not in NAMES:
        raise ElfError(f"backend '{name}' is unknown; choose one of {', '.join(NAMES)}")
    try:
        module = importlib.import_module(f"elf_engine.backends.{name}.backend")
    except ModuleNotFoundError as error:
        raise ElfError(
            f"backend '{name}' needs the package '{error.name}'; "
            f"install it with: pip install -e '.[{name}]'"
        ) from error
    return cast(BackendFactory, module.make_backend)
