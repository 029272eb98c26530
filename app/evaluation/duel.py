"""`elf-eval duel`: an ELF model and an autoregressive one on the same inputs, by score and by time.

Both answer the rows that the editors plan, in batches of the same size on the same device. ELF is
run at several numbers of steps, the opponent with its likeliest tokens and with drawn ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.evaluation import results, rows, scoring
from app.evaluation.data import real_texts
from app.evaluation.generate import Job, generate
from elf_engine import model_dir
from elf_engine.config import DecoderConfig
from elf_engine.decoding import DecoderEngine
from elf_engine.errors import ElfError
from elf_engine.metrics.estimate import Measure, compare, estimate

STEPS = (1, 2, 4, 8, 16, 32, 64)
_DRAWN = {
    "AR, drawn": {"temperature": 1.0},
    "AR, drawn of the likeliest 90 %": {"temperature": 1.0, "top_p": 0.9},
}
_GREEDY = {"AR, likeliest": {"temperature": 0.0}}


@dataclass(frozen=True)
class Part:
    """What is measured. `shown` are the scores of the table; the first is the figure's."""

    title: str
    task: str
    metrics: tuple[str, ...]
    shown: tuple[str, ...]


PARTS = {
    "translate": Part(
        "German to English", "translate", ("bleu", "chrf", "length"),
        ("bleu", "chrf", "length_ratio"),
    ),
    "summarise": Part(
        "Summaries", "summarise", ("rouge", "length"),
        ("rougeL", "rouge1", "rouge2", "length_ratio"),
    ),
    "modernise": Part(
        "Archaic to modern English", "modernise", ("bleu", "chrf", "length"),
        ("bleu", "chrf", "length_ratio"),
    ),
    "drafts": Part(
        "Drafts", "unconditional", ("ppl", "entropy", "distinct", "repetition"),
        ("ppl:", "entropy", "distinct_2", "repetition"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Duel:
    """The two models, where inputs come from and samples go, and what judges drafts: a scorer that
    is neither of them."""

    elf: Any
    opponent: DecoderEngine
    job: Job
    data: Path
    folder: Path
    tools: scoring.Tools
    steps: tuple[int, ...] = STEPS
    told: Callable[[str], None] = lambda line: None


@dataclass(frozen=True)
class Answers:
    """What one system wrote, and its seconds a sample (median)."""

    system: str
    elf: bool
    texts: rows.Texts
    measures: Mapping[str, Measure]
    seconds: float


def run_duel(duel: Duel, parts: Sequence[str], command: str) -> dict[str, Any]:
    """The result file's content: tables of `parts` and the points of their figures."""
    for part in parts:
        if part not in PARTS:
            raise ElfError(f"part '{part}' is unknown; use some of {', '.join(PARTS)}")
    tables, figures = [_models(duel)], []
    for name in parts:
        found = [_answers(duel, PARTS[name], *system) for system in _systems(duel, name)]
        tables += _tables(duel, PARTS[name], found)
        figures.append(_figure(duel, name, found))
        duel.told(f"{name}: scored")
    first, second = duel.elf, duel.opponent
    return {
        "kind": "duel",
        "name": f"duel-{first.config.name}-{second.config.name}",
        "model": f"{first.config.name} and {second.config.name}",
        "model_hash": f"{first.model_hash[:16]}, {second.model_hash[:16]}",
        "split": duel.job.split,
        "limit": duel.job.limit,
        "tables": tables,
        "figures": figures,
        **results.provenance(command, duel.job.seed),
    }


def _systems(duel: Duel, part: str) -> list[tuple[str, Any, dict[str, Any]]]:
    """Name, model and settings. The likeliest draft is one text, so drafts are drawn."""
    elf = [(f"ELF, {n} step{'s' if n > 1 else ''}", duel.elf, {"steps": n}) for n in duel.steps]
    drawn = _DRAWN if part == "drafts" else {**_GREEDY, **_DRAWN}
    return [*elf, *((name, duel.opponent, dict(how)) for name, how in drawn.items())]


def _answers(duel: Duel, part: Part, name: str, engine: Any, settings: dict[str, Any]) -> Answers:
    job = replace(duel.job, task=part.task, model=engine.config.name, settings=settings)
    told = "-".join(f"{k}={v}" for k, v in settings.items())
    file = duel.folder / part.task / f"{engine.config.name}-{told}.jsonl"
    generate(job, engine, duel.data, file)
    duel.told(f"{part.task}, {name}: sampled")
    texts = rows.match([file])
    texts = scoring.only(texts, range(min(len(texts), job.limit)))
    seconds = [float(row["seconds"]) for _, row in rows.read_lines(file)]
    measures = {m.name: m for m in scoring.measures(texts, part.metrics, duel.tools)}
    return Answers(name, engine is duel.elf, texts, measures, statistics.median(seconds))


def _shown(part: Part, measures: Mapping[str, Measure]) -> list[Measure]:
    """The measures of a part's table, in its order."""
    return [
        m
        for want in part.shown
        for name, m in measures.items()
        if name == want or (want.endswith(":") and name.startswith(want))
    ]


def _score(duel: Duel, measure: Measure) -> dict[str, Any]:
    return scoring.plain(estimate(measure, duel.tools.resamples, duel.tools.seed))


def _tables(duel: Duel, part: Part, found: Sequence[Answers]) -> list[dict[str, Any]]:
    names = [m.name for m in _shown(part, found[0].measures)]
    body: list[list[Any]] = [
        [a.system, *(_score(duel, m) for m in _shown(part, a.measures)), round(a.seconds, 4)]
        for a in found
    ]
    note = f"{len(found[0].texts)} samples each. "
    if part.task == "unconditional":
        real = tuple(real_texts(duel.job.split, duel.job.limit, duel.job.seed, duel.data))
        human = rows.Texts(tuple(map(str, range(len(real)))), real)
        scores = {m.name: m for m in scoring.measures(human, part.metrics, duel.tools)}
        held_out = [_score(duel, m) for m in _shown(part, scores)]
        body.append(["held-out human text", *held_out, "none"])
        note += "A low perplexity beside a low entropy is repetition, not quality."
    else:
        note += _test(duel, part, found)
    header = ["system", *names, "s a sample"]
    tables = [{"title": part.title, "header": header, "rows": body, "note": note}]
    return [*tables, *_tiers(duel, part, found)]


def _pair(found: Sequence[Answers]) -> tuple[Answers, Answers]:
    """ELF at its most steps, and the opponent's first way."""
    elf = [a for a in found if a.elf]
    return elf[-1], next(a for a in found if not a.elf)


def _test(duel: Duel, part: Part, found: Sequence[Answers]) -> str:
    elf, other = _pair(found)
    same = rows.same_order(elf.texts, other.texts, other.system)
    scores = {m.name: m for m in scoring.measures(same, part.metrics, duel.tools)}
    first = _shown(part, elf.measures)[0].name
    test = compare(elf.measures[first], scores[first], duel.tools.resamples, duel.tools.seed)
    return (
        f"{first} of {elf.system} minus that of {other.system}: {test.difference:.3g} "
        f"({test.low:.3g} to {test.high:.3g}), paired p {test.p:.3g}."
    )


def _tiers(duel: Duel, part: Part, found: Sequence[Answers]) -> list[dict[str, Any]]:
    """The first score of every group of the corpus, where there are groups."""
    two = _pair(found)
    groups = [scoring.by_group(a.texts) for a in two]
    if len(groups[0]) < 2:
        return []

    def first(texts: rows.Texts) -> dict[str, Any]:
        measures = {m.name: m for m in scoring.measures(texts, part.metrics, duel.tools)}
        return _score(duel, _shown(part, measures)[0])

    body = [
        [name, len(texts), first(texts), first(groups[1][name])]
        for name, texts in groups[0].items()
    ]
    score = _shown(part, two[0].measures)[0].name
    header = ["tier", "samples", *(f"{score}, {a.system}" for a in two)]
    return [{"title": f"{part.title} by tier", "header": header, "rows": body}]


def _figure(duel: Duel, name: str, found: Sequence[Answers]) -> dict[str, Any]:
    """Points of a figure of score against time, in the lines they belong to."""
    points = []
    for a in found:
        measure = _shown(PARTS[name], a.measures)[0]
        line, point = ("ELF", a.system.split()[1]) if a.elf else (a.system, "")
        points.append({"line": line, "name": point, "seconds": a.seconds, **_score(duel, measure)})
    score = _shown(PARTS[name], found[0].measures)[0].name
    return {"part": name, "title": PARTS[name].title, "score": score, "points": points}


def _models(duel: Duel) -> dict[str, Any]:
    """How large the two are."""

    def size(spec: Any) -> int:
        return sum(math.prod(shape) for shape in model_dir.expected_shapes(spec).values())

    body = []
    for engine in (duel.elf, duel.opponent):
        config = engine.config
        network = size(config.network)
        encoder = 0 if isinstance(config, DecoderConfig) else size(config.encoder)
        body.append([config.name, f"{network:,}", f"{encoder:,}" if encoder else "none"])
    header = ["model", "parameters of the network", "of its frozen encoder"]
    return {"title": "The two models", "header": header, "rows": body}
