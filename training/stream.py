"""Batches of one's own data: the published layouts, or ours in length buckets.

A batch follows from (seed, its number); Grain reads ahead from any number on, in a thread or with
worker processes. So a run may go on with other numbers of workers and of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elf_engine.config import LayoutSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Batch, Free, build_row, pad_rows, pair_pieces
from elf_engine.published.batching import Example, collate
from elf_engine.tokens import Tokenizer
from training.data import DataConfig, StreamSpec, TrainBatch
from training.plan import Plan, best_lengths
from training.rows import Rows

PLAIN_TASKS = ("draft",)


class Blocks:
    """Documents without a condition, joined and cut into blocks of `length` tokens; the rest of
    the last one is left out. The same blocks in every epoch."""

    def __init__(self, rows: Rows, length: int) -> None:
        if rows.conditional:
            raise ElfError(f"'{rows.path}' has conditions; only plain documents can be joined")
        self.rows, self.length = rows, length
        self._ends = np.cumsum(rows.lengths[:, 1])
        if self._ends[-1] < length:
            raise ElfError(f"'{rows.path}' has {self._ends[-1]} tokens, too few for one block")

    def __len__(self) -> int:
        return int(self._ends[-1]) // self.length

    def __getitem__(self, i: int) -> Example:
        start, stop = i * self.length, (i + 1) * self.length
        at = int(np.searchsorted(self._ends, start, side="right"))
        base = int(self._ends[at - 1]) if at else 0
        ids: list[int] = []
        while base + len(ids) < stop:
            ids += self.rows[at].target
            at += 1
        return Example(ids[start - base : stop - base])


class Batches:
    """Random access to the batches of `rows`: `batches[i]` is this process's part of batch i."""

    def __init__(
        self,
        rows: Rows,
        tokenizer: Tokenizer,
        layout: LayoutSpec,
        config: DataConfig,
        seed: int,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        assert config.stream is not None
        self.spec, self.layout, self._share = config.stream, layout, share
        self.task = self.spec.task or ("translate" if rows.conditional else "draft")
        if self.spec.layout == "own" and (self.task in PLAIN_TASKS) == rows.conditional:
            kind = "conditions" if rows.conditional else "no conditions"
            raise ElfError(f"'{rows.path}' has {kind}, which does not fit task '{self.task}'")
        self.eos_id, self.pad_id = tokenizer.eos_id, tokenizer.pad_id
        self.examples: Rows | Blocks = rows
        if self.spec.join:
            self.examples = Blocks(rows, self.spec.length)
        self.too_long = 0
        self._numbers = np.arange(len(self.examples))
        self.plan = self._plan(rows, config, seed)

    def _plan(self, rows: Rows, config: DataConfig, seed: int) -> Plan:
        spec = self.spec
        if spec.layout == "published":
            full, count = np.full(len(self._numbers), spec.length), self._rows(spec.rows)
            return Plan(full, (spec.length,), (count,), seed)
        marks = (self.layout.tasks.get(self.task, -1) >= 0) + (
            rows.conditional and self.layout.sep_id >= 0
        )
        sizes = rows.lengths.sum(axis=1) + marks + ~rows.ended
        fits = sizes <= spec.length
        self.too_long = int((~fits).sum())
        if not fits.any():
            raise ElfError(f"no row of '{rows.path}' fits stream.length {spec.length}")
        self._numbers = np.flatnonzero(fits)
        lengths = best_lengths(sizes[fits], spec.buckets)
        counts = tuple(self._rows(config.batch_tokens // length) for length in lengths)
        self.sizes = sizes[fits]
        return Plan(self.sizes, lengths, counts, seed)

    def _rows(self, wanted: int) -> int:
        multiple = self.spec.rows_multiple
        if multiple % self._share[1]:
            raise ElfError(
                f"stream.rows_multiple {multiple} does not divide among {self._share[1]} processes"
            )
        return max(wanted // multiple, 1) * multiple

    def __len__(self) -> int:
        return 2**40  # Grain wants a length; batches never end.

    def __getitem__(self, number: int) -> TrainBatch:
        chosen, length = self.plan.batch(int(number))
        index, count = self._share
        mine = chosen[index * len(chosen) // count : (index + 1) * len(chosen) // count]
        numbers = tuple(int(self._numbers[i]) for i in mine)
        examples = [self.examples[i] for i in numbers]
        if self.spec.layout == "published":
            fill = self.eos_id if self.spec.fill == "eos" else self.pad_id
            batch = collate(examples, length, fill, self.spec.max_source or None)
        else:
            batch = self._own(examples, length)
        return TrainBatch(batch, (self.task,) * len(mine), numbers)

    def _own(self, examples: Sequence[Example], length: int) -> Batch:
        rows = []
        for example in examples:
            text = tuple(example.target)
            if text[-1] == self.eos_id:
                text = text[:-1]
            target = Free(len(text) + 1, text)
            source = list(example.source)
            pieces = pair_pieces(self.layout, source, target) if source else [target]
            rows.append(build_row(self.layout, self.eos_id, self.task, pieces))
        return pad_rows(rows, length, self.pad_id)


@dataclass(frozen=True)
class _AsArrays:
    """For Grain's workers, which pass arrays: a batch as a dict and back."""

    batches: Batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> dict[str, Any]:
        found = self.batches[number]
        one, rows = found.batch, np.asarray(found.rows)
        return {"ids": one.ids, "known": one.known, "valid": one.valid, "rows": rows}


class Stream:
    """`Batches` as a `Source` (training/sources.py)."""

    def __init__(self, batches: Batches, fingerprint: str, workers: int = 0) -> None:
        self.batches, self._fingerprint, self._workers = batches, fingerprint, workers
        self._step = 0

    def draw(self, step: int) -> TrainBatch:
        """See `Source.draw`."""
        return self.batches[step]

    def __iter__(self) -> Iterator[TrainBatch]:
        import grain

        rest = grain.MapDataset.source(_AsArrays(self.batches))[self._step :]
        ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
        dataset = rest.to_iter_dataset(ahead)
        if self._workers:
            _ready_for_workers()
            dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=self._workers))
        for found in dataset:
            self._step += 1
            batch = Batch(*(np.asarray(found[name]) for name in ("ids", "known", "valid")))
            rows = tuple(int(i) for i in np.asarray(found["rows"]))
            yield TrainBatch(batch, (self.batches.task,) * len(rows), rows)

    def state(self) -> dict[str, int | str]:
        """See `Source.state`."""
        return {"step": self._step, "data": self._fingerprint}

    def restore(self, state: dict[str, int | str]) -> None:
        """See `Source.restore`."""
        if state.get("data") != self._fingerprint:
            raise ElfError(
                "the data is not what the checkpoint was trained on; restore it, or start anew"
            )
        self._step = int(state["step"])


def _ready_for_workers() -> None:
    """Grain's workers read absl's flags, which a program that is no absl app leaves unparsed."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def open_stream(
    spec: StreamSpec, path: Any, tokenizer: Tokenizer, layout: LayoutSpec, config: DataConfig,
    seed: int, share: tuple[int, int],
) -> Stream:  # fmt: skip
    """A stream over the rows at `path`; what was left out is printed."""
    rows = Rows(path, tokenizer)
    batches = Batches(rows, tokenizer, layout, config, seed, share)
    for line in rows.problems.lines():
        print(line, flush=True)
    if batches.too_long:
        print(f"left out {batches.too_long} rows longer than {spec.length} tokens", flush=True)
    return Stream(batches, rows.fingerprint, spec.workers)
