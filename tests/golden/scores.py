"""metrics.json: BLEU, ROUGE and the accounting of perplexity and entropy (NumPy, no backend)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from elf_engine.metrics import diversity, overlap
from elf_engine.metrics.estimate import Measure, spread
from elf_engine.metrics.perplexity import padded, perplexity, shifted_nll, with_ends
from tests.golden.archive import Archive, BadFileError, read_json
from tests.golden.compare import Row, Tolerance, compare

BACKEND = "numpy"
SCORE, PPL, ENTROPY = Tolerance(1e-6), Tolerance(1e-5, relative=True), Tolerance(1e-6)


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Every score that the file holds, whole and per sample."""
    stored = read_json(archive.path)
    try:
        yield from _overlap(stored)
        yield from _perplexity(stored["ppl"])
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFileError(f"{archive.path}: {error} is missing or malformed") from error


def _overlap(stored: Any) -> Iterator[Row]:
    texts, references = stored["hypotheses"], stored["references"]
    bleu = overlap.bleu(texts, references)
    yield _row("bleu", "corpus", _whole(bleu), stored["bleu"])
    yield _row("bleu", "per sample", _singles(bleu), stored["bleu_per_sample_as_corpus"])
    for measure in overlap.rouge(texts, references):
        name = measure.name
        singles = [sample[name] for sample in stored["rouge_per_sample"]]
        deviation, error = spread(measure)
        yield _row(name, "mean", _whole(measure), stored["rouge"][name])
        yield _row(name, "per sample", _singles(measure), singles)
        yield _row(name, "std", deviation, stored["rouge_std_sem"][f"{name}_std"])
        yield _row(name, "sem", error, stored["rouge_std_sem"][f"{name}_sem"])


def _perplexity(stored: Any) -> Iterator[Row]:
    """A bigram table over characters stands for the scoring model: logits = W[current]."""
    table = np.asarray(stored["W"], np.float64)
    rows = [[_character(c) for c in text] for text in stored["texts"]]
    ids, valid = padded(with_ends(rows, 0), 0)
    measure = perplexity("ppl", *shifted_nll(table[ids], ids, 0, valid))
    found, entropy = stored["result"], diversity.entropy(rows)
    yield compare(("ppl", "corpus", BACKEND), _whole(measure), found["ppl"], PPL)
    yield compare(("ppl", "per sample", BACKEND), _singles(measure), found["per_sample_ppl"], PPL)
    yield compare(("entropy", "mean", BACKEND), _whole(entropy), found["mean_entropy"], ENTROPY)


def _character(c: str) -> int:
    return {"$": 0, " ": 27}.get(c, ord(c) - ord("a") + 1)


def _row(case: str, quantity: str, found: Any, stored: Any) -> Row:
    return compare((case, quantity, BACKEND), found, stored, SCORE)


def _singles(measure: Measure) -> Any:
    return measure.value(measure.stats)


def _whole(measure: Measure) -> float:
    return float(measure.value(measure.stats.sum(axis=0)[None])[0])
