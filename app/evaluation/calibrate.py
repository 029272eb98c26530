"""`elf-eval calibrate`: what the quality slider means for a model, measured.

Settings are sampled and scored; those that no other beats in both quality and variety are the
frontier, and the slider walks it from most varied (0) to most likely (1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.evaluation.figures import score_name
from app.evaluation.sweep import Config, Sweep
from editors.calibration import FILE, KNOBS
from elf_engine.errors import ElfError

Point = dict[str, float]
_FREE = {"guidance": [1.0, 3.0], "gamma": [0.0, 1.0, 3.0], "steps": [16, 48]}
_PAIR = {"condition_guidance": [1.0, 3.0], "gamma": [0.0, 1.0, 3.0], "steps": [16, 48]}
_GRIDS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "unconditional": ("draft", _FREE, ["ppl", "distinct"]),
    "infill": ("infill", _FREE, ["ppl", "distinct"]),
    "translate": ("translate", _PAIR, ["chrf", "distinct"]),
    "summarise": ("summarise", _PAIR, ["rouge", "distinct"]),
    "modernise": ("modernise", _PAIR, ["chrf", "distinct"]),
}
QUALITY, VARIETY = ("ppl:", "chrf", "rougeL"), ("distinct_2",)


def sweeps(
    tasks: Sequence[str], quick: bool = False, ode: Collection[str] = ()
) -> dict[str, Sweep]:
    """The sweeps that calibrate these editors, with the samplers the model has for them: those in
    `ode` know no gamma. `quick` takes the ends of every axis and few steps."""
    known = {editor: (task, grid, metrics) for task, (editor, grid, metrics) in _GRIDS.items()}
    found = {}
    for editor in tasks:
        if editor not in known:
            raise ElfError(f"'{editor}' has no quality slider; use {', '.join(known)}")
        task, axes, metrics = known[editor]
        axes = {k: v for k, v in axes.items() if k != "gamma" or editor not in ode}
        if quick:
            axes = {k: [4, 8] if k == "steps" else [v[0], v[-1]] for k, v in axes.items()}
        found[editor] = Sweep(task, dict(axes), "frontier", metrics)
    return found


def frontier(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Points that no other beats in quality and variety at once, from most varied to best."""
    quality, variety = score_name(points, QUALITY), score_name(points, VARIETY)
    if quality is None or variety is None:
        raise ElfError("a calibration needs a score of quality and one of variety")

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        scores = point["scores"]
        return scores[quality]["better"] * scores[quality]["value"], scores[variety]["value"]

    usable = [
        p for p in points if None not in (p["scores"][n]["value"] for n in (quality, variety))
    ]
    kept: list[Mapping[str, Any]] = []
    # Of equal points the one with fewer steps comes first and stands for all.
    for point in sorted(usable, key=lambda p: (-place(p)[0], -place(p)[1], _steps(p))):
        if not kept or place(point)[1] > place(kept[-1])[1]:
            kept.append(point)
    return kept[::-1]


def slider(points: Sequence[Mapping[str, Any]]) -> tuple[list[Point], list[Point]]:
    """(points of the calibration, what was measured there), of equal length, quality 0 to 1.

    Positions follow the measured quality, in its logarithm for a perplexity, so that the slider
    moves evenly through what is measured. Raises ElfError without a finite point.
    """
    line = frontier(points)
    if not line:
        raise ElfError("no setting gave finite scores; nothing to calibrate")
    name = score_name(points, QUALITY)
    assert name is not None
    values = [float(p["scores"][name]["value"]) for p in line]
    heights = [-math.log(v) for v in values] if name.startswith("ppl:") else values
    width = heights[-1] - heights[0]
    settings: list[Point] = []
    measured: list[Point] = []
    for point, height in zip(line, heights, strict=True):
        position = round((height - heights[0]) / width, 4) if width else 1.0
        if settings and position <= settings[-1]["quality"]:
            continue
        knobs = {k: v for k, v in point["settings"].items() if k in KNOBS}
        settings.append({"quality": position, **knobs})
        scores = {k: f["value"] for k, f in point["scores"].items()}
        found = {k: round(value, 4) for k, value in scores.items() if value is not None}
        measured.append({"quality": position, **found, "seconds": point["seconds"]})
    return settings, measured


def write_calibration(
    directory: Path, sweeps: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any]
) -> Path:
    """Write the model's calibration.json from finished sweeps by editor; tasks that are not among
    them keep what the file has. Returns its path."""
    target = directory / FILE
    old: dict[str, Any] = {}
    if target.exists():
        try:
            old = json.loads(target.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ElfError(f"{target}: cannot be read ({error}); delete it") from error
    tasks, measured = dict(old.get("tasks", {})), dict(old.get("measured", {}))
    for editor, result in sweeps.items():
        tasks[editor], measured[editor] = slider(result["points"])
    content = {"format": 1, "tasks": tasks, "measured": measured, "provenance": dict(facts)}
    try:
        target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise ElfError(f"'{target}' cannot be written: {error.strerror}") from error
    return target


def config(model: str, tasks: Sequence[str], **rest: Any) -> Config:
    """The sweep file of a calibration."""
    made = sweeps(tasks, rest.pop("quick", False), rest.pop("ode", ()))
    return Config(made, model=model, **rest)


def _steps(point: Mapping[str, Any]) -> float:
    return float(point["settings"].get("steps", 0))
