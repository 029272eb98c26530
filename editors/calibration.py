"""One number from most varied (0) to most likely (1), and the knobs it stands for.

`calibration.json` in a model directory says, per task, what was measured for that model:

    {"format": 1, "tasks": {"draft": [{"quality": 0, "guidance": 1, "gamma": 0.5, "steps": 32},
                                      {"quality": 1, "guidance": 3, "gamma": 1.5, "steps": 64}]}}

Between two points every knob is interpolated linearly. A model without the file gets BUILT_IN, in
the direction of the paper's findings (ELF.md, "Published results").
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from elf_engine.config import ModelConfig, SampleSpec
from elf_engine.errors import ElfError

FILE = "calibration.json"
KNOBS = ("guidance", "condition_guidance", "gamma", "steps")
Point = Mapping[str, float]

_FREE: tuple[Point, ...] = (
    {"quality": 0.0, "guidance": 0.5, "gamma": 0.5, "steps": 32},
    {"quality": 0.5, "guidance": 2.0, "gamma": 1.0, "steps": 32},
    {"quality": 1.0, "guidance": 3.0, "gamma": 1.5, "steps": 64},
)
_PAIR: tuple[Point, ...] = (
    {"quality": 0.0, "guidance": 1.0, "condition_guidance": 1.0, "steps": 32},
    {"quality": 1.0, "guidance": 1.0, "condition_guidance": 2.0, "steps": 64},
)
BUILT_IN: Mapping[str, Sequence[Point]] = {
    "draft": _FREE,
    "infill": _FREE,
    "translate": _PAIR,
    "summarise": _PAIR,
    "modernise": _PAIR,
}
# The task whose settings an editor takes when the model has none of its own for it.
_LIKE = {"rewrite": "infill"}


class Described(Protocol):
    """A model whose weights need not be loaded; an engine is one."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def path(self) -> Path | None: ...


def settings(
    engine: Described, editor: str, quality: float | None = None, **knobs: Any
) -> SampleSpec:
    """The model's settings for an editor, moved to `quality`, with `knobs` (fields of SampleSpec)
    put over both. Raises ElfError for a quality outside 0 to 1 or a value out of range."""
    task = _LIKE.get(editor, editor)
    defaults = engine.config.defaults
    spec = defaults.get(editor) or defaults.get(task) or SampleSpec()
    if quality is not None:
        table = measured(engine.path) or BUILT_IN
        points = table.get(editor) or table.get(task) or BUILT_IN[task]
        knobs = interpolate(points, quality) | knobs
    return replace(spec, **knobs)


def source(engine: Described, editor: str) -> str:
    """Where `quality` gets its meaning for an editor: "measured" or "built in"."""
    table = measured(engine.path) or {}
    return "measured" if {editor, _LIKE.get(editor, editor)} & table.keys() else "built in"


def interpolate(points: Sequence[Point], quality: float) -> dict[str, Any]:
    """Knobs at `quality` between 0 and 1, from points of ascending quality; the ends hold beyond
    the first and the last point."""
    if not 0 <= quality <= 1:
        raise ElfError(f"quality {quality} is outside 0 (most varied) to 1 (most likely)")
    after = next((i for i, p in enumerate(points) if p["quality"] >= quality), len(points) - 1)
    high = points[after]
    low = points[after - 1] if after and high["quality"] > quality else high
    width = high["quality"] - low["quality"]
    share = (quality - low["quality"]) / width if width else 0.0
    found: dict[str, Any] = {}
    for name in KNOBS:
        if name in low:
            value = low[name] + share * (high[name] - low[name])
            found[name] = round(value) if name == "steps" else round(value, 6)
    return found


def measured(directory: Path | None) -> dict[str, list[Point]] | None:
    """The calibration of a model directory, None without one. Raises ElfError for a bad file."""
    if directory is None or not (directory / FILE).exists():
        return None
    where = directory / FILE
    try:
        data = json.loads(where.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ElfError(f"{where}: cannot be read ({error}); measure it again") from error
    tasks = data.get("tasks") if isinstance(data, dict) and data.get("format") == 1 else None
    if not isinstance(tasks, dict):
        raise ElfError(f"{where}: no calibration of format 1; measure it again")
    return {task: _points(f"{where}: {task}", points) for task, points in tasks.items()}


def measurements(directory: Path | None, editor: str) -> list[Mapping[str, float]]:
    """What `elf-eval calibrate` measured at a calibration's points, ascending in "quality": the
    scores by name and "seconds" a sample. Empty where nothing was. Raises ElfError as
    `measured`."""
    if directory is None or measured(directory) is None:
        return []
    where = directory / FILE
    found = json.loads(where.read_text("utf-8")).get("measured", {})
    points = found.get(editor) or found.get(_LIKE.get(editor, editor), [])
    good = isinstance(points, list) and all(
        isinstance(p, dict)
        and "quality" in p
        and all(isinstance(v, int | float) for v in p.values())
        for p in points
    )
    if not good:
        raise ElfError(f"{where}: {editor}: what was measured is no list of numbers by name")
    return sorted(points, key=lambda point: point["quality"])


def _points(where: str, points: Any) -> list[Point]:
    good = isinstance(points, list) and points and all(isinstance(p, dict) for p in points)
    if not good or len({frozenset(p) for p in points}) != 1:
        raise ElfError(f"{where}: expected a list of points that have the same knobs")
    for point in points:
        if "quality" not in point or set(point) - {"quality", *KNOBS}:
            raise ElfError(f"{where}: a point has quality and of {', '.join(KNOBS)}, found {point}")
        if not all(isinstance(v, int | float) and math.isfinite(v) for v in point.values()):
            raise ElfError(f"{where}: {point} holds what is no number")
    if any(a["quality"] >= b["quality"] for a, b in itertools.pairwise(points)):
        raise ElfError(f"{where}: the points are not in order of quality")
    return list(points)
