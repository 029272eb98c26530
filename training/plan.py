"""Which rows go into which batch: a pure function of (seed, batch number).

Rows are sorted into buckets by length; each epoch shuffles every bucket and the order of the
batches. The sizes of the batches are the same in every epoch, so that any batch can be named
without the ones before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """A batch's place among the sorted rows: `rows` of them from `start`, padded to `length`."""

    start: int
    rows: int
    length: int


def best_lengths(sizes: Ints, count: int) -> tuple[int, ...]:
    """At most `count` padded lengths for rows of these sizes (N,) with the least padding in all.

    Exact, by dynamic programming over the distinct sizes: the cost of ending a bucket at size j
    after one that ended at i is the sum of `j - size` between.
    """
    values, counts = np.unique(sizes, return_counts=True)
    count = min(count, len(values))
    number = np.concatenate([[0], np.cumsum(counts)])
    total = np.concatenate([[0], np.cumsum(counts * values)])
    best = np.full(len(values) + 1, np.inf)
    best[0] = 0.0
    choices = []
    for _ in range(count):
        # cost[i, j]: buckets up to i are made, one more takes sizes i .. j - 1.
        cost = values[None, :] * (number[None, 1:] - number[:-1, None])
        cost = (cost - (total[None, 1:] - total[:-1, None])).astype(np.float64)
        cost[np.tril_indices(len(values), -1)] = np.inf
        through = best[:-1, None] + cost
        choices.append(through.argmin(axis=0))
        best = np.concatenate([[np.inf], through.min(axis=0)])
    ends, at = [], len(values)
    for choice in reversed(choices):
        ends.append(int(values[at - 1]))
        at = int(choice[at - 1])
        if at == 0:
            break
    return tuple(reversed(ends))


def cuts(sizes: Ints, lengths: tuple[int, ...], rows: tuple[int, ...]) -> list[Cut]:
    """Batches over rows in order of their buckets: each has the rows that its longest row's
    bucket allows. What fills no batch goes on into the next bucket; the very last batch takes
    some rows a second time.

    Raises ElfError when there are too few rows for one batch.
    """
    bucket = np.sort(np.searchsorted(lengths, sizes))
    least = rows[int(bucket[-1])]
    if len(bucket) < least:
        raise ElfError(
            f"{len(bucket)} rows make no batch of {least}; use smaller batches or more data"
        )
    found, at = [], 0
    while at < len(bucket):
        kind = int(bucket[at])
        last = int(bucket[min(at + rows[kind], len(bucket)) - 1])
        while kind < last:
            kind += 1
            last = int(bucket[min(at + rows[kind], len(bucket)) - 1])
        if at + rows[kind] > len(bucket):
            kind = int(bucket[-1])
            at = len(bucket) - rows[kind]
        found.append(Cut(at, rows[kind], lengths[kind]))
        at += rows[kind]
    return found


class Plan:
    """The batches of rows with `sizes` (N,), none longer than the last of `lengths`; `rows` has
    the number of rows of a batch for each length."""

    def __init__(
        self, sizes: Ints, lengths: tuple[int, ...], rows: tuple[int, ...], seed: int
    ) -> None:
        self.lengths, self.seed = lengths, seed
        self.cuts = cuts(sizes, lengths, rows)
        kinds = np.searchsorted(lengths, sizes)
        self._order = np.argsort(kinds, kind="stable")
        self._starts = np.searchsorted(kinds[self._order], np.arange(len(lengths) + 1))

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.cuts)

    def batch(self, number: int) -> tuple[list[int], int]:
        """Row numbers and padded length of global batch `number`, counted over all epochs."""
        epoch, k = divmod(number, len(self.cuts))
        cut = self.cuts[shuffled(k, len(self.cuts), (self.seed, epoch, 0))]
        return [self._row(epoch, cut.start + i) for i in range(cut.rows)], cut.length

    def _row(self, epoch: int, place: int) -> int:
        kind = int(np.searchsorted(self._starts, place, side="right")) - 1
        start, stop = int(self._starts[kind]), int(self._starts[kind + 1])
        inside = shuffled(place - start, stop - start, (self.seed, epoch, kind + 1))
        return int(self._order[start + inside])

    def padding(self, sizes: Ints) -> float:
        """Share of an epoch's positions that hold no token."""
        room = sum(cut.rows * cut.length for cut in self.cuts)
        held = sum(int(sizes[self._order[c.start : c.start + c.rows]].sum()) for c in self.cuts)
        return 1.0 - held / room


def shuffled(i: int, size: int, key: tuple[int, int, int]) -> int:
    """Place of `i` in the random permutation of `size` things that `key` names.

    Not Grain's index_shuffle: it needs no memory but milliseconds where `size` is small.
    """
    return int(_permutation(size, key)[i])


@lru_cache(maxsize=64)
def _permutation(size: int, key: tuple[int, int, int]) -> npt.NDArray[np.int32]:
    return np.random.default_rng(key).permutation(np.arange(size, dtype=np.int32))
