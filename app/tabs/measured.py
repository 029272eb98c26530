"""What was measured at a position of the quality slider, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_NAMES = {"chrf": "chrF", "rougeL": "ROUGE-L"}


def measured_line(points: Sequence[Mapping[str, float]], quality: float) -> str:
    """The measured point nearest to `quality`; "" where nothing was measured."""
    if not points:
        return ""
    near = min(points, key=lambda point: abs(point["quality"] - quality))
    said = [words for name, value in near.items() if (words := _words(name, value))]
    return f"measured at {near['quality']:.2g}: {', '.join(said)}" if said else ""


def _words(name: str, value: float) -> str:
    if name.startswith("ppl:"):
        return f"perplexity {value:.3g} ({name.removeprefix('ppl:')})"
    if name == "distinct_2":
        return f"{100 * value:.0f} % of word pairs differ"
    if name == "seconds":
        return f"{value:.2g} s a sample"
    return f"{_NAMES[name]} {value:.3g}" if name in _NAMES else ""
