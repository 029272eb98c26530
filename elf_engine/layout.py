"""Rows of tokens: where the known text lies and where the model writes.

Training and editors build rows with the same functions, so a model sees at inference what it saw
in training. A row is

    draft      [task] known prefix ... FREE
    infill     [task] left ... FREE ... right ... (FREE ... right ...)*
    pair       [task] source ... [sep] FREE          (translate, summarise, modernise)

`[task]` and `[sep]` are control tokens the tokenizer never produces from text; models without them
(`LayoutSpec.tasks` -1, `sep_id` -1) omit them. A free region that ends early is filled with EOS,
and so is the free text of training rows: the model learns to end a gap itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elf_engine.config import LayoutSpec
from elf_engine.errors import ElfError
from elf_engine.types import Array, BoolArray, IntArray

TASKS = ("draft", "infill", "translate", "summarise", "modernise")


@dataclass(frozen=True)
class Free:
    """A region for the model to write: `size` tokens, of which `text` (training) are the answer."""

    size: int
    text: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ElfError(f"a free region needs at least 1 token, found {self.size}")
        if len(self.text) > self.size:
            raise ElfError(f"{len(self.text)} tokens do not fit a free region of {self.size}")


Piece = Sequence[int] | Free


@dataclass(frozen=True)
class Row:
    """One unpadded row. `ids` holds EOS where text is still to be written; `known` marks fixed
    positions; `free` the (start, stop) of each free region."""

    ids: tuple[int, ...]
    known: tuple[bool, ...]
    free: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Batch:
    """Rows padded to one length. ids (B,S); known, valid (B,S) bool."""

    ids: IntArray
    known: BoolArray
    valid: BoolArray

    @property
    def visible(self) -> BoolArray:
        """Encoder visibility (B,S,S): known tokens see known ones, others every valid token
        (ELF.md, "Latents"). A padding row sees every valid token; nobody reads it."""
        columns_known = (self.known & self.valid)[:, None, :]
        columns_valid = self.valid[:, None, :]
        return np.where(self.known[:, :, None], columns_known, columns_valid)


def build_row(layout: LayoutSpec, eos_id: int, task: str, pieces: Sequence[Piece]) -> Row:
    """Join known pieces (token ids) and free regions after the task's control token.

    Raises ElfError when the model was not trained for `task`.
    """
    if task not in layout.tasks:
        have = ", ".join(layout.tasks) or "none"
        raise ElfError(f"this model cannot do '{task}'; it was trained for: {have}")
    lead = [layout.tasks[task]] if layout.tasks[task] >= 0 else []
    ids: list[int] = list(lead)
    known: list[bool] = [True] * len(lead)
    free: list[tuple[int, int]] = []
    for piece in pieces:
        if isinstance(piece, Free):
            free.append((len(ids), len(ids) + piece.size))
            ids += [*piece.text, *[eos_id] * (piece.size - len(piece.text))]
            known += [False] * piece.size
        else:
            ids += piece
            known += [True] * len(piece)
    return Row(tuple(ids), tuple(known), tuple(free))


def pair_pieces(layout: LayoutSpec, source: Sequence[int], target: Free) -> list[Piece]:
    """Source, separator, free target: the pieces of translate, summarise and modernise."""
    sep = [layout.sep_id] if layout.sep_id >= 0 else []
    return [[*source, *sep], target]


def rotary_positions(layout: LayoutSpec, ids: Array) -> Array | None:
    """Rotary positions (B,S) of token ids (B,S), arrays of NumPy, JAX or PyTorch; None where they
    count through the row. With "source" the first token behind the separator stands at 1, where
    the source's first stands behind the task's token."""
    if layout.positions == "row":
        return None
    index = (ids >= 0).cumsum(1) - 1
    separator = ((ids == layout.sep_id).cumsum(1) == 0).sum(1)[:, None]
    return index - separator * (index > separator)


def bucket(layout: LayoutSpec, max_length: int, size: int) -> int:
    """Padded length for a row of `size` tokens. Raises ElfError when none is long enough."""
    lengths = (max_length,) if layout.padding == "attended" else layout.lengths
    for length in lengths:
        if size <= length:
            return length
    raise ElfError(
        f"{size} tokens are too many for this model; the most it takes is {max(lengths)}"
    )


def pad_rows(rows: Sequence[Row], length: int, pad_id: int) -> Batch:
    """Pad rows on the right to `length`. Padding is neither known nor valid."""
    ids = np.full((len(rows), length), pad_id, np.int32)
    known = np.zeros((len(rows), length), np.bool_)
    valid = np.zeros((len(rows), length), np.bool_)
    for i, row in enumerate(rows):
        if len(row) > length:
            raise ElfError(f"a row of {len(row)} tokens does not fit {length}")
        ids[i, : len(row)] = row.ids
        known[i, : len(row)] = row.known
        valid[i, : len(row)] = True
    return Batch(ids, known, valid)


def cut_at_eos(ids: Sequence[int], eos_id: int) -> list[int]:
    """The tokens before the first EOS."""
    ids = [int(i) for i in ids]
    return ids[: ids.index(eos_id)] if eos_id in ids else ids
