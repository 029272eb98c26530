"""The command line on a fake engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app import cli_edit
from app.cli import cli
from elf_engine.errors import ElfError
from tests.cli.common import Elf
from tests.fakes import TINY_VOCAB, WORDS, FakeEngine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    """Every command gets this engine, which writes " big red", and a history of its own."""
    made = FakeEngine(answer=[TINY_VOCAB + WORDS.index(" big"), TINY_VOCAB + WORDS.index(" red")])

    def load(model: str, backend: str, dtype: str = "float32") -> FakeEngine:
        if model != "starter":
            raise ElfError(f"no model '{model}'")
        return made

    monkeypatch.setattr(cli_edit, "load_engine", load)
    monkeypatch.setenv("ELF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ELF_DATABASE_URL", raising=False)
    return made


@pytest.fixture
def elf(engine: FakeEngine) -> Elf:
    def run(*args: str, stdin: bytes | str | None = None) -> Result:
        return CliRunner().invoke(cli, list(args), input=stdin)

    return run
