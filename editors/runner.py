"""Runs a plan: every candidate's rows through the engine, answers back into texts."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from editors.changes import distance, splice
from editors.plan import Answer, Engine, Plan, Regions, Step
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import SampleSpec, to_dict
from elf_engine.errors import ElfError
from elf_engine.layout import Row, bucket
from elf_engine.types import FloatArray, IntArray

# Rows and tokens that go through the network at once.
_ROWS = 16
_TOKENS = 8192
# Noise samples looked at for one candidate before a repetition is let be.
_TRIES = 4


@dataclass(frozen=True)
class Outcome:
    """What became of one noise sample: a text and its answer."""

    text: str
    answer: Answer


def run_plan(
    engine: Engine, request: EditRequest, plan: Plan, spec: SampleSpec, noted: Mapping[str, Any]
) -> Iterator[Progress | EditResult]:
    """Progress after every network step, then one result per candidate that stayed finite.

    `noted` goes into the results' settings. Raises ElfError when no candidate stayed finite.
    Closing the iterator stops between two steps.
    """
    started = time.perf_counter()
    run = _Run(engine, request, plan, spec)
    chosen, wanted = pick(request, run.done)
    while wanted:
        yield from run.sample([*chosen, *wanted][: request.count], wanted)
        chosen, wanted = pick(request, run.done)
    if not chosen:
        raise ElfError(next(iter(run.broken.values())) + "; try lower guidance or more steps")
    warnings = [f"candidate {i} was dropped: {why}" for i, why in sorted(run.broken.items())]
    if request.distinct and len(chosen) < request.count:
        warnings.append(f"only {len(chosen)} of {request.count} candidates differ; others repeat")
    settings = to_dict(spec) | {"effective_steps": run.steps} | dict(plan.settings) | dict(noted)
    seconds = time.perf_counter() - started
    results = [run.result(sample, settings, seconds, warnings) for sample in chosen]
    yield from sorted(results, key=_RANKS[request.rank])


# Stable, so candidates of equal rank keep the order of their samples.
_RANKS: dict[str, Any] = {
    "sample": lambda result: 0,
    "distance": lambda result: -result.scores["chrf"],
    "fit": lambda result: -result.scores.get("fit", 0.0),
}


def pick(request: EditRequest, done: Mapping[int, Outcome | None]) -> tuple[list[int], list[int]]:
    """The samples that are the candidates, and those to run before more can be said.

    `done` holds what became of a sample, None for one that broke down. Candidates are taken one
    after the other, so a smaller count gives the same first ones.
    """
    if not request.distinct:
        asked = range(request.first, request.first + request.count)
        chosen = [sample for sample in asked if done.get(sample) is not None]
        return chosen, [sample for sample in asked if sample not in done]
    chosen, texts, start = [], set(), request.first
    while len(chosen) < request.count:
        window = range(start, start + _TRIES)
        found = [(s, outcome) for s in window if (outcome := done.get(s)) is not None]
        fresh = [(s, outcome) for s, outcome in found if outcome.text not in texts]
        fitting = [(s, outcome) for s, outcome in fresh if outcome.answer.fits]
        todo = [s for s in window if s not in done]
        if not fitting and todo:
            missing = request.count - len(chosen)
            return chosen, list(range(todo[0], todo[0] + missing))
        if not fresh:
            break
        sample, outcome = (fitting or fresh)[0]
        chosen.append(sample)
        texts.add(outcome.text)
        start = sample + 1
    return chosen, []


@dataclass(frozen=True)
class _Job:
    """Row `row` of the plan for candidate `sample`."""

    row: int
    sample: int


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

    def __init__(self, engine: Engine, request: EditRequest, plan: Plan, spec: SampleSpec) -> None:
        self._engine, self._request, self._plan, self._spec = engine, request, plan, spec
        self.done: dict[int, Outcome | None] = {}
        self.broken: dict[int, str] = {}
        self.steps = 0
        self._groups_done = 0
        self._regions: dict[_Job, Regions] = {}
        self._confidence: dict[int, list[float]] = {}
        self._trajectory: dict[int, list[str]] = {}

    def sample(self, shown: Sequence[int], samples: Sequence[int]) -> Iterator[Progress]:
        """Run these samples to their end; the texts of `shown` go into the progress."""
        groups = _groups(self._engine, self._plan.rows, samples)
        total = self._groups_done + len(groups)
        for jobs in groups:
            jobs = [job for job in jobs if job.sample not in self.broken]
            for step in self._steps_of(jobs) if jobs else ():
                texts: tuple[str, ...] = ()
                if self._request.texts_every_step:
                    texts = self._texts(jobs, step.ids(), shown)
                at = self._groups_done * step.steps + step.index
                yield Progress(at, total * step.steps, step.t, texts)
            self._groups_done += 1
        for sample in samples:
            self.done[sample] = None if sample in self.broken else self._outcome(sample)

    def result(
        self, sample: int, settings: dict[str, Any], seconds: float, warnings: Sequence[str]
    ) -> EditResult:
        """The candidate that `sample` became."""
        outcome, request = self.done[sample], self._request
        assert outcome is not None
        changes = outcome.answer.changes
        scores = distance(changes) if self._plan.scored else {}
        if sample in self._confidence:
            scores["fit"] = round(float(np.mean(self._confidence[sample])), 4)
        return EditResult(
            text=outcome.text,
            seed=self._spec.seed,
            index=sample,
            editor=request.editor,
            input=request.text,
            model=self._engine.config.name,
            model_hash=self._engine.model_hash,
            backend=str(getattr(self._engine.backend, "name", self._engine.backend)),
            settings=dict(settings),
            seconds=seconds,
            warnings=(*self._plan.warnings, *outcome.answer.warnings, *warnings),
            trajectory=tuple(self._trajectory.get(sample, ())),
            changes=tuple(change for change in changes if change.before != change.after),
            scores=scores,
        )

    def _steps_of(self, jobs: Sequence[_Job]) -> Iterator[Step]:
        """The steps of one group, its answers kept after the last."""
        plan = self._plan
        batch = self._engine.batch([plan.rows[job.row] for job in jobs])
        origin = batch.ids if plan.t_start > 0 else None
        samples = [job.sample for job in jobs]
        steps = self._engine.sample(batch, self._spec, samples, origin, plan.t_start)
        last: Step | None = None
        try:
            for last in steps:
                self._drop_broken(jobs, last)
                if all(job.sample in self.broken for job in jobs):
                    return
                self.steps = last.steps
                yield last
        finally:
            if isinstance(steps, Generator):
                steps.close()
        if last is not None:
            self._keep(jobs, last.ids())
            if self._request.rank == "fit":
                self._keep_confidence(jobs, last.confidence())

    def _outcome(self, sample: int) -> Outcome:
        rows = range(len(self._plan.rows))
        answer = self._plan.assemble([self._regions.get(_Job(row, sample)) for row in rows])
        return Outcome(splice(self._request.text, answer.changes), answer)

    def _keep(self, jobs: Sequence[_Job], ids: IntArray) -> None:
        for job, line in zip(jobs, ids, strict=True):
            free = self._plan.rows[job.row].free
            self._regions[job] = [[int(i) for i in line[a:b]] for a, b in free]

    def _keep_confidence(self, jobs: Sequence[_Job], confidence: FloatArray) -> None:
        """Of the tokens written and the EOS behind them; the rest of a region says nothing."""
        eos = self._engine.tokenizer.eos_id
        for job, line in zip(jobs, confidence, strict=True):
            for region, (start, _) in zip(
                self._regions[job], self._plan.rows[job.row].free, strict=True
            ):
                size = [*region, eos].index(eos) + 1
                kept = line[start : start + min(size, len(region))]
                self._confidence.setdefault(job.sample, []).extend(float(c) for c in kept)

    def _texts(self, jobs: Sequence[_Job], ids: IntArray, shown: Sequence[int]) -> tuple[str, ...]:
        self._keep(jobs, ids)
        fresh = {job.sample for job in jobs} - self.broken.keys()
        texts = {s: self._outcome(s).text for s in {*shown, *fresh} if s not in self.broken}
        for sample in fresh:
            self._trajectory.setdefault(sample, []).append(texts[sample])
        return tuple(texts.get(sample, "") for sample in shown)

    def _drop_broken(self, jobs: Sequence[_Job], step: Step) -> None:
        """No NaN reaches decoding: a row that is no longer finite ends its candidate."""
        for job, finite in zip(jobs, np.isfinite(step.norms()), strict=True):
            if not finite:
                self.broken.setdefault(
                    job.sample,
                    f"the state stopped being finite at step {step.index} of {step.steps} "
                    f"(t {float(step.t):.3f})",
                )
