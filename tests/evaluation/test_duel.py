"""A duel of tiny models, from samples to the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.evaluation.common import read_jsonl, tiny_decoder_dir
from tests.fakes import tiny_model_dir

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return tiny_model_dir(folder), tiny_decoder_dir(folder)


def test_a_duel_ends_on_the_page(
    elf_eval: Command, models: tuple[Path, Path], corpus: Path, tmp_path: Path
) -> None:
    file, samples = tmp_path / "results" / "duel.json", tmp_path / "samples"
    common = (
        *models, "-n", 6, "--only", "translate", "--only", "drafts", "--steps", "2,1",
        "--split", "test", "--data", corpus,
        "--training-limit", 200, "--results", file, "--samples", samples,
    )  # fmt: skip
    made = elf_eval("duel", *common)
    assert made.exit_code == 0, made.output
    result = json.loads(file.read_text())
    titles = [table["title"] for table in result["tables"]]
    assert titles[:3] == ["The two models", "German to English", "German to English by tier"]
    assert titles[3:] == ["Drafts"]
    systems = [row[0] for row in result["tables"][1]["rows"]]
    drawn = ["AR, drawn", "AR, drawn of the likeliest 90 %"]
    assert systems == ["ELF, 1 step", "ELF, 2 steps", "AR, likeliest", *drawn]
    drafts = next(table for table in result["tables"] if table["title"] == "Drafts")
    assert [row[0] for row in drafts["rows"]] == [*systems[:2], *drawn, "held-out human text"]
    assert [f["part"] for f in result["figures"]] == ["translate", "drafts"]
    assert len(list(samples.rglob("*.jsonl"))) == 5 + 4
    inputs = {tuple(r["id"] for r in read_jsonl(p)) for p in samples.glob("translate/*")}
    assert len(inputs) == 1

    page = tmp_path / "results.md"
    shown = elf_eval("report", "--results", file.parent, "--page", page)
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    for part in ("translate", "drafts"):
        picture = f"{result['name']}-{part}.png"
        assert f"(results/{picture})" in text
        assert (file.parent / picture).stat().st_size > 1000
    assert "paired p" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": (0, 0)}, "holds no autoregressive model"),
        ({"models": (1, 1)}, "the first model is an ELF one"),
        ({"--steps": "2,x"}, "steps"),
        ({"--steps": "0"}, "steps 0"),
        ({"--only": "poems"}, "part 'poems' is unknown"),
        ({"--scorer": 1}, "no judge of itself"),
    ],
)
def test_what_no_duel_can_be_of(
    elf_eval: Command,
    models: tuple[Path, Path],
    corpus: Path,
    tmp_path: Path,
    change: dict[str, object],
    said: str,
) -> None:
    first, second = change.pop("models", (0, 1))  # type: ignore[misc]
    options = [x for k, v in change.items() for x in (k, models[v] if isinstance(v, int) else v)]
    common = ("--data", corpus, "--samples", tmp_path, "--results", tmp_path / "r.json")
    result = elf_eval("duel", models[first], models[second], *options, *common)
    assert result.exit_code == 2
    assert said in result.output
    assert not list(tmp_path.rglob("*.json*"))
