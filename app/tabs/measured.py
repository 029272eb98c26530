"""What a position of the quality slider means, and what was measured there, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.about import About
from elf_engine.errors import ElfError

_MEANINGS = (
    (0.2, "Most varied: surprising, at times wild; candidates differ most."),
    (0.45, "Varied: freer wording, a slip now and then."),
    (0.6, "Balanced."),
    (0.85, "Likely: more fluent, candidates more alike."),
    (1.0, "Most likely: plain and safe; candidates differ least."),
)
_NAMES = {"chrf": "chrF", "rougeL": "ROUGE-L"}


def meaning(quality: float) -> str:
    """A position of the slider in words. Raises ElfError outside 0 to 1."""
    for end, words in _MEANINGS:
        if 0 <= quality <= end:
            return words
    raise ElfError(f"quality {quality:g} is outside 0 to 1")


def measured_where(about: About, editor: str, model: str) -> str:
    """Whether the slider follows measurements of the model."""
    if about.source(editor) == "measured":
        return f"as measured on {model}"
    return f"by a general table: {model} was not measured"


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
