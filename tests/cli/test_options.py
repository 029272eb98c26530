"""What the options of the editors do, and `elf compare`."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import cli_edit
from elf_engine import model_dir
from elf_engine.config import LayoutSpec
from tests.cli.common import Elf, lines
from tests.fakes import TINY_VOCAB, FakeEngine, tiny_model_dir


def test_equal_candidates_are_replaced_or_left_out(elf: Elf, engine: FakeEngine) -> None:
    result = elf("draft", "A", "--count", "2", "--length", "2")
    assert result.stdout == "A big red\n"
    assert "only 1 of 2 candidates differ" in result.stderr
    engine.answer = None
    found = lines(elf("draft", "A", "--count", "8", "--length", "1", "--json"))
    assert len({line["text"] for line in found}) == 8
    assert [line["index"] for line in found] != list(range(8))


def test_length_in_words(elf: Elf) -> None:
    assert elf("draft", "A", "--words", "1").stdout == "A big\n"
    result = elf("draft", "A", "--words", "9")
    assert len(result.stdout.split()) == 1 + 9


def test_spans_are_gaps(elf: Elf) -> None:
    assert elf("infill", "A tiny [[house]]", "--span", "2:6").stdout == "A big red [[house]]\n"
    two = ["--span", "0:1", "--span", "2:3", "--length", "2"]
    assert elf("infill", "a-b", *two).stdout == "big red- big red\n"
    result = elf("infill", "ab", "--span", "0:1", "--length", "3-4")
    assert (result.stdout, "of the 3 tokens" in result.stderr) == ("big red.b\n", True)


@pytest.mark.parametrize("editor", ["translate", "summarise", "modernise", "rewrite"])
def test_a_span_of_a_longer_text(elf: Elf, editor: str) -> None:
    args = ["--span", "0:5", "--span", "10:14"]
    result = elf(editor, "Haus.  B  Eins c.", *args)
    assert (result.exit_code, result.stdout) == (0, "big red  B  big red c.\n")


def test_diff_shows_the_changes(elf: Elf) -> None:
    result = elf("rewrite", "A tiny red house\nx", "--span", "2:10", "--diff")
    assert result.stdout == "2:10 A [-tiny-]{+big+} red house↵x\n"
    assert result.stderr.startswith("elf: candidate 0: chrF ")
    assert "word edits 1\n" in result.stderr
    assert elf("rewrite", "A house", "--strength", "0", "--diff").stdout == ""


def test_trajectory_comes_before_the_text(elf: Elf) -> None:
    result = elf("infill", "A [[2]]\nhouse", "--steps", "2", "--trajectory")
    steps = "1/2 A big red house\n2/2 A big red house\n"
    assert result.stdout == steps + "A big red\nhouse\n"
    (line,) = lines(elf("draft", "A", "--steps", "3", "--trajectory", "--json"))
    assert line["trajectory"] == ["A big red"] * 3


@pytest.mark.parametrize("lock", ["red", "6:9"])
def test_locked_words_stay(elf: Elf, engine: FakeEngine, lock: str) -> None:
    result = elf("rewrite", "A big red house", "--lock", lock, "--span", "2:15", "--json")
    (line,) = lines(result)
    assert line["text"] == "A big red red big red"
    assert [(c["start"], c["stop"]) for c in line["changes"]] == [(2, 5), (10, 15)]


def test_style_modern_uses_its_own_task(elf: Elf, engine: FakeEngine) -> None:
    result = elf("rewrite", "Thou art a house.", "--style", "modern")
    assert (result.exit_code, result.stdout) == (0, "big red\n")
    assert engine.calls[0][0].ids[0] == engine.config.layout.tasks["modernise"]


def test_quality_sets_the_knobs_and_options_win(elf: Elf) -> None:
    (line,) = lines(elf("draft", "A", "--quality", "1", "--json"))
    assert line["settings"].items() >= {"guidance": 3.0, "steps": 64, "quality": 1.0}.items()
    assert line["settings"]["calibration"] == "built in"
    assert any("built-in" in warning for warning in line["warnings"])
    (line,) = lines(elf("draft", "A", "--quality", "1", "--steps", "2", "--json"))
    assert (line["settings"]["guidance"], line["settings"]["steps"]) == (3.0, 2)


def test_rank_orders_the_candidates(elf: Elf, engine: FakeEngine) -> None:
    engine.answer = None
    args = ["rewrite", "A big red house.", "--count", "6", "--json", "--rank"]
    near = [line["scores"]["chrf"] for line in lines(elf(*args, "distance"))]
    assert near == sorted(near, reverse=True)
    fit = [line["scores"]["fit"] for line in lines(elf(*args, "fit"))]
    assert fit == sorted(fit, reverse=True)
    assert len(set(near)) > 1
    assert len(set(fit)) > 1


def test_the_model_is_chosen_by_task(
    elf: Elf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def load(model: str, *_: str) -> FakeEngine:
        asked.append(model)
        return FakeEngine(answer=[TINY_VOCAB])

    monkeypatch.setattr(cli_edit, "load_engine", load)
    only = LayoutSpec(lengths=(64,), tasks={"translate": 7}, sep_id=4)
    models = tmp_path / "home" / "models"
    tiny_model_dir(models, name="de-en", layout=only)
    tiny_model_dir(models, name="deaf", layout=only, encoder=False)
    for args in (["translate", "Haus"], ["draft", "A"], ["rewrite", "A", "--model", "de-en"]):
        assert elf(*args).exit_code == 0
    assert asked == ["de-en", "starter", "de-en"]
    monkeypatch.setattr(model_dir, "BUNDLED", tmp_path / "none")
    result = elf("summarise", "A house.")
    assert result.exit_code == 2
    assert "no model here can summarise" in result.stderr
    assert "elf models pull ELF-B-xsum" in result.stderr


def test_compare_is_one_table_and_a_failing_column_stops_no_other(elf: Elf) -> None:
    args = ["compare", "Ein Haus.", "--with", "steps=2", "--with", "model=nope", "--with"]
    result = elf(*args, "guidance=900", "--vary", "steps=2,3", "--vary", "seed=1")
    assert result.exit_code == 0
    table = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in table] == [
        *("SETTINGS", "steps=2", "model=nope", "guidance=900"),
        *("steps=2,seed=1", "steps=3,seed=1"),
    ]
    assert table[2][1:3] == ["-", "failed:"]
    assert table[5][2:] == ["big", "red"]
    assert "elf: model=nope: no model 'nope'" in result.stderr
    assert "elf: guidance=900: guidance 900.0 is outside" in result.stderr


def test_compare_changes_only_the_spans_and_keeps_the_locks(elf: Elf) -> None:
    args = ["compare", "A tiny red house", "--span", "2:10", "--with", "steps=2", "--json"]
    (line,) = lines(elf(*args, "--editor", "rewrite", "--lock", "tiny"))
    assert line["results"][0]["text"] == "A tiny big red house"
    (line,) = lines(elf(*args, "--editor", "infill"))
    assert line["results"][0]["text"] == "A big red house"
    result = elf("compare", "A house", "--span", "2-7", "--with", "steps=2")
    assert (result.exit_code, "span '2-7' is not START:STOP" in result.stderr) == (2, True)


def test_compare_as_json_and_when_all_fail(elf: Elf) -> None:
    result = elf("compare", "A [[2]]", "--editor", "infill", "--with", "quality=0.5", "--json")
    (line,) = lines(result)
    assert (line["cell"], line["error"]) == ("quality=0.5", None)
    assert line["results"][0]["settings"]["guidance"] == 2.0
    result = elf("compare", "no gap", "--editor", "infill", "--with", "steps=2", "--json")
    assert result.exit_code == 2
    assert "no gap" in lines(result)[0]["error"]
