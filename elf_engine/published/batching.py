"""Batches and outputs as the published models know them (ELF.md, "Training" and "Behaviour")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elf_engine.layout import Batch
from elf_engine.types import IntArray


@dataclass(frozen=True)
class Example:
    """Token ids of one example; `source` is empty for plain text."""

    target: Sequence[int]
    source: Sequence[int] = ()


def collate(
    examples: Sequence[Example], length: int, pad_id: int, max_source: int | None = None
) -> Batch:
    """Rows [source target] of `length` tokens: the source cut to `max_source`, then the row to
    `length`, so a long source leaves no room for its target."""
    ids = np.full((len(examples), length), pad_id, np.int32)
    known = np.zeros(ids.shape, np.bool_)
    valid = np.zeros(ids.shape, np.bool_)
    for i, example in enumerate(examples):
        source = list(example.source)[:max_source]
        row = [*source, *example.target][:length]
        ids[i, : len(row)] = row
        known[i, : len(source)] = True
        valid[i, : len(row)] = True
    return Batch(ids, known, valid)


def shift_left(rows: npt.NDArray[Any], shift: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
    """Move row i of (B,S) or (B,S,D) left by shift[i], filling from the right."""
    size = rows.shape[1]
    place = np.arange(size)[None, :] + np.asarray(shift)[:, None]
    beyond = place >= size
    place = np.minimum(place, size - 1)
    if rows.ndim == 3:
        place, beyond = place[..., None], beyond[..., None]
    return np.where(beyond, np.asarray(fill, rows.dtype), np.take_along_axis(rows, place, 1))


def drop_condition(ids: npt.NDArray[Any], lengths: npt.NDArray[Any], pad_id: int) -> IntArray:
    """The written tokens (B,S): each row without its leading condition, padded on the right."""
    return np.asarray(shift_left(ids, lengths, pad_id), np.int32)


def mask_after_eos(ids: npt.NDArray[Any], eos_id: int, pad_id: int) -> IntArray:
    """ids (B,S) with the first EOS and all after it replaced by `pad_id`."""
    ended = np.cumsum(ids == eos_id, axis=1) > 0
    return np.asarray(np.where(ended, pad_id, ids), np.int32)
