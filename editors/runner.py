"""Runs a plan: every candidate's rows through the engine, answers back into texts."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from editors.plan import Engine, Plan, Regions, Step
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import SampleSpec, to_dict
from elf_engine.errors import ElfError
from elf_engine.layout import Row, bucket
from elf_engine.types import IntArray

# Rows and tokens that go through the network at once.
_ROWS = 16
_TOKENS = 8192


@dataclass(frozen=True)
class _Job:
    """Row `row` of the plan for candidate `sample`."""

    row: int
    sample: int


def run_plan(
    engine: Engine, request: EditRequest, plan: Plan, spec: SampleSpec
) -> Iterator[Progress | EditResult]:
    """Progress after every network step, then one result per candidate that stayed finite.

    Raises ElfError when none did. Closing the iterator stops between two steps.
    """
    started = time.perf_counter()
    run = _Run(engine, request, plan)
    groups = _groups(engine, plan.rows, run.samples)
    for number, jobs in enumerate(groups):
        jobs = [job for job in jobs if job.sample not in run.broken]
        if jobs:
            yield from run.sample(jobs, spec, number, len(groups))
    if len(run.broken) == len(run.samples):
        raise ElfError(next(iter(run.broken.values())) + "; try lower guidance or more steps")
    settings = to_dict(spec) | {"effective_steps": run.steps} | dict(plan.settings)
    seconds = time.perf_counter() - started
    lost = tuple(f"candidate {i} was dropped: {why}" for i, why in sorted(run.broken.items()))
    for sample in run.samples:
        if sample not in run.broken:
            answer = plan.assemble(run.answers(sample))
            yield EditResult(
                text=answer.text,
                seed=spec.seed,
                index=sample,
                editor=request.editor,
                input=request.text,
                model=engine.config.name,
                model_hash=engine.model_hash,
                backend=backend_name(engine),
                settings=settings,
                seconds=seconds,
                warnings=(*plan.warnings, *answer.warnings, *lost),
                trajectory=tuple(run.trajectory[sample]),
            )


def backend_name(engine: Engine) -> str:
    """ "jax" or "torch"."""
    return str(getattr(engine.backend, "name", engine.backend))


def _groups(engine: Engine, rows: Sequence[Row], samples: Sequence[int]) -> list[list[_Job]]:
    """Jobs that run together: rows of one padded length, few enough for memory."""
    layout, most = engine.config.layout, engine.config.network.max_length
    by_length: dict[int, list[_Job]] = {}
    for index, row in enumerate(rows):
        jobs = by_length.setdefault(bucket(layout, most, len(row)), [])
        jobs += [_Job(index, sample) for sample in samples]
    groups = []
    for length, jobs in sorted(by_length.items()):
        size = max(1, min(_ROWS, _TOKENS // length))
        groups += [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return groups


class _Run:
    """What has been sampled so far."""

    def __init__(self, engine: Engine, request: EditRequest, plan: Plan) -> None:
        self._engine = engine
        self._live = request.texts_every_step
        self._plan = plan
        self.samples = range(request.first, request.first + request.count)
        self.broken: dict[int, str] = {}
        self.trajectory: dict[int, list[str]] = {sample: [] for sample in self.samples}
        self.steps = 0
        self._regions: dict[_Job, Regions] = {}

    def sample(
        self, jobs: Sequence[_Job], spec: SampleSpec, number: int, groups: int
    ) -> Iterator[Progress]:
        """Run one group through all its steps."""
        batch = self._engine.batch([self._plan.rows[job.row] for job in jobs])
        origin = batch.ids if self._plan.t_start > 0 else None
        samples = [job.sample for job in jobs]
        last: Step | None = None
        steps = self._engine.sample(batch, spec, samples, origin, self._plan.t_start)
        try:
            for last in steps:
                self._drop_broken(jobs, last)
                if all(job.sample in self.broken for job in jobs):
                    return
                texts = self._texts(jobs, last.ids()) if self._live else ()
                self.steps = last.steps
                yield Progress(number * last.steps + last.index, groups * last.steps, last.t, texts)
        finally:
            if isinstance(steps, Generator):
                steps.close()
        if last is not None:
            self._keep(jobs, last.ids())

    def answers(self, sample: int) -> list[Regions]:
        """The candidate's regions row by row, empty where not sampled yet."""
        return [
            self._regions.get(_Job(index, sample), [()] * len(row.free))
            for index, row in enumerate(self._plan.rows)
        ]

    def _keep(self, jobs: Sequence[_Job], ids: IntArray) -> None:
        for job, line in zip(jobs, ids, strict=True):
            free = self._plan.rows[job.row].free
            self._regions[job] = [[int(i) for i in line[a:b]] for a, b in free]

    def _texts(self, jobs: Sequence[_Job], ids: IntArray) -> tuple[str, ...]:
        self._keep(jobs, ids)
        texts = []
        for sample in self.samples:
            text = "" if sample in self.broken else self._plan.assemble(self.answers(sample)).text
            self.trajectory[sample].append(text)
            texts.append(text)
        return tuple(texts)

    def _drop_broken(self, jobs: Sequence[_Job], step: Step) -> None:
        """No NaN reaches decoding: a row that is no longer finite ends its candidate."""
        norms = step.norms()
        for job, finite in zip(jobs, np.isfinite(norms), strict=True):
            if not finite:
                self.broken.setdefault(
                    job.sample,
                    f"the state stopped being finite at step {step.index} of {step.steps} "
                    f"(t {float(step.t):.3f})",
                )
