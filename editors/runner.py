"""Runs a plan: every candidate's rows through the engine, answers back into texts."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editors.changes import distance, splice
from editors.plan import Answer, Engine, Plan, Region, Regions, Step
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import SampleSpec, to_dict
from elf_engine.errors import ElfError
from elf_engine.layout import Row, bucket
from elf_engine.types import BoolArray, FloatArray, IntArray

# Rows and tokens that go through the network at once.
_ROWS = 16
_TOKENS = 8192
# Rows done in the order of the text before those behind them; within, rows of one length together.
_WINDOW = 128
# Characters of text per step that are kept for one request.
_KEPT = 2**26
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

    Unless they are ranked, results come as soon as they are known; the last says what became of
    the others. `noted` goes into the results' settings. Raises ElfError when no candidate stayed
    finite. Closing the iterator stops between two steps.
    """
    run = _Run(engine, request, plan, spec, noted)
    early = request.rank == "sample"
    chosen, wanted = pick(request, run.done)
    given = known = 0
    while wanted:
        for progress in run.sample([*chosen, *wanted][: request.count], wanted):
            yield progress
            if early and len(run.done) > known:
                known = len(run.done)
                ready = pick(request, run.done)[0][:-1]
                yield from (run.result(sample) for sample in ready[given:])
                given = max(given, len(ready))
        # What has been read already cannot be replaced by another candidate.
        chosen, wanted = ([], []) if run.told and run.broken else pick(request, run.done)
    if not chosen:
        raise ElfError(next(iter(run.broken.values())) + "; try lower guidance or more steps")
    more: list[str] = []
    if request.distinct and len(chosen) < request.count:
        more.append(f"only {len(chosen)} of {request.count} candidates differ; others repeat")
    results = [run.result(sample, more) for sample in chosen[given:]]
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


def _groups(engine: Engine, rows: Sequence[Row], jobs: Sequence[_Job]) -> list[list[_Job]]:
    """Jobs that run together: rows of one padded length, few enough for memory."""
    layout, most = engine.config.layout, engine.config.network.max_length
    groups = []
    for start in range(0, len(jobs), _WINDOW):
        by_length: dict[int, list[_Job]] = {}
        for job in jobs[start : start + _WINDOW]:
            by_length.setdefault(bucket(layout, most, len(rows[job.row])), []).append(job)
        for length, alike in sorted(by_length.items()):
            size = max(1, min(_ROWS, _TOKENS // length))
            groups += [alike[i : i + size] for i in range(0, len(alike), size)]
    return groups


class _Run:
    """What has been sampled so far."""

    def __init__(
        self,
        engine: Engine,
        request: EditRequest,
        plan: Plan,
        spec: SampleSpec,
        noted: Mapping[str, Any],
    ) -> None:
        self._engine, self._request, self._plan, self._spec = engine, request, plan, spec
        self._noted = noted
        self._started = time.perf_counter()
        self.done: dict[int, Outcome | None] = {}
        self.broken: dict[int, str] = {}
        self.steps = 0
        self.told = 0  # characters of the result given in advance
        self._groups_done = 0
        self._kept = 0
        self._regions: dict[_Job, Regions] = {}
        self._confidence: dict[int, list[float]] = {}
        self._trajectory: dict[int, list[str]] = {}

    def sample(self, shown: Sequence[int], samples: Sequence[int]) -> Iterator[Progress]:
        """Run these samples to their end; the texts of `shown` go into the progress."""
        rows = len(self._plan.rows)
        order = [_Job(row, sample) for sample in samples for row in range(rows)]
        groups = _groups(self._engine, self._plan.rows, order)
        total = self._groups_done + len(groups)
        over: set[_Job] = set()
        front = 0
        settled = ""
        for group in groups:
            jobs = [job for job in group if job.sample not in self.broken]
            for step in self._steps_of(jobs) if jobs else ():
                texts: tuple[str, ...] = ()
                wanted = rows <= _WINDOW or step.index == step.steps
                if self._request.texts_every_step and wanted:
                    texts = self._texts(jobs, step, shown)
                at = self._groups_done * step.steps + step.index
                yield Progress(at, total * step.steps, step.t, texts, settled)
                settled = ""
            self._groups_done += 1
            over.update(group)
            before = front
            while front < len(order) and order[front] in over:
                front += 1
            for sample in samples[before // rows : front // rows]:
                self._finish(sample)
            if front > before and rows > _WINDOW and self._request.count == 1:
                settled += self._settled(samples[0], front)
        for sample in samples if not rows else ():
            self._finish(sample)

    def _finish(self, sample: int) -> None:
        self.done[sample] = None if sample in self.broken else self._outcome(sample)

    def _settled(self, sample: int, rows: int) -> str:
        """What became known of the text of the only candidate, `rows` of its rows being done."""
        if sample in self.broken or not self._plan.stops:
            return ""
        stop = self._plan.stops[rows - 1]
        known = [self._regions[_Job(row, sample)] for row in range(rows)]
        rest = [None] * (len(self._plan.rows) - rows)
        changes = self._plan.assemble([*known, *rest]).changes
        text = splice(self._request.text[:stop], [c for c in changes if c.stop <= stop])
        new, self.told = text[self.told :], len(text)
        return new

    def result(self, sample: int, more: Sequence[str] = ()) -> EditResult:
        """The candidate that `sample` became, `more` being said about it."""
        outcome, request, plan = self.done[sample], self._request, self._plan
        assert outcome is not None
        warnings = [f"candidate {i} was dropped: {why}" for i, why in sorted(self.broken.items())]
        if self._kept > _KEPT:
            warnings.append(f"only the first {_KEPT} characters of the texts per step were kept")
        settings = to_dict(self._spec) | {"effective_steps": self.steps}
        settings |= dict(plan.settings) | dict(self._noted)
        changes = outcome.answer.changes
        scores = distance(changes) if plan.scored else {}
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
            settings=settings,
            seconds=time.perf_counter() - self._started,
            warnings=(*plan.warnings, *outcome.answer.warnings, *warnings, *more),
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
            self._keep(jobs, last)
            if self._request.rank == "fit":
                self._keep_confidence(jobs, last.confidence())

    def _outcome(self, sample: int) -> Outcome:
        rows = range(len(self._plan.rows))
        answer = self._plan.assemble([self._regions.get(_Job(row, sample)) for row in rows])
        if len(rows) > _ROWS:
            # One row of many that misses its length is no reason to run them all again.
            answer = replace(answer, fits=True)
        return Outcome(splice(self._request.text, answer.changes), answer)

    def _keep(self, jobs: Sequence[_Job], step: Step) -> None:
        own = step.ids()
        must = self._must(jobs, own)
        ids = step.ids(must) if must.any() else own
        for b, job in enumerate(jobs):
            self._regions[job] = [
                _region(own[b, start:stop], ids[b, start:stop], int(must[b, start:stop].sum()))
                for start, stop in self._plan.rows[job.row].free
            ]

    def _must(self, jobs: Sequence[_Job], ids: IntArray) -> BoolArray:
        """Where of `ids` (B,S) there has to be text, for a length that was asked for."""
        must = np.zeros(ids.shape, np.bool_)
        for b, job in enumerate(jobs if self._plan.least else ()):
            free = self._plan.rows[job.row].free
            for (start, _), least in zip(free, self._plan.least[job.row], strict=True):
                must[b, start : start + least] = True
        return must

    def _keep_confidence(self, jobs: Sequence[_Job], confidence: FloatArray) -> None:
        """Of the tokens written and the EOS behind them; the rest of a region says nothing."""
        eos = self._engine.tokenizer.eos_id
        for job, line in zip(jobs, confidence, strict=True):
            for region, (start, _) in zip(
                self._regions[job], self._plan.rows[job.row].free, strict=True
            ):
                size = [*region.ids, eos].index(eos) + 1
                kept = line[start : start + min(size, len(region.ids))]
                self._confidence.setdefault(job.sample, []).extend(float(c) for c in kept)

    def _texts(self, jobs: Sequence[_Job], step: Step, shown: Sequence[int]) -> tuple[str, ...]:
        self._keep(jobs, step)
        fresh = {job.sample for job in jobs} - self.broken.keys()
        texts = {s: self._outcome(s).text for s in {*shown, *fresh} if s not in self.broken}
        for sample in fresh:
            self._kept += len(texts[sample])
            if self._kept <= _KEPT:
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


def _region(own: IntArray, ids: IntArray, least: int) -> Region:
    """`ids`, of which `least` had to be text, where the model wrote `own`. One that had to go on
    goes no further than it had to."""
    differ = np.flatnonzero(own != ids)
    if not len(differ):
        return Region(tuple(int(i) for i in ids))
    return Region(tuple(int(i) for i in ids[:least]), int(differ[0]))
