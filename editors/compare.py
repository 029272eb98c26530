"""Compare: one request, several models or settings, one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from editors.calibration import Described, settings
from editors.plan import Engine
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

Run = Callable[[Engine, EditRequest], Iterator[Progress | EditResult]]


KNOBS: dict[str, type] = {f.name: type(f.default) for f in fields(SampleSpec)}
KNOBS |= {"quality": float, "strength": float, "model": str, "backend": str}
_KIND = {int: "whole number", float: "number"}


@dataclass(frozen=True)
class Cell:
    """One column: a model, a quality, and knobs (fields of SampleSpec, or "strength")."""

    model: str
    backend: str
    quality: float | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """What a cell gave: its results, or one line about why there are none."""

    cell: Cell
    results: tuple[EditResult, ...] = ()
    error: str = ""


def run_cells(
    load: Callable[[str, str], Engine], run: Run, request: EditRequest, cells: Sequence[Cell]
) -> Iterator[Compared | Progress]:
    """Progress of each cell and then what it gave, cell by cell; one that fails says so and the
    others go on. `load(model, backend)` gives an engine."""
    for cell in cells:
        results: list[EditResult] = []
        try:
            engine = load(cell.model, cell.backend)
            for item in run(engine, asked(engine, request, cell)):
                if isinstance(item, Progress):
                    yield item
                else:
                    results.append(item)
        except ElfError as error:
            yield Compared(cell, error=str(error))
        except Exception as error:
            # A defect in one cell must not take the finished ones with it.
            yield Compared(cell, error=f"a defect ({type(error).__name__}: {error})")
        else:
            yield Compared(cell, tuple(results))


def asked(engine: Described, request: EditRequest, cell: Cell) -> EditRequest:
    """The request with the settings of the cell. Raises ElfError for a value out of range."""
    knobs = dict(cell.knobs)
    strength = float(knobs.pop("strength", request.strength))
    spec = settings(engine, request.editor, cell.quality, **knobs)
    return replace(request, settings=spec, quality=cell.quality, strength=strength)


def parse_knob(name: str, value: str) -> Any:
    """The value of a knob as typed. Raises ElfError for a knob that is none, or no number; whether
    a number is in range, its own cell says."""
    if name not in KNOBS:
        raise ElfError(f"knob '{name}' is unknown; choose one of {', '.join(sorted(KNOBS))}")
    try:
        return KNOBS[name](value)
    except ValueError as error:
        raise ElfError(f"{name} '{value}' is no {_KIND[KNOBS[name]]}") from error


def cell_of(model: str, backend: str, pairs: Iterable[tuple[str, str]]) -> Cell:
    """A cell from knobs as typed, over a model and a backend. Raises ElfError."""
    knobs: dict[str, Any] = {"model": model, "backend": backend, "quality": None}
    for name, value in pairs:
        name = name.replace("-", "_")
        knobs[name] = parse_knob(name, value)
    return Cell(knobs.pop("model"), knobs.pop("backend"), knobs.pop("quality"), knobs)
