"""The load run: everyone asks for something else, and is told of errors and starvation."""

from __future__ import annotations

import pytest

from app.service import KEPT_ENGINES
from benchmarks import load
from tests.app.fake import FakeWorld


def test_people_differ() -> None:
    asked = [load.request(person, turn) for person in range(20) for turn in range(3)]
    assert len({(r.text, r.settings) for r in asked}) == 60


def test_the_table_and_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "real_runtime", lambda: FakeWorld().runtime())
    given = ["--people", "3", "--seconds", "0.2", "--switches", "2"]
    assert load.main(given) == 0
    out = capsys.readouterr().out
    assert "| errors | 0 |" in out
    assert "MiB after 1 / 2 switches" in out


def test_an_error_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_TEXTS", ("boom",))
    monkeypatch.setattr(load, "real_runtime", lambda: FakeWorld().runtime())
    rows, good = load.measure("torch", 2, 0.1)
    assert not good
    assert dict(rows)["errors"] > 0


def test_each_switch_loads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWorld()
    monkeypatch.setattr(load, "real_runtime", fake.runtime)
    assert len(load.switches("torch", 4)) == 4
    assert len(fake.loaded) == KEPT_ENGINES + 4
