"""Many requests through one model at once: rows of different requests share a batch.

A row's answer depends on its own seed and sample alone (`elf_engine.noise`), so this gives what
`editors.edit` gives for each request by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import editors
from editors.changes import splice
from editors.plan import Plan, Region
from editors.request import EditRequest
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Row, bucket

ROWS, TOKENS = 16, 8192


@dataclass(frozen=True)
class Sampled:
    """What became of one request: its text, or the one line that says why there is none.

    written  what the model wrote, without the text around it
    seconds  its share of the batches it was in
    """

    text: str
    written: str
    seconds: float
    error: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    request: int
    row: int


def run_many(engine: Any, requests: Sequence[EditRequest]) -> list[Sampled]:
    """One candidate (noise sample `first`) of every request, in order. Their settings must agree in
    all but the seed; a request that cannot be planned or breaks down gives its error."""
    plans: list[Plan | None] = []
    errors: dict[int, str] = {}
    for k, request in enumerate(requests):
        try:
            plans.append(editors.EDITORS[request.editor](engine, request))
        except ElfError as error:
            plans.append(None)
            errors[k] = str(error)
    answers: dict[_Job, list[Region]] = {}
    seconds = [0.0] * len(requests)
    for jobs in _groups(engine, plans):
        started = time.perf_counter()
        found = _run(engine, [plans[job.request] for job in jobs], requests, jobs)
        share = (time.perf_counter() - started) / len(jobs)
        for job, regions in zip(jobs, found, strict=True):
            seconds[job.request] += share
            if regions is None:
                errors[job.request] = "the state stopped being finite"
            else:
                answers[job] = regions
    return [
        _finish(
            request,
            plan,
            [answers.get(_Job(k, r)) for r in range(_size(plan))],
            errors.get(k, ""),
            seconds[k],
        )
        for k, (request, plan) in enumerate(zip(requests, plans, strict=True))
    ]


def _size(plan: Plan | None) -> int:
    return len(plan.rows) if plan is not None else 0


def _groups(engine: Any, plans: Sequence[Plan | None]) -> Iterator[list[_Job]]:
    """Jobs of one padded length and start time, few enough for memory."""
    layout, most = engine.config.layout, engine.config.network.max_length
    places: dict[tuple[int, float], list[_Job]] = {}
    for k, plan in enumerate(plans):
        for r, row in enumerate(plan.rows if plan is not None else ()):
            assert plan is not None
            key = (bucket(layout, most, len(row)), plan.t_start)
            places.setdefault(key, []).append(_Job(k, r))
    for (length, _), jobs in sorted(places.items()):
        size = max(1, min(ROWS, TOKENS // length))
        yield from (jobs[i : i + size] for i in range(0, len(jobs), size))


def _run(
    engine: Any, plans: Sequence[Plan | None], requests: Sequence[EditRequest], jobs: Sequence[_Job]
) -> list[list[Region] | None]:
    """Token ids of the free regions of every job's row, None where the state broke down."""
    rows: list[Row] = []
    specs: list[SampleSpec] = []
    for plan, job in zip(plans, jobs, strict=True):
        settings = requests[job.request].settings
        assert plan is not None
        assert settings is not None
        rows.append(plan.rows[job.row])
        specs.append(settings)
    t_start = plans[0].t_start if plans[0] is not None else 0.0
    batch = engine.batch(rows)
    origin = batch.ids if t_start > 0 else None
    samples = [requests[job.request].first for job in jobs]
    last = None
    for step in engine.sample(batch, specs, samples, origin, t_start):
        last = step
    assert last is not None
    own = last.ids()
    must = np.zeros(own.shape, np.bool_)
    for b, (plan, job) in enumerate(zip(plans, jobs, strict=True)):
        assert plan is not None
        for (start, _), least in zip(
            rows[b].free, plan.least[job.row] if plan.least else (), strict=False
        ):
            must[b, start : start + least] = True
    lines = last.ids(must) if must.any() else own
    return [
        [_region(free[a:z], line[a:z]) for a, z in row.free] if good else None
        for row, free, line, good in zip(rows, own, lines, np.isfinite(last.norms()), strict=True)
    ]


def _region(free: Any, line: Any) -> Region:
    """The ids of a region, and where the model would have ended it by itself."""
    differ = np.flatnonzero(free != line)
    return Region(tuple(int(i) for i in line), int(differ[0]) if len(differ) else None)


def _finish(
    request: EditRequest, plan: Plan | None, regions: Sequence[Any], error: str, seconds: float
) -> Sampled:
    if plan is None or error:
        return Sampled("", "", seconds, error)
    answer = plan.assemble(regions)
    written = " ".join(change.after.strip() for change in answer.changes)
    text = splice(request.text, answer.changes)
    return Sampled(text, written, seconds, "", (*plan.warnings, *answer.warnings))
