"""Differences between what the engine gives and what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Tolerance:
    """The largest difference allowed: absolute, or relative to the largest stored magnitude."""

    limit: float
    relative: bool = False

    def __str__(self) -> str:
        if self.limit == 0:
            return "equal"
        return f"{self.limit:.0e} {'rel' if self.relative else 'abs'}"


EQUAL = Tolerance(0.0)


@dataclass(frozen=True)
class Row:
    """One compared quantity. `absolute` is the largest difference, `relative` that over the
    largest stored magnitude."""

    case: str
    quantity: str
    backend: str
    absolute: float
    relative: float
    tolerance: Tolerance
    note: str = ""

    @property
    def ok(self) -> bool:
        """NaN counts as a failure: it is not within any limit."""
        found = self.relative if self.tolerance.relative else self.absolute
        return found <= self.tolerance.limit


def compare(
    where: tuple[str, str, str],
    found: npt.ArrayLike,
    stored: npt.ArrayLike,
    tolerance: Tolerance,
) -> Row:
    """Compare `found` with `stored`, in float64; `where` is (case, quantity, backend).

    Another shape differs infinitely. Where both hold the same infinity they agree.
    """
    a, b = np.asarray(found), np.asarray(stored)
    if a.shape != b.shape:
        note = f"shape {a.shape}, stored {b.shape}"
        return Row(*where, np.inf, np.inf, tolerance, note)
    if a.size == 0:
        return Row(*where, 0.0, 0.0, tolerance)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(a64 == b64, 0.0, np.abs(a64 - b64))
    absolute = float(np.max(difference))
    scale = float(np.max(np.abs(b64)))
    return Row(*where, absolute, absolute / scale if scale else absolute, tolerance)


def compare_all(
    where: tuple[str, str, str],
    found: Mapping[str, npt.ArrayLike],
    stored: Mapping[str, npt.ArrayLike],
    tolerance: Tolerance,
) -> Row:
    """The worst of all arrays of a tree, named in the note. The trees must have the same names."""
    odd = sorted(set(stored) ^ set(found))
    if odd:
        return Row(*where, np.inf, np.inf, tolerance, f"{odd[0]} is in only one of the two")
    rows = {name: compare(where, found[name], stored[name], tolerance) for name in stored}
    worst = max(rows, key=lambda name: np.nan_to_num(rows[name].absolute, nan=np.inf))
    note = f"worst of {len(rows)}: {worst} {rows[worst].note}".rstrip()
    return replace(rows[worst], note=note)


def compare_exactly(where: tuple[str, str, str], found: Any, stored: npt.NDArray[Any]) -> Row:
    """Like `compare`, and the type must agree as well."""
    a = np.asarray(found)
    row = compare(where, a, stored, EQUAL)
    if a.dtype == stored.dtype:
        return row
    note = f"type {a.dtype}, stored {stored.dtype}"
    return Row(*where, np.inf, np.inf, EQUAL, note)
