"""Rows as extractors give them, before cleaning: the file they are for, and their fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training.builder.clean import normalise, sentence_pairs, words

StemRow = tuple[str, dict[str, Any]]


def pair(german: str, english: str, tier: str, src: str) -> StemRow:
    """A row of trans_clean."""
    return "trans_clean", {
        "de": normalise(german), "en": normalise(english), "tier": tier, "src": src
    }  # fmt: skip


def pairs(german: str, english: str, tier: str, src: str) -> Iterator[StemRow]:
    """Rows of trans_clean, sentence by sentence where both sides have equally many."""
    for left, right in sentence_pairs(german, english):
        yield pair(left, right, tier, src)


def plain(stem: str, texts: Iterator[str], src: str, least: int) -> Iterator[StemRow]:
    """Rows of a plain file: texts of at least `least` words, spaces joined."""
    for text in texts:
        text = " ".join(text.split())
        if words(text) >= least:
            yield stem, {"text": text, "src": src}


def summary_row(document: str, summary: str, tier: int, package: str, src: str) -> StemRow:
    """A row of summary_clean."""
    row = {"document": document, "summary": summary, "tier": tier, "package": package, "src": src}
    return "summary_clean", row
