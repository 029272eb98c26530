"""Bad input ends in one line and exit code 2, never in a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import cli_edit
from tests.cli.common import Elf
from tests.fakes import FakeEngine

BAD = [
    (["draft", "--steps", "0"], "steps 0 is outside"),
    (["draft", "--steps", "many"], "'many' is not a valid integer"),
    (["draft", "--guidance", "101"], "guidance 101"),
    (["draft", "--guidance", "nan"], "guidance nan"),
    (["draft", "--gamma=-1"], "gamma -1"),
    (["draft", "--seed=-1"], "seed -1"),
    (["draft", "--sampler", "magic"], "'magic'"),
    (["draft", "--grid", "x"], "'x'"),
    (["draft", "--backend", "mlx"], "'mlx'"),
    (["draft", "--model", "nope"], "no model 'nope'"),
    (["draft", "--count", "0"], "count 0"),
    (["draft", "--length=-1"], "length -1"),
    (["draft", "--length", "99999"], "length 99999"),
    (["draft", "--nope"], "--nope"),
    (["draft", "one", "two"], "unexpected extra argument"),
    (["draft", "one", "--file", "two"], "not both"),
    (["draft", "--file", "no/such/file"], "'no/such/file' cannot be read"),
    (["draft", "--file", "."], "'.' cannot be read"),
    (["draft", "\udcff"], "byte 0xff at offset 0"),
    (["draft", "a\ud83d"], "surrogate"),
    (["infill", ""], "no gap"),
    (["infill", "no gap"], "no gap"),
    (["infill", "a [[b]]"], "'[[b]]' at character 2"),
    (["infill", "a [[\n]]"], "is no gap"),
    (["infill", "[[999]]"], "too large"),
    (["translate", " "], "no text"),
    (["rewrite", "a", "--strength", "2"], "strength 2.0"),
    (["rewrite", "a", "--span", "x"], "span 'x'"),
    (["rewrite", "a", "--span", "0:9"], "span 0:9"),
    (["rewrite", "a", "--lock", "b"], "no 'b' to lock"),
    (["rewrite", "a b", "--lock", "0:1", "--span", "2:3"], "lock 0:1"),
    (["rewrite", "a", "--lock", "a"], "nothing to rewrite"),
    (["rewrite", "a", "--lock", "a", "--style", "modern"], "leave out the locks"),
    (["rewrite", "a", "--style", "old"], "'old'"),
    (["infill", "ab", "--span", "0:1", "--length", "x"], "length 'x'"),
    (["infill", "ab [[2]]", "--length", "2"], "goes with --span"),
    (["infill", "ab", "--span", "0:1", "--length", "4-2"], "length 4-2"),
    (["draft", "--words", "2", "--length", "2"], "not both"),
    (["draft", "--words", "9999"], "length 9999"),
    (["draft", "--quality", "1.5"], "quality 1.5"),
    (["draft", "--rank", "distance"], "no distance"),
    (["draft", "--resample", "99"], "resample 99"),
    (["draft", "--dtype", "int8"], "'int8'"),
    (["compare", "a"], "0 columns"),
    (["compare", "a", "--with", "steps"], "'steps' is not KNOB=VALUE"),
    (["compare", "a", "--with", "stepz=2"], "knob 'stepz'"),
    (["compare", "a", "--with", "steps=x"], "steps 'x'"),
    (["compare", "a", "--vary", "steps"], "'steps' is not KNOB=A,B"),
    (["compare", "a", "--vary", ",".join(["steps=2", *"2" * 64])], "65 columns"),
    (["history", "show", "zzzz"], "no result"),
    (["history", "show", "!"], "no result id"),
    (["history", "list", "--limit", "0"], "limit 0"),
    (["infill", "a", "--span", "0:" + "9" * 5000], "span '0:999"),
    (["infill", "a", "--span", "0:1", "--length", "9" * 5000], "length '999"),
    (["paint"], "paint"),
    (["completion", "tcsh"], "'tcsh'"),
]


@pytest.mark.parametrize(
    ("args", "message"), BAD, ids=[" ".join(a).encode("unicode_escape").decode() for a, _ in BAD]
)
def test_bad_input_exits_2_with_one_line(elf: Elf, args: list[str], message: str) -> None:
    result = elf(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("elf: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_bytes_that_are_not_utf8_are_named(elf: Elf, tmp_path: Path) -> None:
    file = tmp_path / "latin1.txt"
    file.write_bytes("Tür [[2]]".encode("latin-1"))
    for result in (elf("infill", "-f", str(file)), elf("infill", stdin=file.read_bytes())):
        assert result.exit_code == 2
        assert "byte 0xfc at offset 1" in result.stderr
        assert result.stderr.count("\n") == 1


def test_ctrl_c_exits_130_quietly(elf: Elf, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_edit, "load_engine", interrupted)
    result = elf("draft", "a")
    assert result.exit_code == 130
    assert result.output.strip() == ""


def test_a_defect_is_named_without_a_traceback(elf: Elf, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(cli_edit, "load_engine", broken)
    result = elf("draft", "a")
    assert result.exit_code == 1
    assert "RuntimeError: out of cheese" in result.stderr
    assert result.stderr.count("\n") == 1


def test_nothing_but_nan_exits_2(elf: Elf, engine: FakeEngine) -> None:
    engine.broken = frozenset(range(99))
    result = elf("draft", "a")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "step 2 of 4" in result.stderr
