"""`elf models` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.models_cmd import models
from elf_engine import model_dir
from elf_engine.errors import ElfError
from tests.checkpoints import makers
from tests.fakes import tiny_model_dir


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(model_dir, "BUNDLED", tmp_path / "assets")
    tiny_model_dir(tmp_path / "assets", name="starter")
    return tmp_path / "home"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(models, [str(a) for a in arguments])


def output(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exception is None
    return result.stdout


def test_list_shows_bundled_installed_and_published(home: Path) -> None:
    tiny_model_dir(home / "models", name="mine")
    broken = tiny_model_dir(home / "models", name="broken")
    (broken / "config.json").write_text("{")
    rows = [json.loads(line) for line in output("list", "--json").splitlines()]
    by_name = {row["name"]: row for row in rows}
    assert by_name["starter"]["where"] == "bundled"
    assert by_name["mine"]["where"] == str(home / "models" / "mine")
    assert by_name["broken"]["task"] == "broken"
    assert by_name["ELF-L-owt"]["size"] == "652M"
    assert by_name["ELF-B-de-en"]["task"] == "translate"
    table = output("list").splitlines()
    assert table[0].split() == ["NAME", "SIZE", "TASK", "WHERE"]
    assert len(table) == len(rows) + 1


def test_show_prints_configuration_and_card(home: Path) -> None:
    text = output("show", "starter")
    assert model_dir.model_hash(model_dir.find("starter"))[:12] in text
    assert "# starter" in text
    config = json.loads(output("show", "starter", "--json"))
    assert config["network"]["hidden"] == 32
    assert "elf models pull ELF-B-xsum" in output("show", "ELF-B-xsum")
    assert isinstance(run("show", "nothing").exception, ElfError)


def test_convert_then_list_and_show(home: Path, tmp_path: Path) -> None:
    weights = makers.network()
    source = makers.write_msgpack(tmp_path / "checkpoint_5", makers.train_state(weights, weights))
    target = home / "models" / "own"
    said = output(
        "convert", source, target, "--name", "own", "--task", "de-en", "--dtype", "float16"
    )
    assert said == f"own is in {target}; no encoder, it cannot read text; no tokenizer\n"
    assert "translate" in output("list")
    encoder = makers.write_pickle(tmp_path / "t5.pkl", makers.encoder())
    said = output("convert", source, target, "--name", "own", "--encoder", encoder)
    assert said == f"own is in {target}; no tokenizer\n"
    assert "encoder yes" in output("show", "own")


def test_mistakes_are_one_line_errors(tmp_path: Path) -> None:
    for arguments in (
        ("convert", tmp_path / "nothing", tmp_path / "m"),
        ("pull", "ELF-Z-owt"),
        ("pull", "ELF-B-owt"),
    ):
        error = run(*arguments).exception
        assert isinstance(error, ElfError)
        assert "\n" not in str(error)
