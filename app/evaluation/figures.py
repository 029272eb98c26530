"""Figures of sweeps, PNG and SVG, that read without colour: every line has its own marker, dash and
grey."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STYLES = tuple(
    zip(
        ("o", "s", "^", "D", "v", "P", "X", "*"),
        ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2))),
        ("#000000", "#595959", "#1a1a1a", "#737373", "#333333", "#808080", "#4d4d4d", "#262626"),
        strict=True,
    )
)
LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "rouge1": "ROUGE-1",
    "rougeL": "ROUGE-L",
    "entropy": "unigram entropy (nats)",
    "distinct_1": "distinct words (share)",
    "distinct_2": "distinct word pairs (share)",
    "self_bleu": "self-BLEU",
    "repetition": "repeated word pairs (share)",
    "steps": "network steps",
    "guidance": "guidance w",
    "condition_guidance": "condition guidance c",
    "gamma": "gamma",
    "strength": "strength",
    "grid": "time grid",
    "sampler": "sampler",
}
# The score that stands for quality and the one for variety, the first that was measured.
QUALITY = ("ppl:", "bleu", "rougeL", "chrf", "entropy")
VARIETY = ("distinct_2", "entropy", "self_bleu", "distinct_1")
_X = {"steps": "steps", "gamma": "gamma", "grid": "steps", "strength": "strength"}


def label(name: str) -> str:
    """A score or setting as an axis names it."""
    if name.startswith("ppl:"):
        return f"perplexity, {name.removeprefix('ppl:')} (less is better)"
    return LABELS.get(name, name.replace("_", " "))


def score_name(points: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> str | None:
    """The first of `wanted` (whole names, or beginnings that end in ":") all points have."""
    names = [name for name in points[0]["scores"] if all(name in p["scores"] for p in points)]
    for want in wanted:
        for name in names:
            if name == want or (want.endswith(":") and name.startswith(want)):
                return name
    return None


def draw(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw a sweep's figure; returns the files written, none when it has too few scores."""
    points = result["points"]
    quality = score_name(points, QUALITY)
    variety = score_name(points, [name for name in VARIETY if name != quality])
    frontier = result["figure"] == "frontier"
    if quality is None or (frontier and variety is None):
        return []
    figure, axes = _canvas()
    x = variety if frontier else _X[result["figure"]]
    assert x is not None
    main = _main_axis(result) if frontier else x
    for (name, line), (marker, dash, grey) in zip(
        lines(points, main).items(), itertools.cycle(STYLES), strict=False
    ):
        xs, low_x, high_x = _values(line, x, from_scores=frontier)
        ys, low_y, high_y = _values(line, quality, from_scores=True)
        axes.errorbar(
            xs, ys, yerr=[low_y, high_y], xerr=[low_x, high_x] if frontier else None,
            marker=marker, linestyle=dash, color=grey, linewidth=1.4, markersize=5,
            elinewidth=0.6, capsize=2, label=name or None,
        )  # fmt: skip
        if frontier:
            _name_points(axes, line, xs, ys, main)
    _finish(axes, result, x, quality)
    return _save(figure, folder, str(result["name"]))


def draw_duel(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures of a duel, score against time; returns the files written."""
    written: list[Path] = []
    for part in result["figures"]:
        figure, axes = _canvas()
        found: dict[str, list[Mapping[str, Any]]] = {}
        for point in part["points"]:
            if point["value"] is not None:
                found.setdefault(point["line"], []).append(point)
        for (name, line), (marker, dash, grey) in zip(
            found.items(), itertools.cycle(STYLES), strict=False
        ):
            xs, ys = [p["seconds"] for p in line], [p["value"] for p in line]
            low = [max(0.0, p["value"] - p["low"]) for p in line]
            high = [max(0.0, p["high"] - p["value"]) for p in line]
            axes.errorbar(
                xs, ys, yerr=[low, high], marker=marker, linestyle=dash, color=grey,
                linewidth=1.4, markersize=6, elinewidth=0.6, capsize=2, label=name,
            )  # fmt: skip
            for point, x, y in zip(line, xs, ys, strict=True):
                place = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 7}
                axes.annotate(point["name"], (x, y), **place)
        axes.set_xscale("log")
        _frame(axes, "seconds a sample (median); numbers are network steps", label(part["score"]))
        axes.set_title(f"{part['title']}, {result['model']}", fontsize=9)
        axes.legend(fontsize=7, frameon=False)
        written += _save(figure, folder, f"{result['name']}-{part['part']}")
    return written


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        file = folder / f"{name}.{kind}"
        # Nothing that changes from run to run goes into the files.
        plain = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        figure.savefig(file, metadata=plain)
        written.append(file)
    return written


def lines(points: Sequence[Mapping[str, Any]], main: str) -> dict[str, list[Mapping[str, Any]]]:
    """Points in one line each for every combination of the settings other than `main`."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        rest = [f"{label(k)} {v}" for k, v in point["settings"].items() if k != main]
        found.setdefault(", ".join(rest), []).append(point)
    return found


def _main_axis(result: Mapping[str, Any]) -> str:
    """Of a frontier: the setting with the most values runs along the line."""
    counts = {
        name: len({str(p["settings"].get(name)) for p in result["points"]})
        for name in result["points"][0]["settings"]
    }
    return max(counts, key=lambda name: counts[name])


def _values(
    points: Sequence[Mapping[str, Any]], name: str, from_scores: bool
) -> tuple[list[float], list[float], list[float]]:
    """Values and the distances to the ends of their intervals."""
    if not from_scores:
        values = [float(point["settings"][name]) for point in points]
        return values, [0.0] * len(values), [0.0] * len(values)
    nothing = dict.fromkeys(("value", "low", "high"), math.nan)
    scores = [point["scores"][name] for point in points]
    found = [nothing if None in score.values() else score for score in scores]
    values = [float(f["value"]) for f in found]
    low = [max(0.0, float(f["value"]) - float(f["low"])) for f in found]
    high = [max(0.0, float(f["high"]) - float(f["value"])) for f in found]
    return values, low, high


def _canvas() -> tuple[Any, Any]:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Same ids in every SVG, so that drawing again changes nothing.
    matplotlib.rcParams["svg.hashsalt"] = "elf"
    figure = Figure(figsize=(6.0, 4.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _name_points(
    axes: Any,
    line: Sequence[Mapping[str, Any]],
    xs: Sequence[float],
    ys: Sequence[float],
    main: str,
) -> None:
    for point, x, y in zip(line, xs, ys, strict=True):
        text = str(point["settings"].get(main))
        axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)


def _frame(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, linewidth=0.3, color="#cccccc")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _finish(axes: Any, result: Mapping[str, Any], x: str, y: str) -> None:
    _frame(axes, label(x), label(y))
    if x == "steps":
        values = sorted({int(p["settings"]["steps"]) for p in result["points"]})
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [str(v) for v in values])
        axes.minorticks_off()
    axes.set_title(f"{result['model']}, {result['task']}, {result['limit']} samples", fontsize=9)
    if any(axes.get_legend_handles_labels()[1]):
        axes.legend(fontsize=7, frameon=False)
