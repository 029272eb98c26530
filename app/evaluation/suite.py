"""`elf-eval suite`: everything a model of the five tasks is measured by, in one run."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.evaluation import infills, results, rows, scoring
from app.evaluation.data import real_texts
from app.evaluation.generate import Job, generate
from app.evaluation.systems import write_system
from elf_engine.errors import ElfError
from elf_engine.metrics import diversity
from elf_engine.metrics.estimate import Measure, compare, estimate

SYSTEM_NAMES = {"model": "model", "copy": "copy of the source", "unigram": "unigram sampler"}
_PAIRS = {
    "translate": ("German to English", ("bleu", "chrf", "rougeL", "length_ratio")),
    "summarise": ("Summaries", ("rouge1", "rouge2", "rougeL", "bleu", "length_ratio")),
    "modernise": ("Archaic to modern English", ("bleu", "chrf", "exact", "length_ratio")),
}
PARTS = (*_PAIRS, "infill", "drafts")


@dataclass(frozen=True)
class Suite:
    """One run: the engine, where the corpus is, where samples go, and what judges them."""

    engine: Any
    job: Job
    data: Path
    folder: Path
    tools: scoring.Tools
    told: Callable[[str], None] = lambda line: None

    def file(self, task: str, system: str = "model") -> Path:
        """The samples of a task, made now unless they are there."""
        job = Job(**{**asdict(self.job), "task": task})
        out = self.folder / f"{task}.{system}.jsonl"
        if system == "model":
            generate(job, self.engine, self.data, out)
        else:
            write_system(system, job, self.data, out)
        self.told(f"{task}, {SYSTEM_NAMES[system]}: sampled")
        return out

    def texts(self, task: str, system: str = "model") -> rows.Texts:
        """The samples as texts, `limit` of them."""
        found = rows.match([self.file(task, system)])
        return scoring.only(found, range(min(len(found), self.job.limit)))

    def estimate(self, measure: Measure) -> dict[str, Any]:
        """A score with its interval."""
        return scoring.plain(estimate(measure, self.tools.resamples, self.tools.seed))


def run_suite(suite: Suite, parts: Sequence[str], command: str) -> dict[str, Any]:
    """The result file's content: the tables of `parts`, for the tasks the model has."""
    tasks = suite.engine.config.layout.tasks
    tables: list[dict[str, Any]] = []
    for part in parts:
        if part not in PARTS:
            raise ElfError(f"part '{part}' is unknown; use some of {', '.join(PARTS)}")
        needed = "draft" if part == "drafts" else part
        if needed not in tasks:
            suite.told(f"{part}: the model has no such task")
            continue
        make = _pair_tables if part in _PAIRS else _infill_tables if part == "infill" else _drafts
        tables += make(suite, part)
        suite.told(f"{part}: scored")
    if not tables:
        raise ElfError(f"model '{suite.engine.config.name}' has none of the tasks measured here")
    return {
        "kind": "suite",
        "name": suite.engine.config.name,
        "model": suite.engine.config.name,
        "model_hash": suite.engine.model_hash[:16],
        "split": suite.job.split,
        "limit": suite.job.limit,
        "tables": tables,
        **results.provenance(command, suite.job.seed),
    }


def _pair_tables(suite: Suite, task: str) -> list[dict[str, Any]]:
    """Model beside the two baselines, with paired tests against the copy; and by tier."""
    title, names = _PAIRS[task]
    texts = {system: suite.texts(task, system) for system in SYSTEM_NAMES}
    texts = {
        s: t if s == "model" else rows.same_order(texts["model"], t, s) for s, t in texts.items()
    }
    found = {s: _chosen(t, names, suite) for s, t in texts.items()}
    body = [[SYSTEM_NAMES[s], *(suite.estimate(m[n]) for n in names)] for s, m in found.items()]
    first = names[0]
    test = compare(found["model"][first], found["copy"][first], suite.tools.resamples)
    note = (
        f"{len(texts['model'])} samples. {first} of the model minus that of the copy: "
        f"{test.difference:.3g} ({test.low:.3g} to {test.high:.3g}), paired p {test.p:.3g}. "
        f"{_seconds(suite.folder / f'{task}.model.jsonl')} s a sample (median)."
    )
    tables = [{"title": title, "header": ["system", *names], "rows": body, "note": note}]
    groups = scoring.by_group(texts["model"])
    if len(groups) > 1:
        copies = scoring.by_group(texts["copy"])
        tiers: list[list[Any]] = [
            [
                name,
                len(group),
                *(suite.estimate(m) for m in _chosen(group, names[:2], suite).values()),
                suite.estimate(_chosen(copies[name], names[:1], suite)[first]),
            ]
            for name, group in groups.items()
        ]
        header = ["tier", "samples", *names[:2], f"{first} of the copy"]
        tables.append({"title": f"{title} by tier", "header": header, "rows": tiers})
    return tables


def _chosen(texts: rows.Texts, names: Sequence[str], suite: Suite) -> dict[str, Measure]:
    metrics = {"rouge1": "rouge", "rouge2": "rouge", "rougeL": "rouge", "length_ratio": "length"}
    wanted = list(dict.fromkeys(metrics.get(name, name) for name in names))
    found = {m.name: m for m in scoring.measures(texts, wanted, suite.tools)}
    return {name: found[name] for name in names}


def _infill_tables(suite: Suite, task: str) -> list[dict[str, Any]]:
    body: list[list[Any]] = []
    scorer, tokenizer = suite.tools.scorer(0), suite.engine.tokenizer
    sized: dict[int, list[Any]] = {}
    for system in ("model", "unigram"):
        found = _infill_rows(suite, system)
        measures = [infills.token_accuracy(found, tokenizer), *infills.preferred(found, scorer)]
        body.append([SYSTEM_NAMES[system], *(suite.estimate(m) for m in measures)])
        for size in sorted({int(row["group"]) for row in found}):
            some = [row for row in found if int(row["group"]) == size]
            cell = suite.estimate(infills.token_accuracy(some, tokenizer))
            sized.setdefault(size, []).append(cell)
    note = (
        f"Of {suite.job.limit} texts, each with 1 to 8 words masked. Likelihood is that of "
        f"the whole text under the {scorer.name} model, a token."
    )
    header = ["system", "masked tokens named", "beats a random span", "reaches the true text"]
    by_size = [[size, cells[0]["n"], *cells] for size, cells in sized.items()]
    return [
        {"title": "Infills", "header": header, "rows": body, "note": note},
        {
            "title": "Infills by words masked: masked tokens named",
            "header": ["words masked", "samples", "model", "unigram sampler"],
            "rows": by_size,
        },
    ]


def _infill_rows(suite: Suite, system: str) -> list[Mapping[str, Any]]:
    found = [row for _, row in rows.read_lines(suite.file("infill", system))]
    # A row whose sampling broke down wrote nothing; its text is that with the gap empty.
    return [{"written": "", **row} for row in found[: suite.job.limit]]


def _drafts(suite: Suite, part: str) -> list[dict[str, Any]]:
    """Free drafts beside held-out human text and the unigram sampler."""
    job = suite.job
    human = tuple(real_texts(job.split, job.limit, job.seed, suite.data))
    systems = {
        "model": suite.texts("unconditional"),
        "unigram sampler": suite.texts("unconditional", "unigram"),
        "held-out human text": rows.Texts(tuple(map(str, range(len(human)))), human),
    }
    metrics = ("ppl", "entropy", "distinct", "self-bleu", "repetition")
    copies = _copies(suite, [texts.generated for texts in systems.values()])
    found = {
        name: {m.name: m for m in [*scoring.measures(texts, metrics, suite.tools), *copied]}
        for (name, texts), copied in zip(systems.items(), copies, strict=True)
    }
    names = list(found["model"])
    body = [
        [name, *(suite.estimate(m) for m in measures.values()), _words(systems[name].generated)]
        for name, measures in found.items()
    ]
    note = (
        f"{job.limit} drafts from nothing. A low perplexity beside a low entropy is repetition, "
        f"not quality. {_seconds(suite.folder / 'unconditional.model.jsonl')} s a sample (median)."
    )
    header = ["text", *names, "words (mean)"]
    return [{"title": "Drafts", "header": header, "rows": body, "note": note}]


def _copies(suite: Suite, texts: Sequence[Sequence[str]]) -> list[list[Measure]]:
    """Copies of the training data by every system, which is read once for all."""
    assert suite.tools.training is not None
    whole = diversity.copies([text for some in texts for text in some], suite.tools.training())
    ends = list(itertools.accumulate(map(len, texts), initial=0))
    return [[replace(m, stats=m.stats[a:b]) for m in whole] for a, b in itertools.pairwise(ends)]


def _words(texts: Sequence[str]) -> float:
    return round(statistics.mean(len(text.split()) for text in texts), 1)


def _seconds(file: Path) -> str:
    seconds = [float(row["seconds"]) for _, row in rows.read_lines(file)]
    return f"{statistics.median(seconds):.2g}"
