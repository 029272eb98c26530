"""Compare: one request, several models or settings, one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from editors.calibration import settings
from editors.plan import Engine
from editors.request import EditRequest, EditResult, Progress
from elf_engine.errors import ElfError

Run = Callable[[Engine, EditRequest], Iterator[Progress | EditResult]]


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
            for item in run(engine, _asked(engine, request, cell)):
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


def _asked(engine: Engine, request: EditRequest, cell: Cell) -> EditRequest:
    knobs = dict(cell.knobs)
    strength = float(knobs.pop("strength", request.strength))
    spec = settings(engine, request.editor, cell.quality, **knobs)
    return replace(request, settings=spec, quality=cell.quality, strength=strength)
