"""official_ckpt: published checkpoint formats, which must load to the very same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine.published.flax_ckpt import read_msgpack, read_orbax
from elf_engine.published.pickle_reader import read_pickle
from elf_engine.published.torch_ckpt import read_torch
from elf_engine.types import Weights
from elf_engine.weights import flatten
from tests.golden.archive import read_npz
from tests.golden.compare import EQUAL, Row, compare_exactly
from tests.golden.models import check_meta, network_backend, network_spec

EXPECTED, ENCODER = "expected.npz", "t5_encoder_expected.npz"
NETWORKS: dict[str, Callable[[Path], Weights]] = {
    "orbax": read_orbax,
    "msgpack": read_msgpack,
    "torch": read_torch,
}


def check(directory: Path, backend_names: tuple[str, ...]) -> Iterator[Row]:
    """Every checkpoint and encoder pickle of `directory` against its expected arrays, as read and
    as each backend then holds it."""
    if (directory / EXPECTED).exists():
        yield from _networks(directory, backend_names)
    if (directory / ENCODER).exists():
        encoder = read_npz(directory / ENCODER)
        for path in sorted(directory.glob("*.pkl")):
            yield _all_equal(path.name, "numpy", read_encoder(path), encoder.under("params"))


def _networks(directory: Path, backend_names: tuple[str, ...]) -> Iterator[Row]:
    expected = read_npz(directory / EXPECTED)
    stored = expected.under("ema_params1")
    length = int(expected.meta.number("max_length"))
    check_meta(expected, network_spec(stored, length))
    for kind, read in NETWORKS.items():
        for path in sorted((directory / kind).glob("checkpoint_*")):
            source, weights = f"{kind}/{path.name}", read(path)
            yield _all_equal(source, "numpy", weights, stored)
            for name in backend_names:
                backend = network_backend(name, weights, length)
                held = {k: backend.to_numpy(a) for k, a in backend.compile(HELD[name])().items()}
                yield _all_equal(source, name, held, stored)


def read_encoder(path: Path) -> Weights:
    """The encoder of a pickle, bare or under "params"."""
    tree = read_pickle(path)
    inner: Mapping[str, Any] = tree["params"] if set(tree) == {"params"} else tree
    return flatten(inner)


def _all_equal(source: str, backend: str, found: Weights, stored: Weights) -> Row:
    """The worst of all arrays."""
    missing = sorted(set(stored) ^ set(found))
    if missing:
        note = f"{missing[0]} is in only one of the two"
        return Row(source, "weights", backend, np.inf, np.inf, EQUAL, note)
    rows = [compare_exactly((source, name, backend), found[name], stored[name]) for name in stored]
    worst = max(rows, key=lambda row: (not row.ok, np.nan_to_num(row.absolute, nan=np.inf)))
    note = f"{len(rows)} arrays" if worst.ok else f"{worst.quantity} {worst.note}"
    return Row(source, "weights", backend, worst.absolute, worst.relative, EQUAL, note)


def _jax_params(net: Any) -> Weights:
    return flatten(net.params["params"])


def _torch_params(net: Any) -> Any:
    from torch import as_tensor

    from elf_engine.backends.torch.weights import export

    return {name: as_tensor(array) for name, array in export(net.module).items()}


HELD: dict[str, Callable[[Any], Any]] = {"jax": _jax_params, "torch": _torch_params}
