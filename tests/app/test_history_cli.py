"""`elf history` on a fake engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app import cli_edit
from app.cli import cli
from app.records import Filter
from app.store import Store
from tests.fakes import TINY_VOCAB, WORDS, FakeEngine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    made = FakeEngine(answer=[TINY_VOCAB + WORDS.index(" big"), TINY_VOCAB + WORDS.index(" red")])
    monkeypatch.setattr(cli_edit, "load_engine", lambda *_: made)
    monkeypatch.setenv("ELF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ELF_DATABASE_URL", raising=False)
    return made


def elf(*args: str, stdin: bytes | str | None = None) -> Result:
    return CliRunner().invoke(cli, list(args), input=stdin)


def refused(*args: str, stdin: bytes | str | None = None) -> str:
    result = elf("history", *args, stdin=stdin)
    assert result.exit_code == 2
    assert result.stderr.startswith("elf: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def id(engine: FakeEngine) -> str:
    made = elf("infill", "A [[2]] house", "--json")
    return str(json.loads(made.stdout)["id"])


def test_search_star_tag_delete(id: str) -> None:
    assert id in elf("history", "search", "BIG", "house").stdout
    assert elf("history", "search", "green").stdout == ""
    assert elf("history", "star", id[:13]).exit_code == 0
    assert elf("history", "tag", id, "Blog", "two words").exit_code == 0
    (line,) = elf("history", "list", "--starred", "--tag", "blog").stdout.splitlines()
    assert "★ A big red house  #blog  #two words" in line
    assert elf("history", "tag", id, "blog", "--off").exit_code == 0
    assert elf("history", "list", "--tag", "blog").stdout == ""
    assert "1 result deleted" in elf("history", "delete", id).stderr
    assert elf("history", "list").stdout == ""
    assert id in elf("history", "list", "--deleted").stdout
    assert "1 result brought back" in elf("history", "undelete", id).stderr
    assert json.loads(elf("history", "search", "big", "--json").stdout)["starred"] is True
    assert "'soon' is no date" in refused("list", "--since", "soon")
    assert "no result 'zzz'" in refused("star", "zzz")


def test_export_and_import_give_the_same_history(id: str, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert elf("history", "export", str(file)).exit_code == 0
    text = elf("history", "export").stdout
    assert file.read_text("utf-8") == text
    assert "0 results added, 1 already there" in elf("history", "import", str(file)).stderr
    elf("history", "delete", id)
    assert elf("history", "export").stdout == ""
    assert id in elf("history", "export", "--all").stdout
    elf("history", "prune", "--deleted", "--yes")
    assert "1 result added" in elf("history", "import", "-", stdin=text).stderr
    assert elf("history", "export").stdout == text
    csv, md = tmp_path / "all.csv", tmp_path / "all.md"
    assert elf("history", "export", str(csv)).exit_code == 0
    assert csv.read_bytes().startswith(b'\xef\xbb\xbf"id","parent_id"')
    assert elf("history", "export", str(md)).exit_code == 0
    assert f"## {id}" in md.read_text("utf-8")


def test_files_that_cannot_be(id: str, tmp_path: Path) -> None:
    assert "cannot be read" in refused("import", str(tmp_path))
    assert "cannot be read" in refused("import", str(tmp_path / "none"))
    assert "line 1: not a line" in refused("import", "-", stdin=b"\x00\xff")
    assert "cannot be written" in refused("export", str(tmp_path / "none" / "x.jsonl"))
    kept = tmp_path / "kept.jsonl"
    kept.write_text("before")
    assert "'soon' is no date" in refused("export", str(kept), "--since", "soon")
    assert kept.read_text() == "before", "a failed export leaves the old file"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_verify_says_identical_different_or_impossible(
    id: str, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = elf("history", "verify", id)
    assert (result.exit_code, result.stdout) == (0, f"{id} identical\n")
    engine.answer.reverse()
    result = elf("history", "verify", id)
    assert result.exit_code == 1
    assert "[-" in result.stdout
    assert "{+" in result.stdout
    assert f"{id} is different" in result.stderr
    monkeypatch.setattr(engine, "model_hash", "0" * 64)
    assert "is not the model that made" in refused("verify", id)
    assert "no result" in refused("verify", "zzz")


def test_verify_makes_the_one_candidate_again(engine: FakeEngine) -> None:
    lines = elf("infill", "A [[2]] house", "-n", "3", "--seed", "7", "--repeats", "--json").stdout
    for line in lines.splitlines():
        assert elf("history", "verify", json.loads(line)["id"]).exit_code == 0


def test_another_precision_is_told_and_used_again(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(cli_edit, "load_engine", lambda *given: asked.append(given) or engine)
    made = json.loads(elf("infill", "A [[2]] house", "--dtype", "bfloat16", "--json").stdout)
    assert made["settings"]["dtype"] == "bfloat16"
    assert elf("history", "verify", made["id"]).exit_code == 0
    assert [given[2] for given in asked] == ["bfloat16", "bfloat16"]


def test_prune_counts_first_and_keeps_what_is_starred(id: str) -> None:
    assert "nothing says what" in refused("prune")
    for bad in ("30", "d", "-1d", "1y", "1.5d", ""):
        assert "age " in refused("prune", "--older-than", bad)
    assert "0 results would be" in elf("history", "prune", "--older-than", "1h").stderr
    assert "1 result would be" in elf("history", "prune", "--older-than", "0h").stderr
    assert id in elf("history", "list").stdout
    elf("history", "star", id)
    assert "0 results removed" in elf("history", "prune", "--older-than", "0h", "--yes").stderr
    gone = elf("history", "prune", "--older-than", "0h", "--with-starred", "--yes")
    assert "1 result removed" in gone.stderr
    assert elf("history", "list").stdout == ""


def test_the_place_of_the_history_must_be_one(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELF_DATABASE_URL", "garbage")
    assert "'garbage' is no database URL or path" in refused("list")
    monkeypatch.setenv("ELF_DATABASE_URL", "mysql://me:secret@here/there")
    assert "'mysql' is no database it can use" in refused("list")
    monkeypatch.setenv("ELF_DATABASE_URL", "garbage")
    result = elf("infill", "A [[2]] house")
    assert (result.exit_code, result.stdout) == (0, "A big red house\n")
    assert "not saved: history: 'garbage'" in result.stderr
    assert not (tmp_path / "garbage").exists()


def test_results_of_a_renamed_model_are_made_again_with_it(id: str) -> None:
    store = Store()
    found = store.get(id)
    store.prune(deleted_only=True)
    other = replace(found, id="abc", model="not-there")
    store.take([(other, [])])
    assert elf("history", "verify", "abc", "--model", "somewhere").exit_code == 0
    assert store.count(wanted=Filter(model="not-there")) == 1
    store.close()
