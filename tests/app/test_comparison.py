"""Comparisons without a page: what is compared, run, counted and written to files."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from app.comparison import (
    MOST_COLUMNS,
    Answer,
    CompareRun,
    Comparison,
    columns_of,
    grid_of,
    setting_name,
)
from app.comparison_export import as_csv, as_jsonl, as_markdown, counts_records, records
from app.comparison_tally import Tally
from app.service import MOST_WAITING, Service
from app.store import Store
from app.tabs.compare_html import base_choices, comparison_html
from editors.compare import Cell
from editors.request import EditRequest, EditResult
from elf_engine.errors import ElfError
from tests.app.fake import FakeWorld

HOSTILE = "=cmd|' /C calc'!A0\n| **b** | <img src=x onerror=alert(1)> `x` &amp;"
BASE = Cell("starter", "torch", knobs={"seed": 3})


def result(text: str, model: str = "starter") -> EditResult:
    return EditResult(text, 3, 0, "translate", HOSTILE, model, "h", "torch", {"steps": 4}, 1.0)


def made(*texts: str, blind: bool = False) -> Comparison:
    cells = [Cell("starter", "torch", knobs={"steps": i}) for i in range(1, len(texts) + 1)]
    answers = [Answer(c, setting_name(c), "ready", results=[result(t)], ids=[None])
               for c, t in zip(cells, texts, strict=True)]  # fmt: skip
    return Comparison(EditRequest("translate", HOSTILE), answers, blind=blind)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    world, store = FakeWorld(), Store(tmp_path / "history.db")
    world.names = ("starter", "other", "only-draft")
    made = Service(world.runtime(), store)
    yield made
    made.close()
    store.close()


def test_a_grid_is_all_pairs_over_the_base() -> None:
    request = EditRequest("translate", "Ein Haus.")
    base = Cell("starter", "torch", 0.25, {"seed": 3, "steps": 99})
    grid = grid_of(request, base, ("steps", "2, 4 ,2"), ("model", "a,b"))
    assert (grid.rows, grid.columns) == (("steps 2", "steps 4"), ("model a", "model b"))
    cells = [answer.cell for answer in grid.answers]
    assert [(c.knobs["steps"], c.model) for c in cells] == list(itertools.product((2, 4), "ab"))
    assert {(c.backend, c.quality, c.knobs["seed"]) for c in cells} == {("torch", 0.25, 3)}
    by_quality = grid_of(request, BASE, ("quality", "0,1"), ("gamma", "1"))
    assert [a.cell.quality for a in by_quality.answers] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("down", "across", "words"),
    [
        (("steps", "1,2"), ("steps", "3"), "both sides of the grid vary 'steps'"),
        (("steps", " , "), ("gamma", "3"), "steps has 0 values"),
        (("gamma", "1"), ("steps", "1,2,3,4,5"), "steps has 5 values"),
        (("condition_guidance", "1,2,3,4,5,6,7"), ("steps", "1"), "condition guidance has 7"),
        (("steps", "many"), ("gamma", "1"), "steps 'many' is no whole number"),
        (("pickle", "1"), ("gamma", "1"), "knob 'pickle' is unknown"),
    ],
)
def test_a_grid_that_is_none(down: tuple[str, str], across: tuple[str, str], words: str) -> None:
    with pytest.raises(ElfError, match=words):
        grid_of(EditRequest("translate", "x"), BASE, down, across)


def test_blind_orders_differ_and_nothing_tells_which_is_which() -> None:
    cells = [Cell(name, "torch") for name in ("wren", "robin", "finch", "heron")]
    request = EditRequest("translate", "x")
    orders = set()
    for _ in range(60):
        comparison = columns_of(request, cells, blind=True)
        orders.add(tuple(a.name for a in comparison.answers))
        for answer in comparison.answers:
            answer.state, answer.results, answer.ids = (
                "ready",
                [result("t", answer.cell.model)],
                [None],
            )
        comparison.answers[0].state, comparison.answers[0].error = "failed", "wren cannot"
        shown = comparison_html(comparison, "nothing")
        assert not re.search("wren|robin|finch|heron|seed|steps", shown)
    assert len(orders) > 5
    comparison.revealed = True
    assert all(name in comparison_html(comparison, "nothing") for name in ("wren", "heron"))


def run_all(run: CompareRun) -> None:
    run.start()
    while not run.over:
        run.advance()


def test_more_answers_than_may_wait_all_come(service: Service) -> None:
    comparison = grid_of(
        EditRequest("translate", "Ein Haus."), BASE, ("steps", "1,2,3,4,5,6"), ("gamma", "0,1,2,3")
    )
    assert len(comparison.answers) > MOST_WAITING
    run_all(CompareRun(service, comparison, "me"))
    assert {a.state for a in comparison.answers} == {"ready"}
    for answer in comparison.answers:
        (found,) = answer.results
        assert found.settings["steps"] == answer.cell.knobs["steps"]
        assert found.settings["gamma"] == answer.cell.knobs["gamma"]
        assert found.settings["seed"] == 3


def test_each_failure_is_its_own(service: Service) -> None:
    cells = [
        Cell("gone", "torch"),
        Cell("only-draft", "torch"),
        Cell("starter", "tpu"),
        Cell("starter", "torch", 0.5),
    ]
    comparison = columns_of(EditRequest("translate", "Ein Haus."), cells)
    run_all(CompareRun(service, comparison, "me"))
    errors = [a.error for a in comparison.answers]
    assert [a.state for a in comparison.answers] == ["failed"] * 3 + ["ready"]
    assert "model 'gone' is not installed" in errors[0]
    assert "not trained to translate; starter, other can" in errors[1]
    assert "backend 'tpu'" in errors[2]
    assert comparison.answers[3].results[0].settings["steps"] == 48


def test_cancel_before_the_start_runs_nothing(service: Service) -> None:
    comparison = columns_of(EditRequest("translate", "x"), [BASE] * MOST_COLUMNS)
    run = CompareRun(service, comparison, "me")
    run.cancel()
    run_all(run)
    assert {a.state for a in comparison.answers} == {"stopped"}
    assert not any(a.results for a in comparison.answers)


def test_files_hold_texts_that_nothing_runs() -> None:
    comparison = made(HOSTILE, "plain")
    comparison.preferred = (0, 0)
    rows = records(comparison)
    assert [json.loads(line)["text"] for line in as_jsonl(rows).splitlines()] == [HOSTILE, "plain"]
    read = list(csv.DictReader(io.StringIO(as_csv(rows).removeprefix("\ufeff"))))
    assert [row["text"] for row in read] == ["'" + HOSTILE, "plain"]
    assert not any(cell.startswith(tuple("=+-@")) for row in read for cell in row.values())
    shown = MarkdownIt("commonmark").enable("table").render(as_markdown(rows))
    assert "<img" not in shown
    assert "<strong>b" not in shown
    assert shown.count("<tr>") == 3, "a bar or line break in a text makes no cell or row"
    assert shown.count("<td>") == 2 * shown.count("<th>")


def test_hidden_names_are_not_exported() -> None:
    with pytest.raises(ElfError, match="still hidden"):
        records(made("a", "b", blind=True))


def test_an_answer_without_text_is_a_row_too() -> None:
    comparison = made("a", "b")
    comparison.answers[1] = Answer(BASE, "x", "failed", error="it broke")
    assert [(r["answer"], r["error"]) for r in records(comparison)] == [
        ("A", ""),
        ("B", "it broke"),
    ]


def test_a_ballot_moves_and_is_taken_back() -> None:
    tally, comparison = Tally(), made("a", "b", blind=True)
    comparison.preferred, comparison.unseen = (1, 0), True
    tally.vote(1, comparison)
    assert tally.counts(hidden=1) == [], "the count would tell whose it is"
    assert [vars(c) for c in tally.counts()] == [
        {"setting": "starter, torch, steps 2", "compared": 1, "preferred": 1, "blind": 1},
        {"setting": "starter, torch, steps 1", "compared": 1, "preferred": 0, "blind": 0},
    ]
    comparison.preferred, comparison.unseen = (0, 0), False
    tally.vote(1, comparison)
    assert [(c.setting[-1], c.preferred, c.blind) for c in tally.counts()] == [
        ("1", 1, 0),
        ("2", 0, 0),
    ]
    comparison.preferred = None
    tally.vote(1, comparison)
    with pytest.raises(ElfError, match="nothing was preferred"):
        counts_records(tally.counts())


def test_every_text_of_the_table_is_escaped() -> None:
    comparison = made(HOSTILE, "plain <b>")
    comparison.answers[0].name = HOSTILE
    comparison.answers[0].notes.append(HOSTILE)
    comparison.answers.append(Answer(BASE, HOSTILE, "failed", error=HOSTILE))
    for base in base_choices(comparison):
        shown = comparison_html(comparison, base)
        assert "<img" not in shown
        assert "<b>" not in shown
