"""Flax checkpoints of the JAX release: Orbax directories and single msgpack files.

Only the averaged weights (`ema_params1`) are read, or `params` where there are none; the optimiser
state beside them is three times as large and is skipped.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine.errors import ElfError
from elf_engine.types import FloatArray, Weights
from elf_engine.weights import flatten

SUBTREES = ("ema_params1", "params")
# Bounds a hostile file; the largest published tensor has 16 million numbers.
MAX_NUMBERS = 1 << 31
MAX_RANK = 8
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


def read_orbax(path: Path) -> Weights:
    """Weights of an Orbax PyTree checkpoint directory (OCDBT or one directory per tensor).

    Raises ElfError when it is damaged or incomplete, or when tensorstore is not installed.
    """
    metadata = _metadata(path / "_METADATA")
    subtree, names = _names(path, metadata)
    weights: Weights = {}
    for parts in names:
        weights["/".join(parts[1:])] = _read_tensor(path, ".".join(parts), metadata)
    if not weights:
        raise ElfError(f"{path}: '{subtree}' is empty")
    return weights


def read_msgpack(path: Path) -> Weights:
    """Weights of a Flax msgpack checkpoint file.

    Raises ElfError when it is truncated, damaged or something else, or when msgpack is not
    installed.
    """
    for subtree in SUBTREES:
        tree = _msgpack_subtree(path, subtree)
        if tree is not None:
            break
    else:
        raise ElfError(f"{path.name}: holds neither {' nor '.join(SUBTREES)}")
    weights = flatten(tree) if isinstance(tree, dict) else {}
    for name, value in weights.items():
        if not isinstance(value, np.ndarray):
            raise ElfError(f"{path.name}: {subtree}/{name} is a {type(value).__name__}, no array")
    if not weights:
        raise ElfError(f"{path.name}: '{subtree}' is empty")
    return weights


def _metadata(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ElfError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ElfError(f"{file}: truncated or not valid JSON") from error
    if not isinstance(data, dict) or not isinstance(data.get("tree_metadata"), dict):
        raise ElfError(f"{file}: not the metadata of an Orbax checkpoint")
    return data


def _names(path: Path, metadata: dict[str, Any]) -> tuple[str, list[list[str]]]:
    """The first subtree present, and the key paths of its leaves in a fixed order."""
    found: dict[str, list[list[str]]] = {}
    for leaf in metadata["tree_metadata"].values():
        try:
            parts = [str(key["key"]) for key in leaf["key_metadata"]]
        except (TypeError, KeyError) as error:
            raise ElfError(
                f"{path / '_METADATA'}: not the metadata of an Orbax checkpoint"
            ) from error
        if parts:
            found.setdefault(parts[0], []).append(parts)
    for subtree in SUBTREES:
        if subtree in found:
            return subtree, sorted(found[subtree])
    raise ElfError(f"{path}: holds neither {' nor '.join(SUBTREES)}")


def _read_tensor(path: Path, name: str, metadata: dict[str, Any]) -> FloatArray:
    try:
        import tensorstore as ts
    except ImportError as error:
        raise ElfError(
            "Orbax checkpoints need the package 'tensorstore'; "
            "install it with: pip install -e '.[jax]'"
        ) from error
    base = {"driver": "file", "path": f"{path.resolve()}/"}
    kvstore: dict[str, Any] = {"driver": "file", "path": f"{path.resolve()}/{name}/"}
    if metadata.get("use_ocdbt", True):
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    driver = "zarr3" if metadata.get("use_zarr3") else "zarr"
    # A chunk that is missing would otherwise read as zeros.
    spec = {"driver": driver, "kvstore": kvstore, "fill_missing_data_reads": False}
    try:
        store = ts.open(spec, read=True, open=True).result()
        dtype = store.dtype.name
        _check_size(f"{path.name}: {name}", store.shape, dtype)
        array = store.read().result()
    except ElfError:
        raise
    except (ValueError, OSError, RuntimeError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ElfError(f"{path.name}: {name} is missing or damaged ({reason})") from error
    return np.asarray(array, np.float32)


def _msgpack_subtree(path: Path, subtree: str) -> Any:
    """The value under top-level key `subtree`, None when there is none. The whole file is walked,
    so that a truncated one is never taken for whole."""
    try:
        import msgpack
    except ImportError as error:
        raise ElfError(
            "Flax checkpoint files need the package 'msgpack'; "
            "install it with: pip install -e '.[jax]'"
        ) from error
    size = path.stat().st_size
    tree: Any = None
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(
            file, raw=False, ext_hook=_array, strict_map_key=True, max_buffer_size=size
        )
        try:
            for _ in range(unpacker.read_map_header()):
                if unpacker.unpack() == subtree:
                    tree = unpacker.unpack()
                else:
                    unpacker.skip()
        except ElfError as error:
            raise ElfError(f"{path.name}: {error}") from error
        except msgpack.OutOfData as error:
            raise ElfError(f"{path.name}: truncated; copy or download it again") from error
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ElfError(f"{path.name}: not a Flax checkpoint, or damaged ({reason})") from error
        if unpacker.tell() != size:
            raise ElfError(f"{path.name}: {size - unpacker.tell()} bytes too long")
    return tree


def _array(code: int, data: bytes) -> Any:
    """Flax's extension type 1: (shape, dtype name, bytes). Other types are left out."""
    import msgpack

    if code != 1:
        return None
    shape, name, raw = msgpack.unpackb(data, raw=True)
    dtype = name.decode("ascii", "replace")
    _check_size("an array", tuple(shape), dtype)
    if math.prod(shape) * _WIDTHS[dtype] != len(raw):
        raise ElfError(f"an array of shape {tuple(shape)} has {len(raw)} bytes")
    if dtype == "bfloat16":
        wide = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(np.float32).reshape(shape)


def _check_size(what: str, shape: tuple[int, ...], dtype: str) -> None:
    if dtype not in _WIDTHS:
        raise ElfError(f"{what} holds {dtype[:40]}, weights are {', '.join(_WIDTHS)}")
    sizes_ok = all(type(n) is int and 0 <= n <= MAX_NUMBERS for n in shape)
    if len(shape) > MAX_RANK or not sizes_ok or math.prod(shape) > MAX_NUMBERS:
        raise ElfError(f"{what} has the impossible shape {shape[:MAX_RANK]}")
