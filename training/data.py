"""Batches of rows: which text, cut how, padded to what. A pure function of (seed, step).

Rows are built by `elf_engine.layout`, as the editors build theirs, so training equals inference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from elf_engine.config import LayoutSpec
from elf_engine.errors import ElfError
from elf_engine.layout import TASKS, Batch, Free, Piece, Row, build_row, pad_rows, pair_pieces
from elf_engine.tokens import Tokenizer
from training.table import Table

PAIR_TASKS = ("translate", "summarise", "modernise")
_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True)
class TaskMix:
    """share: fraction of all rows. groups: corpus group -> how often each of its rows comes, per
    pass (0.35 thins a group, 3 repeats it)."""

    share: float
    groups: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamSpec:
    """Data of one's own in place of the corpus table (training/stream.py).

    train, validation   file, folder or Hub name of each split's rows
    layout         "published": [condition, text] cut and filled to `length`, as the published
                   models were trained; "own": as the editors lay rows out, in length buckets
    task           of "own": what the rows teach; "" is translate or, without conditions, draft
    length         tokens of a row; in "own" the most, longer rows are left out
    max_source     "published": most condition tokens; 0 is no limit
    fill           "published": the token behind a row's end
    join           "published": documents joined and cut into full rows
    rows           "published": rows of a global batch
    buckets        "own": number of padded lengths, chosen for the least padding
    rows_multiple  rows of a global batch are a multiple of this: the processes divide it
    workers        processes that read ahead; 0 reads in a thread
    """

    train: str
    validation: str = ""
    layout: Literal["published", "own"] = "published"
    task: str = ""
    length: int = 1024
    max_source: int = 0
    fill: Literal["pad", "eos"] = "pad"
    join: bool = False
    rows: int = 512
    buckets: int = 12
    rows_multiple: int = 1
    workers: int = 0

    def __post_init__(self) -> None:
        for name in ("length", "rows", "buckets", "rows_multiple"):
            if getattr(self, name) < 1:
                raise ElfError(f"stream.{name} {getattr(self, name)} must be at least 1")
        if self.workers < 0 or self.max_source < 0:
            raise ElfError("stream.workers and stream.max_source must not be negative")
        if self.layout == "own" and (self.join or self.max_source):
            raise ElfError("stream.join and stream.max_source belong to the published layout")


@dataclass(frozen=True)
class DataConfig:
    """batch_tokens  padded tokens of a batch, the same for every length
    length_weights   how much rows of each length are wanted, relative to how many there are
    mix              task -> its share and groups
    stream           data of one's own instead
    lengths          padded lengths of the training rows, ascending; none takes LayoutSpec.lengths.
                     More of them pad less, and each is compiled once
    """

    batch_tokens: int = 2048
    length_weights: tuple[float, ...] = (1.0, 0.5, 0.1)
    mix: dict[str, TaskMix] = field(default_factory=dict)
    stream: StreamSpec | None = None
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrainBatch:
    """A padded batch with the task of each row, and its number in the data, counted from 0."""

    batch: Batch
    tasks: tuple[str, ...]
    rows: tuple[int, ...]


class BatchSource:
    """Draws batches from a table. Raises ElfError when a task of the mix has no rows.

    `unused` counts, per task, the examples too long for every bucket.
    """

    def __init__(
        self, table: Table, tokenizer: Tokenizer, layout: LayoutSpec, config: DataConfig, seed: int
    ) -> None:
        self.table, self.tokenizer, self.layout = table, tokenizer, layout
        self.config, self.seed = config, seed
        self.lengths = config.lengths or layout.lengths
        self.tasks = tuple(config.mix)
        self.unused: dict[str, int] = {}
        self._pools: dict[tuple[str, int], tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]
        self._pools = {}
        wanted = np.zeros((len(self.lengths), len(self.tasks)))
        for j, task in enumerate(self.tasks):
            wanted[:, j] = config.mix[task].share * self._fill_pools(task)
        rows = np.asarray([self.rows(length) for length in self.lengths])
        by_length = wanted.sum(axis=1) / rows
        self.length_share = by_length / by_length.sum()
        self._task_share = wanted / np.maximum(wanted.sum(axis=1, keepdims=True), 1e-12)

    def rows(self, length: int) -> int:
        """Rows of a batch padded to `length`."""
        return max(self.config.batch_tokens // length, 1)

    def _fill_pools(self, task: str) -> npt.NDArray[np.float64]:
        """Sorts the task's examples into buckets; the distribution of its rows over them."""
        table, mix = self.table, self.config.mix[task]
        if task not in TASKS:
            raise ElfError(f"mix: task '{task}' is unknown; choose among {', '.join(TASKS)}")
        repeat = np.asarray(
            [
                mix.groups.get(group, 0.0) if (kind == task) == (task in PAIR_TASKS) else 0.0
                for group, kind in zip(table.groups, table.tasks, strict=True)
            ]
        )
        if task == "infill":  # the English side of a pair is as good as any text
            repeat = np.asarray([mix.groups.get(group, 0.0) for group in table.groups])
        weight = repeat[table.group]
        # Task token, separator and at least one EOS beside the text.
        need = table.tokens.sum(axis=1) + 3 if task in PAIR_TASKS else self._text_tokens() + 3
        wanted, low = np.zeros(len(self.lengths)), 0
        for i, length in enumerate(self.lengths):
            inside = np.flatnonzero((need > low) & (need <= length) & (weight > 0))
            self._pools[task, i] = (inside, np.cumsum(weight[inside]))
            wanted[i] = weight[inside].sum() * self.config.length_weights[i]
            low = length
        self.unused[task] = int(((need > low) & (weight > 0)).sum())
        if not wanted.any():
            raise ElfError(f"mix: no row fits task '{task}'; check the names of its groups")
        return np.asarray(wanted / wanted.sum(), np.float64)

    def _text_tokens(self) -> npt.NDArray[np.int32]:
        tokens = self.table.tokens
        return np.where(tokens[:, 1] > 0, tokens[:, 1], tokens[:, 0])

    def _text(self, i: int) -> str:
        return self.table.target(i) or self.table.source(i)

    def draw(self, step: int, bucket: int | None = None) -> TrainBatch:
        """The batch of `step`; `bucket` fixes its length."""
        rng = np.random.default_rng([self.seed, step])
        any_bucket = int(rng.choice(len(self.length_share), p=self.length_share))
        bucket = any_bucket if bucket is None else bucket
        length = self.lengths[bucket]
        picks = rng.choice(len(self.tasks), self.rows(length), p=self._task_share[bucket])
        tasks = tuple(self.tasks[i] for i in picks)
        drawn = [self._row(rng, task, bucket) for task in tasks]
        numbers, rows = zip(*drawn, strict=True)
        return TrainBatch(pad_rows(rows, length, self.tokenizer.pad_id), tasks, numbers)

    def _pick(self, rng: np.random.Generator, task: str, bucket: int) -> int:
        inside, cumulative = self._pools[task, bucket]
        at = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
        return int(inside[min(int(at), len(inside) - 1)])

    def _row(self, rng: np.random.Generator, task: str, bucket: int) -> tuple[int, Row]:
        length = self.lengths[bucket]
        while True:
            example = self._pick(rng, task, bucket)
            if task in PAIR_TASKS:
                pieces = self._pair(rng, example, length)
            else:
                cut = cut_draft if task == "draft" else cut_infill
                pieces = self._cut(rng, cut(rng, self._text(example)), length, task)
            row = build_row(self.layout, self.tokenizer.eos_id, task, pieces)
            # Text cut into pieces can take a few tokens more than whole; then draw again.
            if len(row) <= length:
                return example, row

    def _pair(self, rng: np.random.Generator, example: int, length: int) -> list[Piece]:
        source = self.tokenizer.encode(self.table.source(example))
        target = self.tokenizer.encode(self.table.target(example))
        room = max(length - len(source) - len(target) - 3, 0)
        # An editor sizes the free region by the source, so it may be a good deal too long.
        most = room if rng.random() < 0.4 else min(room, len(source) // 2 + 8)
        slack = int(rng.integers(0, most + 1))
        return pair_pieces(self.layout, source, Free(len(target) + 1 + slack, tuple(target)))

    def _cut(
        self, rng: np.random.Generator, parts: Sequence[tuple[str, bool]], length: int, task: str
    ) -> list[Piece]:
        """Parts of text, (text, is it free), as pieces with random slack in the free ones."""
        tokens = [(self.tokenizer.encode(text), free) for text, free in parts]
        room = length - 1 - sum(len(ids) for ids, _ in tokens)
        pieces: list[Piece] = []
        for ids, free in tokens:
            if not free:
                pieces.append(ids)
                continue
            most = room if task == "draft" else min(room, 6)
            tight = task == "infill" and rng.random() < 0.25
            slack = 0 if tight else int(rng.integers(0, max(most, 0) + 1))
            room -= slack
            pieces.append(Free(max(len(ids) + slack, 1), tuple(ids)))
        return pieces


def cut_draft(rng: np.random.Generator, text: str) -> list[tuple[str, bool]]:
    """A known prefix of random length, often none, and the rest: (text, is it free)."""
    words = _WORD.findall(text)
    if rng.random() < 0.35 or len(words) < 2:
        return [(text, True)]
    cut = len("".join(words[: int(rng.integers(1, len(words)))]))
    if rng.random() < 0.1:  # inside a word
        cut = int(rng.integers(1, len(text)))
    return [(text[:cut], False), (text[cut:], True)]


def cut_infill(rng: np.random.Generator, text: str) -> list[tuple[str, bool]]:
    """One to three gaps of one to eight words, anywhere: (text, is it free). The space before a
    gap is free, as editors lay it out, the one after it known."""
    words = [(m.start() + len(m.group()) - len(m.group().lstrip()), m.end())
             for m in _WORD.finditer(text)]  # fmt: skip
    if not words:
        return [(text, True)]
    wanted = int(rng.choice([1, 1, 1, 2, 2, 3]))
    gaps: list[tuple[int, int]] = []
    for _ in range(wanted):
        size = int(rng.integers(1, min(8, max(len(words) // 2, 1)) + 1))
        first = int(rng.integers(0, len(words) - size + 1))
        start, stop = words[first][0], words[first + size - 1][1]
        if all(stop + 1 < a or b + 1 < start for a, b in gaps):
            gaps.append((start, stop))
    parts: list[tuple[str, bool]] = []
    at = 0
    for start, stop in sorted(gaps):
        if text[start - 1 : start] == " " and rng.random() < 0.95:
            start -= 1
        if rng.random() < 0.1 and text[stop - 1 : stop] in ".,;:!?" and stop - start > 1:
            stop -= 1
        parts += [(text[at:start], False), (text[start:stop], True)]
        at = stop
    return [*parts, (text[at:], False)]
