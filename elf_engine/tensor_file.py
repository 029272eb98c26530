"""The safetensors file format, read and written with NumPy alone.

A file is an 8-byte little-endian header length, a JSON header, and the tensors' bytes. Reading it
here keeps bfloat16 files free of any array library, and every refusal to one line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError
from elf_engine.types import FloatArray, Weights

_WIDTH = {"F32": 4, "F16": 2, "BF16": 2}
_TAG = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_MAX_HEADER = 100_000_000
_METADATA = "__metadata__"


@dataclass(frozen=True)
class Entry:
    """One tensor: dtype tag, shape, and its bytes' place after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class TensorFile:
    """An opened file: names, dtypes and shapes are known, tensors are read on request."""

    path: Path
    entries: dict[str, Entry]
    data_at: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self.entries.items()}

    def load(self, name: str) -> FloatArray:
        """Tensor `name` as float32 (exact for every stored type). Raises ElfError when it holds a
        value that is not finite."""
        entry = self.entries[name]
        with self.path.open("rb") as file:
            file.seek(self.data_at + entry.start)
            raw = file.read(entry.stop - entry.start)
        if len(raw) != entry.stop - entry.start:
            raise ElfError(f"{self.path.name}: truncated in {name}; copy or download it again")
        array = _upcast(raw, entry.dtype).reshape(entry.shape)
        if not np.isfinite(array).all():
            raise ElfError(f"{self.path.name}: {name} holds values that are not finite")
        return array

    def load_all(self) -> Weights:
        """Every tensor as float32, by name."""
        return {name: self.load(name) for name in self.entries}


def open_file(path: Path) -> TensorFile:
    """Read and check the header of `path`. Raises ElfError for a missing, truncated or malformed
    file, and for tensors that are not float32, float16 or bfloat16."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                raise ElfError(f"{path.name}: not a safetensors file, or truncated in its header")
            raw = file.read(length)
    except OSError as error:
        raise ElfError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
        entries = {name: _entry(name, e) for name, e in header.items() if name != _METADATA}
    except (ValueError, RecursionError, AttributeError) as error:
        reason = str(error) if isinstance(error, ElfError) else "its header is not valid JSON"
        raise ElfError(f"{path.name}: {reason}") from error
    _check_extent(path.name, entries, size - 8 - length)
    return TensorFile(path, entries, 8 + length)


def write_file(path: Path, weights: Mapping[str, npt.NDArray[Any]], dtype: str) -> None:
    """Write `weights` as `dtype` ("float32", "float16" or "bfloat16"), sorted by name, so that
    equal weights give equal files. Raises ElfError for an unknown dtype, and for a value that is
    not finite or does not fit the dtype."""
    if dtype not in _TAG:
        raise ElfError(f"dtype '{dtype}' is unknown; choose one of {', '.join(_TAG)}")
    tag, at = _TAG[dtype], 0
    header: dict[str, Any] = {}
    for name in sorted(weights):
        stop = at + weights[name].size * _WIDTH[tag]
        shape = list(weights[name].shape)
        header[name] = {"dtype": tag, "shape": shape, "data_offsets": [at, stop]}
        at = stop
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for name in sorted(weights):
            file.write(_downcast(np.asarray(weights[name], np.float32), tag, name))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ElfError("its header names a tensor twice")
    return dict(pairs)


def _entry(name: str, value: Any) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ElfError(f"its header entry for {name} is malformed")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if dtype not in _WIDTH:
        raise ElfError(f"{name} has type {dtype!r}; only {', '.join(_WIDTH)} are weights")
    if not (_naturals(shape) and _naturals(offsets) and len(offsets) == 2):
        raise ElfError(f"its header entry for {name} is malformed")
    if math.prod(shape) * _WIDTH[dtype] != offsets[1] - offsets[0]:
        raise ElfError(f"{name} has {offsets[1] - offsets[0]} bytes for the shape {tuple(shape)}")
    return Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_extent(name: str, entries: dict[str, Entry], size: int) -> None:
    """The tensors must fill the data exactly, without gap or overlap."""
    at = 0
    for tensor, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != at:
            raise ElfError(f"{name}: {tensor} starts at byte {entry.start}, expected {at}")
        at = entry.stop
    if at > size:
        raise ElfError(f"{name}: truncated, {at} bytes of weights expected and {size} found")
    if at < size:
        raise ElfError(f"{name}: {size - at} bytes too long for the weights it names")


def _upcast(raw: bytes, tag: str) -> FloatArray:
    if tag == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, "<f4" if tag == "F32" else "<f2").astype(np.float32)


def _downcast(array: FloatArray, tag: str, name: str) -> bytes:
    if not np.isfinite(array).all():
        raise ElfError(f"{name} holds values that are not finite; it is not saved")
    if tag == "F32":
        return array.astype("<f4").tobytes()
    with np.errstate(over="ignore"):
        low = _to_bfloat16(array) if tag == "BF16" else array.astype("<f2")
    back = _upcast(low.tobytes(), tag)
    if not np.isfinite(back).all():
        raise ElfError(f"{name} holds values too large for {tag}; save it as float32")
    return low.tobytes()


def _to_bfloat16(array: FloatArray) -> npt.NDArray[np.uint16]:
    """Upper half of each float32, rounded to nearest even."""
    bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
