"""The pickle walker: exact on arrays, and deaf to everything a pickle can ask for."""

from __future__ import annotations

import collections
import os
import pickle
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elf_engine.errors import ElfError
from elf_engine.published.pickle_reader import read_pickle, read_pickle_bytes
from elf_engine.weights import flatten

ARRAYS = hnp.arrays(
    st.sampled_from(["<f4", ">f4", "<f2", ">f2"]), hnp.array_shapes(min_dims=0, min_side=0)
)
KEYS = st.text(max_size=8).filter(lambda key: "/" not in key)
TREES = st.recursive(
    st.dictionaries(KEYS, ARRAYS, max_size=4), lambda tree: st.dictionaries(KEYS, tree, max_size=3)
)


@given(TREES, st.integers(0, 5), st.booleans())
def test_every_tree_of_arrays_is_read_exactly(tree: Any, protocol: int, fortran: bool) -> None:
    if fortran:
        tree = as_fortran(tree)
    found = flatten(read_pickle_bytes(pickle.dumps(tree, protocol)))
    expected = flatten(tree)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def as_fortran(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: as_fortran(value) for key, value in tree.items()}
    return np.asfortranarray(tree)


def test_names_of_numpy_1_are_understood() -> None:
    data = pickle.dumps({"x": np.arange(3, dtype=np.float32)}, 4)
    old = data.replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
    assert old != data
    # The frame is one byte shorter.
    old = old[:3] + struct.pack("<Q", struct.unpack("<Q", old[3:11])[0] - 1) + old[11:]
    assert read_pickle_bytes(old)["x"].tolist() == [0, 1, 2]


class Reduce:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


MARKER = "pickle-was-executed"

HOSTILE = {
    "os.system": Reduce(os.system, f"touch {MARKER}"),
    "builtins.eval": Reduce(eval, f"open({MARKER!r}, 'w')"),
    "builtins.exec": Reduce(exec, f"open({MARKER!r}, 'w')"),
    "builtins.open": Reduce(open, MARKER, "w"),
    "builtins.getattr": Reduce(getattr, "", "join"),
    "subprocess.Popen": Reduce(subprocess.Popen, ["touch", MARKER]),
    "pathlib": Path(MARKER),
    "collections.OrderedDict": collections.OrderedDict(x=1),
    "numpy.load": Reduce(np.load, MARKER, None, True),
    "numpy.memmap": Reduce(np.memmap, MARKER),
    "set": {1, 2},
    "list": [1, 2],
    "complex": 1j,
    "object array": np.array([Reduce(os.system, f"touch {MARKER}")], dtype=object),
    "integers": np.arange(3),
    "doubles": np.arange(3.0),
    "records": np.zeros(2, dtype=[("a", "f4")]),
    "number": 3,
    "text": "x",
    "tuple": (np.zeros(1, np.float32),),
    "none": None,
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("wrap", [False, True])
def test_hostile_and_foreign_pickles_are_refused_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, protocol: int, wrap: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    value = HOSTILE[name]
    tree = {"params": {"w": np.zeros(2, np.float32), "x": value}} if wrap else value
    with pytest.raises(ElfError) as caught:
        read_pickle_bytes(pickle.dumps(tree, protocol))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "names the global 'os.system'"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "names the global 'os.system'"),
        (b"(S'true'\nios\nsystem\n.", "uses opcode INST"),
        (b"(cos\nsystem\nS'true'\no.", "names the global 'os.system'"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "uses opcode NEWOBJ"),
        (b"\x80\x04cnumpy\nndarray\n)}\x92.", "uses opcode NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", "uses opcode EXT1"),
        (b"Pid\n.", "uses opcode PERSID"),
        (b"\x80\x02K\x01Q.", "uses opcode BINPERSID"),
        (b"\x80\x05\x97.", "uses opcode NEXT_BUFFER"),
        (b"\x80\x04].", "uses opcode EMPTY_LIST"),
        (b"cnumpy\nndarray\n(I0\ntR.", "calls ndarray with unknown arguments"),
        (b"cnumpy\ndtype\n(S'O8'\nI00\nI01\ntR.", "numbers of type 'O8'"),
        (b"cnumpy\ndtype\n(cos\nsystem\ntR.", "names the global 'os.system'"),
        (b"c_codecs\nencode\n(S'x'\nS'hex'\ntR.", "calls encode with unknown arguments"),
        (b"}K\x01K\x02s.", "key of type int"),
        (b"}(S'a'\n}S'a'\n}u.", "sets the key 'a' twice"),
        (b"}(S'a'\nu.", "sets items on something"),
        (b"K\x01(S'a'\n}u.", "sets items on something"),
        (b"}h\x07.", "reads memo 7"),
        (b".", "takes from an empty stack"),
        (b"(.", "takes from an empty stack"),
        (b"t.", "mark that is not there"),
        (b"(t.", "holds a tuple where a dict"),
        (b"}q\x00S'a'\nh\x00s.", "nests its dicts too deeply or holds one dict twice"),
        (b"}S'a'\n}q\x00sS'b'\nh\x00s.", "nests its dicts too deeply or holds one dict twice"),
        (b"}.}", "goes on for 1 bytes"),
        (b"", "truncated"),
        (b"}", "truncated"),
        (b"not a pickle", "truncated or not a pickle"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.", "truncated or not a pickle"),
        (b"\x80\x04\x8d" + struct.pack("<Q", (1 << 64) - 1) + b"x.", "truncated or not a pickle"),
        (b"I" + b"9" * 5000 + b"\n.", "truncated or not a pickle"),
        (b"}" * 40 + b"S'a'\n" + b".", "holds a str where a dict"),
        (b"0" * 100_002, "uses opcode POP"),
        (b"N" * 100_002 + b".", "too many opcodes"),
    ],
)
def test_hand_written_programs_are_refused(program: bytes, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        read_pickle_bytes(program)


def nested(depth: int) -> bytes:
    """{"a": {"a": ... }}, `depth` dicts inside the first."""
    return b"}" + b"S'a'\n}" * depth + b"s" * depth + b"."


def test_depth_is_bounded() -> None:
    assert flatten(read_pickle_bytes(nested(30))) == {}
    with pytest.raises(ElfError, match="too deeply"):
        read_pickle_bytes(nested(400))


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\x01btR"
FLOAT32 = b"cnumpy\ndtype\n(S'f4'\nI00\nI01\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"


def array_pickle(shape: bytes, data: bytes, version: bytes = b"I1\n") -> bytes:
    state = b"(" + version + shape + FLOAT32 + b"I00\n" + b"B" + struct.pack("<I", len(data)) + data
    return b"}S'x'\n" + RECONSTRUCT + state + b"tbs."


@pytest.mark.parametrize(
    ("shape", "data", "message"),
    [
        (b"(I3\nt", bytes(8), r"shape \(3,\) from 8 bytes"),
        (b"(I-2\nt", bytes(8), "not a tuple of sizes"),
        (b"(I4611686018427387904\nI4\nt", b"", "not a tuple of sizes"),
        (b"(I4294967296\nI4294967296\nt", bytes(8), "from 8 bytes"),
        (b"(" + b"I1\n" * 40 + b"t", bytes(4), "not a tuple of sizes"),
        (b"I2\n", bytes(8), "not a tuple of sizes"),
        (b"(S'2'\nt", bytes(8), "not a tuple of sizes"),
    ],
)
def test_arrays_must_match_their_bytes(shape: bytes, data: bytes, message: str) -> None:
    good = read_pickle_bytes(array_pickle(b"(I2\nt", bytes(8)))
    assert good["x"].tolist() == [0, 0]
    with pytest.raises(ElfError, match=message):
        read_pickle_bytes(array_pickle(shape, data))


def test_a_short_program_cannot_fill_the_memory() -> None:
    """A memoised string encoded again and again."""
    text = b"X" + struct.pack("<I", 1000) + b"x" * 1000 + b"q\x00"
    call = b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR"
    with pytest.raises(ElfError, match="makes more bytes than the file holds"):
        read_pickle_bytes(b"\x80\x02" + text + call * 50 + b".")


def test_every_truncation_is_refused() -> None:
    data = pickle.dumps({"a": {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}}, 4)
    for size in range(len(data)):
        with pytest.raises(ElfError):
            read_pickle_bytes(data[:size])


def test_random_damage_never_escapes() -> None:
    """Either a tree of arrays or one line of refusal, whatever bytes are changed."""
    rng = random.Random(0)
    tree = {"a": {"x": np.arange(6, dtype=np.float32), "y": np.zeros((2, 2), np.float16)}}
    for protocol in (0, 2, 4, 5):
        whole = pickle.dumps(tree, protocol)
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 5))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            found, refusal = outcome(bytes(data))
            assert "\n" not in refusal
            assert all(isinstance(v, np.ndarray) for v in flatten(found).values())


def outcome(data: bytes) -> tuple[dict[str, Any], str]:
    try:
        return read_pickle_bytes(data), ""
    except ElfError as error:
        return {}, str(error)


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "encoder.pkl"
    path.write_bytes(b"cos\nsystem\n(tR.")
    with pytest.raises(ElfError, match=r"^encoder\.pkl: the pickle names the global 'os\.system'"):
        read_pickle(path)
    with pytest.raises(ElfError, match="cannot be read"):
        read_pickle(tmp_path / "absent.pkl")
