"""Batches of packed rows for a left-to-right model, of the texts that an ELF run draws.

    translate, summarise, modernise   [task] source [sep] target EOS        loss: target EOS
    infill                            [infill] text with <mask> for each gap [sep] gap EOS gap EOS
                                      loss: all of it, as in fill-in-the-middle training
                                      (Bavarian et al. 2022)
    draft                             [draft] text EOS                      loss: text EOS
    texts alone                       EOS text EOS                          loss: text EOS

Texts are packed into rows of one length; a text sees itself alone. A batch is a pure function of
(seed, step).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elf_engine.layout import Batch
from elf_engine.tokens import MASK_ID
from training.data import PAIR_TASKS, BatchSource, TrainBatch, cut_infill

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Text:
    """Tokens of one text, of which those from `first` on are learned; `row` is its number in the
    data."""

    task: str
    ids: tuple[int, ...]
    first: int
    row: int = 0


@dataclass(frozen=True)
class PackedBatch(TrainBatch):
    """Rows of several texts. `tasks` are those of the N texts; `owner` (B,S) says which text a
    position belongs to, -1 for padding; `learned` (B,S) which tokens are to be predicted."""

    owner: npt.NDArray[np.int64]
    learned: Bools

    @property
    def seen(self) -> Bools:
        """Which positions each position attends to (B,S,S): its own text up to itself. Padding
        sees the padding before it."""
        same = self.owner[:, :, None] == self.owner[:, None, :]
        return same & np.tril(np.ones(same.shape[1:], np.bool_))


class RowSource(BatchSource):
    """Draws texts as `BatchSource` draws rows: the same shares of tasks, lengths and groups."""

    def texts(self, step: int, most: int, plain: bool = False) -> list[Text]:
        """Texts of `step` with `most` tokens in all, or a little less."""
        rng = np.random.default_rng([self.seed, step])
        rows = self.length_share * [self.rows(n) for n in self.lengths]
        share = (self._task_share * (rows / rows.sum())[:, None]).ravel()
        longest = self.lengths[-1]
        found: list[Text] = []
        room = most
        while True:
            # Several at once: a draw among the shares costs as much as a whole text.
            for place in rng.choice(len(share), 32, p=share):
                bucket, task = divmod(int(place), len(self.tasks))
                text = self._text_of(rng, self.tasks[task], bucket, plain)
                if len(text.ids) > longest:
                    continue
                if len(text.ids) > room:
                    return found
                found.append(text)
                room -= len(text.ids)

    def _text_of(self, rng: np.random.Generator, task: str, bucket: int, plain: bool) -> Text:
        example = self._pick(rng, task, bucket)
        eos, sep, lead = self.tokenizer.eos_id, self.layout.sep_id, self.layout.tasks[task]
        encode = self.tokenizer.encode
        if plain:
            return Text("text", (eos, *encode(self._text(example)), eos), 1, example)
        if task in PAIR_TASKS:
            source = (lead, *encode(self.table.source(example)), sep)
            target = (*encode(self.table.target(example)), eos)
            return Text(task, source + target, len(source), example)
        if task == "draft":
            return Text(task, (lead, *encode(self._text(example)), eos), 1, example)
        parts = [(encode(text), free) for text, free in cut_infill(rng, self._text(example))]
        return Text(task, gapped(lead, sep, eos, parts), 1, example)


def gapped(
    lead: int, sep: int, eos: int, parts: Sequence[tuple[list[int], bool]]
) -> tuple[int, ...]:
    """A text with gaps, (tokens, is it free), and what they hold behind it."""
    ids, gaps = [lead], []
    for tokens, free in parts:
        ids += [MASK_ID] if free else tokens
        gaps += [*tokens, eos] if free else []
    return (*ids, sep, *gaps)


def pack(texts: Sequence[Text], rows: int, length: int, pad_id: int) -> PackedBatch:
    """Texts in rows of `length`, the longest first, each in the first row with room. What fits
    nowhere (a short text now and then) is left out."""
    ids = np.full((rows, length), pad_id, np.int32)
    owner = np.full((rows, length), -1, np.int64)
    learned = np.zeros((rows, length), np.bool_)
    used = [0] * rows
    packed: list[Text] = []
    for text in sorted(texts, key=lambda text: -len(text.ids)):
        size = len(text.ids)
        row = next((r for r in range(rows) if used[r] + size <= length), None)
        if row is None:
            continue
        start, stop = used[row], used[row] + size
        ids[row, start:stop] = text.ids
        owner[row, start:stop] = len(packed)
        learned[row, start + text.first : stop] = True
        used[row] = stop
        packed.append(text)
    valid = owner >= 0
    tasks, numbers = tuple(t.task for t in packed), tuple(t.row for t in packed)
    return PackedBatch(Batch(ids, valid & ~learned, valid), tasks, numbers, owner, learned)


class PackedSource:
    """Batches of a run: `draw(step)` gives any of them."""

    def __init__(self, source: RowSource, length: int, plain: bool) -> None:
        self.source, self.plain = source, plain
        self.length = length
        self.rows = max(source.config.batch_tokens // length, 1)

    def draw(self, step: int) -> PackedBatch:
        """The batch of `step`."""
        texts = self.source.texts(step, self.rows * self.length, self.plain)
        return pack(texts, self.rows, self.length, self.source.tokenizer.pad_id)
