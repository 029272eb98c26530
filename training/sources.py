"""Where the training loop gets its batches: one protocol for the table and for the streams.

`batches.stream` of the config names data of one's own (Arrow, JSONL, text); without it the batches
are drawn from the corpus table. Both are pure functions of (seed, step), so the position to save
is a step, whatever the number of workers or processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from elf_engine.errors import ElfError
from elf_engine.layout import Batch
from training import lines, table
from training.config import TrainConfig, open_tokenizer
from training.corpus import Split
from training.data import BatchSource, TrainBatch

State = dict[str, int | str]


class Source(Protocol):
    """Batches without end. `draw(step)` gives any of them; iterating goes on from the position
    (at first 0) and advances it. Restoring `state()` after N batches gives batch N next."""

    def draw(self, step: int) -> TrainBatch:
        """This process's rows of the global batch of `step`."""
        ...

    def __iter__(self) -> Iterator[TrainBatch]: ...

    def state(self) -> State:
        """Position and what it belongs to: plain JSON values."""
        ...

    def restore(self, state: State) -> None:
        """Go on from `state`. Raises ElfError when it belongs to other data."""
        ...


def shard(batch: TrainBatch, index: int, count: int) -> TrainBatch:
    """Rows of process `index` of `count`: contiguous, so that joining the processes' rows in their
    order gives the global batch. Raises ElfError when they do not divide evenly."""
    if count == 1:
        return batch
    rows = len(batch.tasks)
    if rows % count:
        raise ElfError(f"a batch of {rows} rows does not divide among {count} processes")
    mine = slice(index * rows // count, (index + 1) * rows // count)
    whole = batch.batch
    part = Batch(whole.ids[mine], whole.known[mine], whole.valid[mine])
    return TrainBatch(part, batch.tasks[mine], batch.rows[mine])


class TableSource:
    """The corpus table as a `Source`; every process draws the whole batch and keeps its rows."""

    def __init__(self, source: BatchSource, index: int = 0, count: int = 1) -> None:
        self.source = source
        self._index, self._count, self._step = index, count, 0

    def draw(self, step: int) -> TrainBatch:
        """See `Source.draw`."""
        return shard(self.source.draw(step), self._index, self._count)

    def __iter__(self) -> Iterator[TrainBatch]:
        while True:
            batch = self.draw(self._step)
            self._step += 1
            yield batch

    def state(self) -> State:
        """See `Source.state`."""
        return {"step": self._step, "rows": len(self.source.table)}

    def restore(self, state: State) -> None:
        """See `Source.restore`."""
        if state["rows"] != len(self.source.table):
            raise ElfError(
                f"the data has {len(self.source.table)} rows, the checkpoint's had "
                f"{state['rows']}; restore the corpus it was trained on"
            )
        self._step = int(state["step"])


def open_table(config: TrainConfig, split: Split = "train") -> table.Table:
    """Rows of one split of the config's corpus, or the built-in lines when it names none."""
    file = Path(config.tokenizer)
    tokenizer = open_tokenizer(config)
    if not config.data:
        return table.build(lines.examples(), tokenizer)
    cache = Path(config.runs) / "cache"
    return table.cached(Path(config.data), split, tokenizer, file, cache)


def open_source(
    config: TrainConfig, split: Split = "train", process_index: int = 0, process_count: int = 1
) -> Source:
    """Batches of one split, this process's rows of each."""
    tokenizer = open_tokenizer(config)
    share = (process_index, process_count)
    spec = config.batches.stream
    if spec is not None:
        from training.hub import local
        from training.stream import open_stream

        name = spec.train if split == "train" else spec.validation
        if not name:
            raise ElfError(f"batches.stream names no {split} data; add stream.validation")
        return open_stream(
            spec, local(name), tokenizer, config.layout, config.batches, config.seed, share
        )
    rows = open_table(config, split)
    source = BatchSource(rows, tokenizer, config.layout, config.batches, config.seed)
    return TableSource(source, *share)


def padding(batch: Batch) -> float:
    """Share of the batch's positions that hold no text."""
    return 1.0 - float(np.mean(batch.valid))
