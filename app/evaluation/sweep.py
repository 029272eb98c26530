"""`elf-eval sweep`: samples and scores over grids of settings, as a YAML file lists them.

model: starter
split: validation
limit: 64
seed: 0
scorer: ngram                 # for the metric ppl
training_limit: 200000        # texts the n-gram model sees
sweeps:
  drafts-guidance:
    task: unconditional
    figure: frontier          # or steps, gamma, grid, strength
    metrics: [ppl, distinct, entropy]
    settings: {steps: 32}
    grid: {guidance: [0, 1, 2, 3], gamma: [0.5, 1.0]}
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.evaluation import results, rows, scoring
from app.evaluation.data import TASKS
from app.evaluation.generate import Job, cell_name, check_settings, generate, grid
from elf_engine.config import from_dict
from elf_engine.errors import ElfError

FIGURES = ("frontier", "steps", "gamma", "grid", "strength")


@dataclass(frozen=True)
class Sweep:
    """One grid. `metrics` as `elf-eval score` names them; `limit` over that of the file."""

    task: str
    grid: dict[str, Any]
    figure: str = "frontier"
    metrics: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    limit: int = 0


@dataclass(frozen=True)
class Config:
    """A sweep file."""

    sweeps: dict[str, Sweep]
    model: str = "starter"
    split: str = "validation"
    limit: int = 64
    seed: int = 0
    scorer: str = "ngram"
    training_limit: int = 200_000
    backend: str = "torch"


def read_config(data: Mapping[str, Any], where: str) -> Config:
    """A checked sweep file. Raises ElfError for whatever in it is unknown or out of range."""
    config = from_dict(Config, dict(data), where)
    if not config.sweeps:
        raise ElfError(f"{where}: sweeps is empty")
    for name, sweep in config.sweeps.items():
        if sweep.task not in TASKS:
            raise ElfError(f"{where}: {name}: task '{sweep.task}' is none of {', '.join(TASKS)}")
        if sweep.figure not in FIGURES:
            raise ElfError(f"{where}: {name}: figure '{sweep.figure}' is unknown; {FIGURES}")
        check_settings(sweep.settings)
        cells(sweep)
    return config


def cells(sweep: Sweep) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    axes = {k: v if isinstance(v, list) else [v] for k, v in sweep.grid.items()}
    return grid(axes)


def run_sweep(
    name: str,
    config: Config,
    engine: Any,
    tools: scoring.Tools,
    places: tuple[Path, Path],
    command: str,
    told: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Sample and score one sweep. `places` are the corpus and the folder for samples, from which
    finished cells are taken. Returns the result file's content."""
    sweep, (data, folder) = config.sweeps[name], places
    points: list[dict[str, Any]] = []
    for cell in cells(sweep):
        job = Job(
            task=sweep.task,
            model=config.model,
            split=config.split,
            limit=sweep.limit or config.limit,
            seed=config.seed,
            settings={**sweep.settings, **cell},
            backend=config.backend,
        )
        file = folder / name / f"{cell_name(cell)}.jsonl"
        generate(job, engine, data, file)
        points.append({"settings": cell, **measure(file, sweep, tools, job.limit)})
        told(f"{name} {cell_name(cell)}")
    return {
        "kind": "sweep",
        "name": name,
        "task": sweep.task,
        "figure": sweep.figure,
        "model": engine.config.name,
        "model_hash": engine.model_hash[:16],
        "split": config.split,
        "limit": sweep.limit or config.limit,
        "base": sweep.settings,
        "points": points,
        **results.provenance(command, config.seed),
    }


def measure(file: Path, sweep: Sweep, tools: scoring.Tools, limit: int) -> dict[str, Any]:
    """Scores and median seconds of one file of samples. A rewrite is scored by how much of its
    source it keeps; everything else against its references."""
    texts = rows.match([file])
    if len(texts) > limit:
        texts = scoring.only(texts, range(limit))
    if sweep.task == "rewrite":
        texts = rows.Texts(texts.ids, texts.generated, texts.sources, texts.sources)
    chosen = scoring.choose(",".join(sweep.metrics) or None, texts)
    found = scoring.score(texts, chosen, tools)
    seconds = [float(row["seconds"]) for _, row in rows.read_lines(file)]
    return {
        "scores": found["metrics"],
        "samples": found["samples"],
        "failed": found["failed"],
        "seconds": round(statistics.median(seconds), 4),
    }


def axis(points: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Values of a setting over the points, in their order, each once."""
    return list(dict.fromkeys(point["settings"].get(name) for point in points))
