"""`elf` runs every editor on the bundled model, on both backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app import cli_edit
from app.cli import cli
from elf_engine.pipeline import Engine

COMMANDS = [
    ["draft", "The old house"],
    ["infill", "The [[1-3]] house."],
    ["infill", "😀 The big house.", "--span", "6:9"],
    ["rewrite", "The old house stands there.", "--lock", "house"],
    ["rewrite", "Thou art come at last.", "--style", "modern"],
    ["translate", "Das ist ein altes Haus."],
    ["summarise", "The old house stood on the hill. Nobody had lived there for years."],
    ["modernise", "Wherefore dost thou weep?"],
]


@pytest.fixture(scope="module", params=["jax", "torch"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine.load("starter", backend=request.param)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_editor_on_the_bundled_model(
    engine: Engine, command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load(model: str, backend: str, dtype: str = "float32") -> Any:
        assert (model, backend, dtype) == ("starter", engine.backend.name, "float32")
        return engine

    monkeypatch.setattr(cli_edit, "load_engine", load)
    monkeypatch.setenv("ELF_HOME", str(tmp_path))
    args = ["--backend", engine.backend.name, "--steps", "4", "--json", "--repeats"]
    done = CliRunner().invoke(cli, [*command, *args])
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout)
    assert (line["backend"], line["model"]) == (engine.backend.name, "starter")
    assert line["settings"]["effective_steps"] in (2, 4)
    assert all(command[1][c["start"] : c["stop"]] == c["before"] for c in line["changes"])
