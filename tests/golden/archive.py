"""Reading reference files, strictly: what is missing or odd is named in one line."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError
from elf_engine.types import Weights

UNREADABLE = (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
NOT_CASES = ("params", "ema_params1", "encoder_params", "meta")


class BadFileError(ElfError):
    """A path or file that cannot be checked at all; the command ends with 2."""


@dataclass(frozen=True)
class Case:
    """The arrays stored under one name."""

    source: str
    name: str
    arrays: Mapping[str, npt.NDArray[Any]]

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        if key not in self.arrays:
            raise BadFileError(f"{self.source}: array {self.name}/{key} is missing")
        return self.arrays[key]

    def number(self, key: str) -> float:
        """A stored scalar."""
        if self[key].size != 1:
            raise BadFileError(f"{self.source}: {self.name}/{key} should be one number")
        return float(self[key].item())


@dataclass(frozen=True)
class Archive:
    """One .npz file of named arrays."""

    path: Path
    arrays: Mapping[str, npt.NDArray[Any]]

    def under(self, prefix: str) -> Weights:
        """The arrays below `prefix/`, by the rest of their name."""
        start = f"{prefix}/"
        found = {k[len(start) :]: a for k, a in self.arrays.items() if k.startswith(start)}
        if not found:
            raise BadFileError(f"{self.path}: no array is named {start}...")
        return found

    @property
    def meta(self) -> Case:
        """Sizes stored beside the arrays."""
        return Case(str(self.path), "meta", self.under("meta"))

    @cached_property
    def cases(self) -> dict[str, Case]:
        """Test cases by name, in file order."""
        grouped: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for key, array in self.arrays.items():
            name, _, rest = key.partition("/")
            if name not in NOT_CASES and rest:
                grouped.setdefault(name, {})[rest] = array
        return {name: Case(str(self.path), name, found) for name, found in grouped.items()}


def read_npz(path: Path) -> Archive:
    """Load every array of an .npz file, never an object. Raises BadFileError when it is none."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as opened:
            return Archive(path, {name: opened[name] for name in opened.files})
    except UNREADABLE as error:
        raise BadFileError(f"{path}: not a readable .npz file ({_first_line(error)})") from error


def read_json(path: Path) -> Any:
    """Load a JSON file. Raises BadFileError when it is not one."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadFileError(f"{path}: not a readable JSON file ({_first_line(error)})") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
