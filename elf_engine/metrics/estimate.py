"""One form for every score: a row of sums per sample, and the value of their total.

Corpus BLEU, perplexity, a mean: each is a function of sums over samples. So one bootstrap and one
paired test serve them all, and a resample costs one matrix product instead of a new scoring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError

Stats = npt.NDArray[np.float64]
RESAMPLES = 1000


@dataclass(frozen=True)
class Measure:
    """`stats` (N,K): what each of N samples adds. `value`: totals (R,K) -> scores (R,).

    better   1: more is better, -1: less is better, 0: neither
    unit     what the number counts, for tables
    """

    name: str
    stats: Stats
    value: Callable[[Stats], Stats]
    better: int = 0
    unit: str = ""

    def __len__(self) -> int:
        return len(self.stats)


@dataclass(frozen=True)
class Estimate:
    """A score over n samples with the ends of its 95 % bootstrap interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Comparison:
    """First minus second system: difference, its 95 % interval, two-sided p of the paired
    approximate randomisation test (Noreen 1989; Riezler and Maxwell 2005)."""

    difference: float
    low: float
    high: float
    p: float
    n: int


def ratio(
    name: str, above: npt.ArrayLike, below: npt.ArrayLike | float, **facts: object
) -> Measure:
    """Sum of `above` (N,) over sum of `below` (N,) or of as many times a number; 0 for 0 / 0.

    `facts`: `scale` multiplies, `better` and `unit` are those of Measure.
    """
    top = np.asarray(above, np.float64)
    stats = np.stack([top, np.broadcast_to(np.asarray(below, np.float64), top.shape)], axis=-1)
    scale = float(facts.get("scale", 1.0))  # type: ignore[arg-type]

    def value(totals: Stats) -> Stats:
        bottom = totals[:, 1]
        safe = np.where(bottom == 0, 1.0, bottom)
        return np.asarray(np.where(bottom == 0, 0.0, scale * totals[:, 0] / safe))

    better, unit = int(facts.get("better", 0)), str(facts.get("unit", ""))  # type: ignore[call-overload]
    return Measure(name, stats, value, better, unit)


def mean(name: str, values: npt.ArrayLike, **facts: object) -> Measure:
    """The mean of one number per sample."""
    return ratio(name, values, 1.0, **facts)


def estimate(measure: Measure, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Value and percentile bootstrap interval (Efron 1979), the samples drawn with replacement.

    The same seed and sample count give the same resamples whatever the measure.
    """
    n = _size(measure)
    totals = _weights(n, resamples, seed) @ measure.stats
    low, high = np.percentile(measure.value(totals), (2.5, 97.5))
    return Estimate(_total(measure, measure.stats), float(low), float(high), n)


def compare(
    first: Measure, second: Measure, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Two systems on the same N inputs in the same order. Raises ElfError for unequal N."""
    n = _size(first)
    if len(second) != n:
        raise ElfError(f"{first.name}: a paired test needs equal samples, found {n}, {len(second)}")
    weights = _weights(n, resamples, seed)
    differences = first.value(weights @ first.stats) - second.value(weights @ second.stats)
    low, high = np.percentile(differences, (2.5, 97.5))
    found = _total(first, first.stats) - _total(second, second.stats)
    swap = np.random.default_rng((seed, 1)).integers(0, 2, (resamples, n)).astype(np.float64)
    moved = swap @ (second.stats - first.stats)
    ones, twos = first.stats.sum(axis=0) + moved, second.stats.sum(axis=0) - moved
    shuffled = np.abs(first.value(ones) - second.value(twos))
    # Rounding must not make an equal difference look smaller.
    extreme = np.sum(shuffled >= abs(found) - 1e-9 * max(1.0, abs(found)))
    return Comparison(found, float(low), float(high), float((extreme + 1) / (resamples + 1)), n)


def spread(measure: Measure) -> tuple[float, float]:
    """Standard deviation over samples (population) and standard error of a mean."""
    n = _size(measure)
    singles = measure.value(measure.stats)
    deviation = float(np.std(singles))
    return deviation, deviation / float(np.sqrt(n))


def _size(measure: Measure) -> int:
    if not len(measure.stats):
        raise ElfError(f"{measure.name}: there is no sample to score")
    return len(measure.stats)


def _total(measure: Measure, stats: Stats) -> float:
    return float(measure.value(stats.sum(axis=0)[None])[0])


def _weights(n: int, resamples: int, seed: int) -> Stats:
    """How often each sample is drawn (R,N)."""
    draws = np.random.default_rng((seed, 0)).multinomial(n, np.full(n, 1 / n), size=resamples)
    return draws.astype(np.float64)
