"""Sweeps, suites, calibrations and the page of results, on a fake engine and a small corpus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation import calibrate, results, sweep
from app.evaluation.config import read_yaml
from app.evaluation.figures import lines
from app.evaluation.report import report
from editors import calibration
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from tests.evaluation.common import ManyFake
from tests.fakes import tiny_config

Command = Callable[..., Result]


def score(value: float, better: int = 1) -> dict[str, Any]:
    return {
        "value": value,
        "low": value * 0.9,
        "high": value * 1.1,
        "n": 8,
        "better": better,
        "unit": "",
    }


def point(quality: float, variety: float, **settings: Any) -> dict[str, Any]:
    """One measured point: perplexity and distinct pairs."""
    scores = {"ppl:4-gram": score(quality, -1), "distinct_2": score(variety)}
    return {"settings": settings, "scores": scores, "samples": 8, "failed": 0, "seconds": 0.5}


def sweep_result(name: str, figure: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    facts = {"command": f"elf-eval sweep s.yml --only {name}", "seed": 3, "git": "abc1234567"}
    facts |= {"machine": "2 cores, 24 GiB, x86_64", "model": "tiny", "model_hash": "f" * 16}
    facts |= {"split": "test", "limit": 8, "task": "unconditional", "base": {}}
    return {"kind": "sweep", "name": name, "figure": figure, "points": points, **facts}


FIGURES = {
    "frontier": [point(90 - 9 * w, 0.9 - 0.1 * w - g / 9, guidance=w, gamma=g)
                 for w in range(4) for g in (0.5, 1.0)],
    "steps": [point(100 / n, 0.5, steps=n, sampler=s) for s in ("ode", "sde") for n in (4, 8, 16)],
    "gamma": [point(50 + g, 0.5, gamma=g) for g in (0.0, 1.0, 2.0)],
    "grid": [point(100 / n, 0.5, steps=n, grid=g) for g in ("uniform", "quantile") for n in (4, 8)],
    "strength": [point(50 + g, 0.5, strength=g) for g in (0.25, 0.5, 1.0)],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Result files of every kind of figure, and of a suite."""
    for figure, points in FIGURES.items():
        name = f"drafts-{figure}"
        results.save(tmp_path / "results" / f"{name}.json", sweep_result(name, figure, points))
    table = {"title": "Drafts", "header": ["text", "ppl", "words"]}
    table |= {"rows": [["model | a", score(12.5), 7.25]], "note": "Few."}
    facts = sweep_result("tiny", "steps", []) | {"kind": "suite", "tables": [table]}
    results.save(tmp_path / "results" / "suite-tiny.json", facts)
    return tmp_path / "results"


def test_the_page_holds_every_result_and_its_command(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    written = report(folder, page)
    text = page.read_text("utf-8")
    for figure in FIGURES:
        assert f"elf-eval sweep s.yml --only drafts-{figure}" in text
        assert f"](results/drafts-{figure}.png)" in text
        assert {folder / f"drafts-{figure}.{kind}" for kind in ("png", "svg")} <= set(written)
    assert "| model \\| a | 12.5 (11.25 to 13.75) | 7.25 |" in text
    assert "seed 3; revision abc1234567; 2 cores, 24 GiB" in text
    assert all(file.stat().st_size > 1000 for file in written if file != page)


def test_the_same_results_give_the_same_files(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    first = {file: file.read_bytes() for file in report(folder, page)}
    assert {file: file.read_bytes() for file in report(folder, page)} == first


def test_figures_read_without_colour(folder: Path, tmp_path: Path) -> None:
    report(folder, tmp_path / "results.md")
    svg = (folder / "drafts-steps.svg").read_text("utf-8")
    colours = set(re.findall(r"#[0-9a-f]{6}\b", svg))
    assert colours
    assert all(c[1:3] == c[3:5] == c[5:7] for c in colours)
    # Two lines: two markers, two dashes.
    assert len(set(re.findall(r"stroke-dasharray: ([0-9. ,]+)", svg))) >= 1
    assert [len(found) for found in lines(FIGURES["steps"], "steps").values()] == [3, 3]


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 9}', '{"format": 1, "kind": "x"}'])
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ElfError, match=r"bad\.json"):
        report(tmp_path, tmp_path / "page.md")
    with pytest.raises(ElfError, match="no result file"):
        report(tmp_path / "empty", tmp_path / "page.md")


POINTS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 64)), min_size=1, max_size=12
)


@given(POINTS)
def test_the_frontier_is_what_nothing_beats(found: list[tuple[int, int, int]]) -> None:
    points = [point(10.0 * q, v / 10, guidance=1.0, steps=n) for q, v, n in found]
    kept = calibrate.frontier(points)
    places = [
        (p["scores"]["ppl:4-gram"]["value"], p["scores"]["distinct_2"]["value"]) for p in kept
    ]
    for q, v in places:
        assert not any(10.0 * a <= q and b / 10 > v for a, b, _ in found)
        assert not any(10.0 * a < q and b / 10 >= v for a, b, _ in found)
    # From most varied to best, both strictly.
    assert [p[0] for p in places] == sorted({p[0] for p in places}, reverse=True)
    assert [p[1] for p in places] == sorted({p[1] for p in places}, reverse=True)
    settings, measured = calibrate.slider(points)
    positions = [p["quality"] for p in settings]
    assert positions == [p["quality"] for p in measured] == sorted(set(positions))
    assert positions[-1] == 1
    assert len(positions) == 1 or positions[0] == 0


def test_a_calibration_is_read_by_the_slider_and_the_page(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    ode = SampleSpec(steps=4, sampler="ode")
    engine.config = tiny_config(defaults={"translate": ode})
    engine.path = tmp_path / "model"
    engine.path.mkdir()
    more = ("--quick", "-n", 4, "--data", corpus, "--samples", tmp_path / "s")
    made = elf_eval("calibrate", "tiny", *more, "--only", "draft", "--only", "translate")
    assert made.exit_code == 0, made.output
    table = calibration.measured(engine.path)
    assert table is not None
    assert set(table) == {"draft", "translate"}
    assert "gamma" not in table["translate"][0]
    for editor, points in table.items():
        shown = calibration.measurements(engine.path, editor)
        assert [p["quality"] for p in points] == [p["quality"] for p in shown]
        assert shown[0]["seconds"] >= 0
        assert "distinct_2" in shown[0]
        calibration.settings(engine, editor, 0.5)
    content = json.loads((engine.path / calibration.FILE).read_text("utf-8"))
    assert content["provenance"]["model_hash"] == engine.model_hash
    assert calibration.measurements(engine.path, "infill") == []
    # Another task later leaves these as they are.
    assert elf_eval("calibrate", "tiny", *more, "--only", "modernise").exit_code == 0
    again = calibration.measured(engine.path)
    assert again is not None
    assert again["draft"] == table["draft"]
    assert "modernise" in again


def test_a_sweep_file_becomes_results_and_a_page(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "s.yml").write_text(
        "limit: 4\nsweeps:\n"
        "  guided: {task: unconditional, metrics: [ppl, distinct], grid: {guidance: [0, 1]}}\n"
        "  kept: {task: rewrite, figure: strength, metrics: [chrf],"
        " settings: {steps: 4}, grid: {strength: [0.5, 1.0]}}\n"
    )
    more = ("--samples", tmp_path / "s", "--results", tmp_path / "r", "--data", corpus)
    assert elf_eval("sweep", tmp_path / "s.yml", *more).exit_code == 0
    guided = results.load(tmp_path / "r" / "guided.json")
    assert [p["settings"] for p in guided["points"]] == [{"guidance": 0}, {"guidance": 1}]
    assert guided["points"][0]["samples"] == 4
    kept = results.load(tmp_path / "r" / "kept.json")["points"]
    assert all(0 < p["scores"]["chrf"]["value"] < 100 for p in kept)
    page = ("report", "--results", tmp_path / "r", "--page", tmp_path / "results.md")
    assert elf_eval(*page).exit_code == 0
    assert "](r/kept.png)" in (tmp_path / "results.md").read_text("utf-8")
    assert "no sweep 'x'" in elf_eval("sweep", tmp_path / "s.yml", "--only", "x", *more).stderr


def test_the_sweeps_of_the_results_are_well_formed() -> None:
    file = Path(__file__).parents[2] / "docs" / "results" / "sweeps.yml"
    config = sweep.read_config(read_yaml(file), file.name)
    assert {s.figure for s in config.sweeps.values()} == set(sweep.FIGURES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"sweeps": {}}, "sweeps is empty"),
        ({"sweeps": {"a": {"task": "sing", "grid": {}}}}, "task 'sing'"),
        ({"sweeps": {"a": {"task": "infill", "grid": {"steps": [0]}}}}, "outside 1 to 1000"),
        ({"sweeps": {"a": {"task": "infill", "grid": {}, "figure": "pie"}}}, "figure 'pie'"),
        ({"swepes": {}}, "did you mean 'sweeps'"),
    ],
)
def test_a_bad_sweep_file_is_one_line(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ElfError, match=message) as error:
        sweep.read_config(content, "s.yml")
    assert "\n" not in str(error.value)


def test_the_suite_measures_every_task(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r" / "suite.json"
    more = ("--data", corpus, "--samples", tmp_path / "s", "--results", out, "--set", "steps=2")
    made = elf_eval("suite", "tiny", "--split", "test", "-n", 9, *more)
    assert made.exit_code == 0, made.output
    titles = [table["title"] for table in results.load(out)["tables"]]
    assert titles == [
        *("German to English", "German to English by tier", "Summaries", "Summaries by tier"),
        *("Archaic to modern English", "Infills"),
        *("Infills by words masked: masked tokens named", "Drafts"),
    ]
    for title in titles:
        assert f"### {title}" in made.stdout
    tables = {table["title"]: table for table in results.load(out)["tables"]}
    human = next(row for row in tables["Drafts"]["rows"] if row[0] == "held-out human text")
    model = next(row for row in tables["Drafts"]["rows"] if row[0] == "model")
    assert human[1]["value"] < model[1]["value"]
    copy = next(r for r in tables["Archaic to modern English"]["rows"] if "copy" in r[0])
    assert copy[1]["value"] > 20
    # What is there is not sampled again.
    calls = len(engine.calls)
    assert elf_eval("suite", "tiny", "--split", "test", "-n", 9, *more).exit_code == 0
    assert len(engine.calls) == calls
