"""Infills against the text that was there: tokens named, and what an n-gram model prefers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elf_engine.metrics.estimate import Measure, mean, ratio
from elf_engine.metrics.perplexity import Scorer
from elf_engine.tokens import Tokenizer

Row = Mapping[str, Any]


def truth(row: Row) -> str:
    """The words that were masked."""
    start, stop = row["spans"][0]
    return str(row["reference"][start:stop])


def token_accuracy(rows: Sequence[Row], tokenizer: Tokenizer) -> Measure:
    """Share of the masked tokens that were written at their place. Words carry their space."""
    hits, sizes = [], []
    for row in rows:
        wanted, found = (tokenizer.encode(f" {t}") for t in (truth(row), row["written"].strip()))
        hits.append(sum(a == b for a, b in zip(wanted, found, strict=False)))
        sizes.append(len(wanted))
    return ratio("token_accuracy", hits, sizes, better=1, unit="share")


def with_random_spans(rows: Sequence[Row]) -> list[str]:
    """Each text with as many words of another row's text in the gap: grammar by chance."""
    texts = []
    for k, row in enumerate(rows):
        start, stop = row["spans"][0]
        count = len(truth(row).split())
        other = str(rows[(k + 1) % len(rows)]["reference"]).split()
        first = (7 * k) % max(1, len(other) - count + 1)
        text = str(row["reference"])
        texts.append(text[:start] + " ".join(other[first : first + count]) + text[stop:])
    return texts


def preferred(rows: Sequence[Row], scorer: Scorer) -> list[Measure]:
    """Shares of infills whose whole text has, per token, at least the likelihood of the text with a
    random span ("beats_random"), and of the true text ("reaches_truth")."""

    def likelihood(texts: Sequence[str]) -> Any:
        nll, tokens = scorer.nll(texts)
        return -nll / np.maximum(tokens, 1)

    written = likelihood([row["generated"] for row in rows])
    random = likelihood(with_random_spans(rows))
    true = likelihood([row["reference"] for row in rows])
    return [
        mean("beats_random", written > random, better=1, unit="share"),
        mean("reaches_truth", written >= true - 1e-9, better=1, unit="share"),
    ]
