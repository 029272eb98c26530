"""`elf-eval score` as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from app.evaluation import scoring
from elf_engine import model_dir
from elf_engine.metrics import perplexity
from elf_engine.metrics.estimate import estimate
from tests.evaluation.common import write_jsonl
from tests.golden.archive import read_json

Command = Callable[..., Result]
GOLDEN = Path(__file__).parents[1] / "golden" / "files" / "metrics.json"


def files(tmp_path: Path, **change: Any) -> tuple[Path, Path]:
    """The reference file's hypotheses and references as JSONL."""
    stored = read_json(GOLDEN)
    generated = [{"id": k, "generated": t} for k, t in enumerate(stored["hypotheses"])]
    outputs = [{"id": f"{k}", "output": t} for k, t in enumerate(stored["references"])]
    rows = {"generated": generated, "references": outputs}
    return (
        write_jsonl(tmp_path / "g.jsonl", rows["generated"] + change.get("generated", [])),
        write_jsonl(tmp_path / "r.jsonl", rows["references"] + change.get("references", [])),
    )


def test_published_files_give_the_published_scores(elf_eval: Command, tmp_path: Path) -> None:
    generated, references = files(tmp_path, references=[{"id": "9", "output": "x", "input": "y"}])
    more = ("-g", generated, "-r", references, "--metrics", "bleu,rouge", "--resamples", 20)
    found = json.loads(elf_eval("score", *more, "--json").stdout)
    stored = read_json(GOLDEN)
    assert found["metrics"]["bleu"]["value"] == pytest.approx(stored["bleu"])
    for name, value in stored["rouge"].items():
        assert found["metrics"][name]["value"] == pytest.approx(value)
        facts = found["metrics"][name]
        assert facts["low"] <= value <= facts["high"]
    assert found["references_without_generation"] == 1
    shown = elf_eval("score", *more)
    assert "1 references have no generation" in shown.stderr
    assert "| bleu | 16.62" in shown.stdout


BAD: list[tuple[dict[str, Any], str]] = [
    ({"generated": [{"id": "77", "generated": "x"}]}, "id '77' is not among the references"),
    ({"generated": [{"id": "3", "generated": "x"}]}, "id '3' is doubled"),
    ({"references": [{"id": 2, "output": "x"}]}, "id '2' is doubled"),
    ({"generated": [{"generated": "x"}]}, "expected an 'id'"),
    ({"generated": [{"id": True, "generated": "x"}]}, "expected an 'id'"),
    ({"generated": [{"id": "8"}]}, "id '8' has no text in 'generated'"),
    ({"references": [{"id": "8", "generated": "x"}]}, "id '8' has no text in 'output'"),
    ({"generated": [["id", "8"]]}, "expected a JSON object"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_faults_are_named(
    elf_eval: Command, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    generated, references = files(tmp_path, **change)
    result = elf_eval("score", "-g", generated, "-r", references, "--json")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metrics", "blue"), "metric 'blue' is unknown"),
        (("--metrics", ","), "no metric is named"),
        (("--metrics", "bleu"), "needs references"),
        (("--metrics", "ppl"), "name one with --scorer"),
        (("--metrics", "ppl", "--scorer", "bundled"), "no scoring model is bundled"),
        (("--metrics", "ppl", "--scorer", "./nowhere"), "no causal language model"),
        (("--metrics", "entropy", "--tokens", "nowhere"), "nowhere"),
        (("--metrics", "copies", "--data", "nowhere"), "point --data"),
    ],
)
def test_metrics_that_cannot_be_had(
    elf_eval: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr("elf_engine.metrics.decoder.BUNDLED", tmp_path / "nothing")
    generated, _ = files(tmp_path)
    result = elf_eval("score", "-g", generated, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_not_json_and_not_there(elf_eval: Command, tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_bytes(b'{"id": 1, "generated": "\xff"}\n')
    for name in ("g.jsonl", "absent.jsonl"):
        result = elf_eval("score", "-g", tmp_path / name)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    (tmp_path / "g.jsonl").write_text("\n \n")
    assert "there are no rows" in elf_eval("score", "-g", tmp_path / "g.jsonl").stderr


def test_two_systems_are_compared_on_the_same_ids(elf_eval: Command, tmp_path: Path) -> None:
    generated, references = files(tmp_path)
    outputs = [json.loads(line)["output"] for line in references.read_text("utf-8").splitlines()]
    rows = [{"id": k, "generated": text} for k, text in enumerate(outputs)]
    best = write_jsonl(tmp_path / "best.jsonl", rows[::-1])
    more = ("score", "-r", references, "--metrics", "chrf,bleu", "--json")
    found = json.loads(elf_eval(*more, "-g", best, "--against", generated).stdout)["against"]
    assert found["bleu"]["difference"] == pytest.approx(100 - found["bleu"]["other"])
    assert found["chrf"]["low"] > 0
    assert found["chrf"]["p"] < 0.1
    few = write_jsonl(tmp_path / "few.jsonl", rows[:3])
    refused = elf_eval(*more, "-g", best, "--against", few)
    assert "id '3' is in only one of the two" in refused.stderr


def test_a_score_of_nothing_is_null(elf_eval: Command, corpus: Path, tmp_path: Path) -> None:
    generated = write_jsonl(tmp_path / "g.jsonl", [{"id": 0, "generated": ""}])
    more = ("--metrics", "distinct,repetition,self-bleu,entropy", "--json")
    found = json.loads(elf_eval("score", "-g", generated, *more).stdout)["metrics"]
    assert {facts["value"] for facts in found.values()} == {0}
    empty = scoring.plain(estimate(perplexity.perplexity("ppl", [0.0], [0.0]), 10))
    assert (empty["value"], empty["low"]) == (None, None)


def test_groups_split_the_whole(elf_eval: Command, tmp_path: Path) -> None:
    rows = [
        {"id": k, "generated": f"a {k}", "reference": f"a {k % 3}", "group": f"tier {k % 2}"}
        for k in range(10)
    ]
    generated = write_jsonl(tmp_path / "g.jsonl", rows)
    more = ("-g", generated, "--metrics", "exact", "--by-group", "--json")
    found = json.loads(elf_eval("score", *more).stdout)
    groups = found["groups"]
    assert {name: facts["samples"] for name, facts in groups.items()} == {"tier 0": 5, "tier 1": 5}
    values = [facts["metrics"]["exact"]["value"] for facts in groups.values()]
    assert found["metrics"]["exact"]["value"] == pytest.approx(sum(values) / 2)


def test_the_ngram_scorer_reads_the_training_split(
    elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    rows = [{"id": 0, "generated": "The big house was number 3 on the long list today."}]
    like = write_jsonl(tmp_path / "a.jsonl", rows)
    unlike = write_jsonl(tmp_path / "b.jsonl", [{"id": 0, "generated": "today long 3 the on was"}])
    more = ("--metrics", "ppl,copies", "--scorer", "ngram", "--data", corpus, "--json")
    found = [
        json.loads(elf_eval("score", "-g", f, *more).stdout)["metrics"] for f in (like, unlike)
    ]
    assert found[0]["ppl:4-gram"]["value"] < found[1]["ppl:4-gram"]["value"] / 3
    assert found[1]["copied_8gram"]["value"] == 0


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from app.evaluation.cli import cli\n"
        "try: cli(['score', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'jax', 'transformers', 'gradio', 'matplotlib', 'sacrebleu',"
        " 'sqlalchemy', 'tokengrams'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "--references" in ran.stdout


def test_the_default_scorer_and_model_are_named() -> None:
    assert perplexity.DEFAULT == "openai-community/gpt2-large"
    assert "starter" in model_dir.bundled()
