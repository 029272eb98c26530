"""Several runs through one network step: what an edit gets does not depend on its company.

The step takes times, noise and guidance per row, so runs need not have begun together nor have
equally many steps; they share a step when model, padded length and passes are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elf_engine import samplers
from elf_engine.backends.protocol import Backend
from elf_engine.config import SampleSpec
from elf_engine.layout import Batch, Row
from elf_engine.pipeline import MAX_ROWS, Engine, Run, Step, padded_rows
from elf_engine.types import IntArray

# Rows and tokens of one shared step. More rows gain nothing on a CPU, and Stop would wait longer.
SHARED_ROWS = 16
SHARED_TOKENS = 8192


def move(engine: Engine, runs: Sequence[Run]) -> None:
    """One network step of all `runs`, which are of one kind and at most MAX_ROWS rows."""
    step = engine.stepper(runs[0].passes)
    if len(runs) == 1:
        runs[0].walk.take(*step(*runs[0].walk.inputs()))
        return
    z, x = step(*_joined(engine.backend, runs))
    if engine.backend.fixed_shapes:
        z, x = engine.backend.to_numpy(z), engine.backend.to_numpy(x)
    start = 0
    for run in runs:
        here = slice(start, start + run.rows)
        if engine.backend.fixed_shapes:
            size = padded_rows(run.rows)
            run.walk.take(_filled(z[here], size), _filled(x[here], size))
        else:
            run.walk.take(z[here], x[here])
        start += run.rows


def _joined(backend: Backend, runs: Sequence[Run]) -> samplers.Inputs:
    """The rows of all runs below one another, in every array of their inputs."""
    size = padded_rows(sum(run.rows for run in runs))

    def join(parts: Sequence[Any]) -> Any:
        if parts[0] is None:
            return None
        if not backend.fixed_shapes:
            return backend.xp.concat(list(parts))
        # Joining on the device would compile a program for every mixture of sizes.
        pairs = zip(parts, runs, strict=True)
        rows = np.concatenate([backend.to_numpy(part)[: run.rows] for part, run in pairs])
        return backend.asarray(_filled(rows, size))

    inputs = [run.walk.inputs() for run in runs]
    return tuple(
        tuple(join(parts) for parts in zip(*group, strict=True))
        for group in zip(*inputs, strict=True)
    )


def _filled(rows: Any, size: int) -> Any:
    """NumPy rows with the last repeated up to `size`."""
    return rows[np.minimum(np.arange(size), len(rows) - 1)]


@dataclass(eq=False)
class _Member:
    """A run that takes part; `ahead` when it has a step that its reader has not seen."""

    run: Run
    ahead: bool = False


class Together:
    """An engine for several readers that take turns in one thread.

    `sample` gives each the steps that `Engine.sample` would. A reader that asks for its next step
    moves every other of its kind too, as far as that one has seen its last; a reader that stops
    asking and closes its iterator takes its rows out. When a shared step fails, its reader is
    served alone, so that nobody sees another's error.
    """

    def __init__(self, engine: Engine, most_rows: int = SHARED_ROWS) -> None:
        self.engine = engine
        self.config, self.backend, self.tokenizer = engine.config, engine.backend, engine.tokenizer
        self.model_hash, self.path = engine.model_hash, engine.path
        self.max_tokens = engine.max_tokens
        self.shared_steps = 0
        self._most_rows = min(most_rows, MAX_ROWS)
        self._open: list[_Member] = []

    def batch(self, rows: Sequence[Row]) -> Batch:
        """See `Engine.batch`."""
        return self.engine.batch(rows)

    def sample(
        self,
        batch: Batch,
        spec: SampleSpec | Sequence[SampleSpec],
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Iterator[Step]:
        """See `Engine.sample`."""
        mine = _Member(self.engine.start(batch, spec, samples, origin, t_start))
        self._open.append(mine)
        try:
            while mine.ahead or not mine.run.walk.ended:
                if not mine.ahead:
                    self._advance(mine)
                mine.ahead = False
                yield mine.run.step()
        finally:
            self._open.remove(mine)

    def _advance(self, mine: _Member) -> None:
        company = self._company(mine)
        try:
            move(self.engine, [member.run for member in company])
        except Exception:
            if len(company) == 1:
                raise
            self._most_rows = max(1, self._most_rows // 2)  # it may have been memory
            company = [mine]
            move(self.engine, [mine.run])
        self.shared_steps += len(company) > 1
        for member in company:
            member.ahead = True

    def _company(self, mine: _Member) -> list[_Member]:
        """`mine`, and those of its kind that have seen their last step, while there is room."""
        company, rows = [mine], mine.run.rows
        most = min(self._most_rows, SHARED_TOKENS // mine.run.length)
        for member in self._open:
            waits = not (member is mine or member.ahead or member.run.walk.ended)
            if waits and member.run.kind == mine.run.kind and rows + member.run.rows <= most:
                company.append(member)
                rows += member.run.rows
        return company
