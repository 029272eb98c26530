"""The safetensors format: agreement with the safetensors package, and strictness."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from elf_engine import tensor_file
from elf_engine.errors import ElfError

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


def sample() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "b/kernel": rng.standard_normal((3, 5)).astype(np.float32),
        "a": rng.standard_normal(()).astype(np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "turned": rng.standard_normal((4, 2)).astype(np.float32).T,
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_we_write_the_safetensors_package_reads(tmp_path: Path, dtype: str) -> None:
    tensor_file.write_file(tmp_path / "a.safetensors", sample(), dtype)
    read = load_file(tmp_path / "a.safetensors")
    for name, array in sample().items():
        assert np.array_equal(read[name], array.astype(DTYPES[dtype])), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_safetensors_package_writes_we_read(tmp_path: Path, dtype: str) -> None:
    stored = {k: np.ascontiguousarray(v.astype(DTYPES[dtype])) for k, v in sample().items()}
    save_file(stored, tmp_path / "a.safetensors", {"format": "pt"})
    read = tensor_file.open_file(tmp_path / "a.safetensors").load_all()
    for name, array in stored.items():
        assert np.array_equal(read[name], array.astype(np.float32)), name


@given(hnp.arrays(np.float32, 20, elements=FINITE))
def test_bfloat16_rounds_to_nearest_even(array: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        expected = array.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(tensor_file._to_bfloat16(array), expected)


@pytest.mark.parametrize(("value", "dtype"), [(1e6, "float16"), (3.4e38, "bfloat16")])
def test_a_value_too_large_for_the_type_is_refused(
    tmp_path: Path, value: float, dtype: str
) -> None:
    with pytest.raises(ElfError, match="x holds values too large"):
        tensor_file.write_file(tmp_path / "a", {"x": np.float32([1, value])}, dtype)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_both_ways(tmp_path: Path, value: float) -> None:
    bad = {"x": np.float32([1, value])}
    with pytest.raises(ElfError, match="x holds values that are not finite"):
        tensor_file.write_file(tmp_path / "a", bad, "float32")
    save_file(bad, tmp_path / "b")
    with pytest.raises(ElfError, match="b: x holds values that are not finite"):
        tensor_file.open_file(tmp_path / "b").load_all()


def test_every_truncation_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensor_file.write_file(path, sample(), "float16")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ElfError, match=r"^a\.safetensors: [^\n]+$"):
            tensor_file.open_file(path)


def with_header(path: Path, header: object, data: bytes) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return path


def entry(shape: list, start: int, stop: int, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"x": entry([2], 0, 8), "y": entry([1], 4, 8)}, "y starts at byte 4, expected 8"),
        ({"x": entry([1], 4, 8)}, "x starts at byte 4, expected 0"),
        ({"x": entry([1], 0, 4)}, "4 bytes too long"),
        ({"x": entry([3], 0, 12)}, "truncated, 12 bytes of weights expected and 8 found"),
        ({"x": entry([3], 0, 8)}, "x has 8 bytes for the shape"),
        ({"x": entry([1], 0, 8, "I64")}, "x has type 'I64'"),
        ({"x": entry([-2], 0, 8)}, "entry for x is malformed"),
        ({"x": entry([True, 2], 0, 8)}, "entry for x is malformed"),
        ({"x": 3}, "entry for x is malformed"),
        ({"x": entry([1 << 62, 1 << 62], 0, 8)}, "x has 8 bytes for the shape"),
        (b'{"x":1,"x":2}', "names a tensor twice"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not valid JSON"),
        (b"\xff{}", "not valid JSON"),
    ],
)
def test_malformed_headers_are_refused(tmp_path: Path, header: object, message: str) -> None:
    path = with_header(tmp_path / "a", header, bytes(8))
    with pytest.raises(ElfError, match=message):
        tensor_file.open_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="nowhere: cannot be read"):
        tensor_file.open_file(tmp_path / "nowhere")
