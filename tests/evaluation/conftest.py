"""A corpus for all tests, the command, and property tests without a deadline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from app.evaluation import command, devices, measure
from app.evaluation.cli import cli
from tests.evaluation.common import ManyFake, write_corpus

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ManyFake:
    """Every command gets this engine."""
    made = ManyFake()
    for module in (command, devices, measure):
        monkeypatch.setattr(module, "load_engine", lambda *_: made)
    return made


@pytest.fixture
def elf_eval() -> Callable[..., Result]:
    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(cli, [str(a) for a in arguments])

    return run
