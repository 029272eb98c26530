"""Every published format yields the same weights, and damage is refused or harmless."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elf_engine.errors import ElfError
from elf_engine.published.convert import read_checkpoint
from elf_engine.published.flax_ckpt import read_msgpack, read_orbax
from elf_engine.published.torch_ckpt import engine_name, read_torch
from elf_engine.types import Weights
from tests.checkpoints import makers

AVERAGED, PARAMS = makers.network(0), makers.network(9)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    state = makers.train_state(AVERAGED, PARAMS)
    return {
        "orbax": makers.write_orbax(root / "orbax", state),
        "msgpack": makers.write_msgpack(root / "msgpack", state),
        "torch": makers.write_torch(root / "torch", AVERAGED, PARAMS),
        "compiled": makers.write_torch(root / "compiled", AVERAGED, PARAMS, "_orig_mod."),
        "converted": makers.write_converted(root / "converted", AVERAGED),
    }


FORMATS = ("orbax", "msgpack", "torch", "compiled", "converted")


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_yields_the_averaged_weights_bit_for_bit(
    checkpoints: dict[str, Path], kind: str
) -> None:
    makers.assert_same(read_checkpoint(checkpoints[kind]), AVERAGED)


def test_without_an_average_the_parameters_are_read(tmp_path: Path) -> None:
    state = makers.train_state(AVERAGED, PARAMS)
    del state["ema_params1"]
    makers.assert_same(read_orbax(makers.write_orbax(tmp_path / "o", state)), PARAMS)
    makers.assert_same(read_msgpack(makers.write_msgpack(tmp_path / "m", state)), PARAMS)
    makers.assert_same(read_torch(makers.write_torch(tmp_path / "t", {}, PARAMS)), PARAMS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_read_as_float32(tmp_path: Path, dtype: str) -> None:
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    low = {name: array.astype(kind) for name, array in AVERAGED.items()}
    expected = {name: array.astype(np.float32) for name, array in low.items()}
    state = makers.train_state(low, low)
    makers.assert_same(read_msgpack(makers.write_msgpack(tmp_path / "m", state)), expected)
    makers.assert_same(read_orbax(makers.write_orbax(tmp_path / "o", state)), expected)


def test_orbax_without_ocdbt_is_read(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    ocp.Checkpointer(handler).save(
        (tmp_path / "plain").resolve(), makers.train_state(AVERAGED, PARAMS)
    )
    makers.assert_same(read_orbax(tmp_path / "plain"), AVERAGED)
    chunk = next((tmp_path / "plain" / "ema_params1.unembed_kernel").glob("[0-9]*"))
    chunk.unlink()
    with pytest.raises(ElfError, match="unembed_kernel is missing or damaged"):
        read_orbax(tmp_path / "plain")


def test_torch_names_become_engine_names() -> None:
    assert engine_name("_orig_mod.blocks.11.mlp.w3.weight", 2) == "blocks_11/mlp/w3/kernel"
    assert engine_name("blocks.0.attn.q_norm.weight", 1) == "blocks_0/attn/q_norm/weight"
    assert engine_name("proj_kernel", 2) == "proj_kernel"
    assert engine_name("unembed.weight", 2) == "unembed_kernel"


def damage(whole: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Truncations and changed bytes, half of them near the start where structure lies."""
    for _ in range(40):
        yield "truncated", whole[: rng.randrange(len(whole))]
    for _ in range(80):
        data = bytearray(whole)
        place = rng.randrange(min(len(data), 3000) if rng.random() < 0.5 else len(data))
        data[place] ^= 1 << rng.randrange(8)
        yield "changed", bytes(data)


def outcome(read: Callable[[Path], Weights], path: Path) -> Weights | None:
    """The weights, or None for a refusal, which must be one line."""
    try:
        return read(path)
    except ElfError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None


@pytest.mark.parametrize("kind", ["msgpack", "torch"])
def test_damaged_files_are_refused_or_harmless(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "checkpoint_1"
    for how, data in damage(checkpoints[kind].read_bytes(), random.Random(1)):
        path.write_bytes(data)
        weights = outcome(read_checkpoint, path)
        if how == "truncated":
            assert weights is None
        # A torch archive has checksums; a msgpack file has none, so changed numbers pass there.
        elif kind == "torch" and weights is not None:
            makers.assert_same(weights, AVERAGED)


def test_damaged_orbax_directories_are_refused_or_harmless(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint_1"
    shutil.copytree(checkpoints["orbax"], path)
    files = sorted(p for p in path.rglob("*") if p.is_file())
    refused = 0
    for file in files:
        whole = file.read_bytes()
        for size in {0, 1, len(whole) // 2, len(whole) - 1} - {len(whole)}:
            file.write_bytes(whole[:size])
            weights = outcome(read_checkpoint, path)
            refused += weights is None
            if weights is not None:
                makers.assert_same(weights, AVERAGED)
        file.unlink()
        weights = outcome(read_checkpoint, path)
        assert weights is None or file.name != "_METADATA"
        file.write_bytes(whole)
    assert refused >= 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"\x80", "neither ema_params1 nor params"),
        (b"\x81\xa6params\x80", "'params' is empty"),
        (b"\x81\xa6params\x01", "'params' is empty"),
        (b"\x81\xa6params\x81\xa1a\x01", "params/a is a int, no array"),
        (b"\x81\xa6params\x80\x00", "1 bytes too long"),
        (b"\x93\x01\x02\x03", "not a Flax checkpoint"),
        (b"hello", "not a Flax checkpoint"),
        (b"\xdf\xff\xff\xff\xff", "truncated"),
        (b"\x81\xa6params\x81\x01\x01", "not a Flax checkpoint, or damaged"),
        (b"\x81" * 5000, "not a Flax checkpoint, or damaged"),
        (b"\x81\xa6params" + b"\x81\xa1a" * 5000 + b"\x00", "not a Flax checkpoint, or damaged"),
        (b"\x81\xa6params\xc9\xff\xff\xff\xff\x01", "too long|truncated|damaged"),
    ],
)
def test_msgpack_files_that_are_no_checkpoint_are_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "checkpoint_1").write_bytes(data)
    with pytest.raises(ElfError, match=message):
        read_msgpack(tmp_path / "checkpoint_1")


def extension(shape: Any, name: str, data: bytes) -> bytes:
    import msgpack

    array = msgpack.ExtType(1, msgpack.packb((shape, name, data)))
    return msgpack.packb({"params": {"a": array}})


@pytest.mark.parametrize(
    ("shape", "name", "data", "message"),
    [
        ([2], "float32", bytes(4), r"shape \(2,\) has 4 bytes"),
        ([-1], "float32", bytes(4), "impossible shape"),
        ([1 << 40, 1 << 40], "float32", b"", "impossible shape"),
        ([1], "int32", bytes(4), "holds int32"),
        ([1], "object", bytes(8), "holds object"),
    ],
)
def test_msgpack_arrays_must_match_their_bytes(
    tmp_path: Path, shape: Any, name: str, data: bytes, message: str
) -> None:
    (tmp_path / "checkpoint_1").write_bytes(extension(shape, name, data))
    with pytest.raises(ElfError, match=message):
        read_msgpack(tmp_path / "checkpoint_1")


class Evil:
    def __reduce__(self) -> Any:
        return (open, ("evil-was-here", "w"))


def test_torch_files_run_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    torch.save({"params": {"a": torch.zeros(1)}, "extra": Evil()}, tmp_path / "checkpoint_1")
    with pytest.raises(ElfError, match="not a torch checkpoint"):
        read_torch(tmp_path / "checkpoint_1")
    assert not (tmp_path / "evil-was-here").exists()


def test_torch_files_of_another_layout_are_refused(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "checkpoint_1"
    for state, message in (
        ({"weights": {}}, "holds none of ema_params1, params, model"),
        ({"params": [1]}, "'params' is a list"),
        ({"params": {"a": 1}}, "'a', which is not a named tensor"),
        ({"params": {"a": torch.zeros(2, dtype=torch.int64)}}, "a holds torch.int64"),
        ({"params": {"a": torch.zeros(2), "_orig_mod.a": torch.zeros(2)}}, "two tensors are named"),
        ([1, 2], "holds a list"),
    ):
        torch.save(state, path)
        with pytest.raises(ElfError, match=message):
            read_torch(path)


@pytest.mark.parametrize(
    ("package", "kind", "extra"),
    [("tensorstore", "orbax", "jax"), ("msgpack", "msgpack", "jax"), ("torch", "torch", "torch")],
)
def test_a_missing_package_is_named_with_its_extra(
    checkpoints: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    kind: str,
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ElfError, match=rf"'{package}'; install it with: .*\[{extra}\]"):
        read_checkpoint(checkpoints[kind])
