"""One device, many people: a fair queue in front of one worker thread that owns the device.

Runs take turns, one network step each; what they share of a step is the engine's affair
(`elf_engine.together`). Knows neither Gradio nor SQL. What it loads, runs and stores with comes in
as a `Runtime` and a `Keeper`, so the tests run it on a fake engine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from app.records import StoredStep
from app.service_engines import KEPT_ENGINES, Engines, attempt
from app.service_jobs import (
    Done,
    Event,
    Failed,
    FairQueue,
    Finished,
    Job,
    Keeper,
    Known,
    Loading,
    Queued,
    Runtime,
    Warned,
)
from app.verify import installed_as
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import ModelConfig, SampleSpec
from elf_engine.errors import ElfError

__all__ = [
    "BACKENDS",
    "KEPT_ENGINES",
    "MOST_RUNNING",
    "MOST_WAITING",
    "Done",
    "Event",
    "Failed",
    "Finished",
    "Job",
    "Keeper",
    "Known",
    "Loading",
    "Queued",
    "Runtime",
    "Service",
    "Warned",
]

log = logging.getLogger(__name__)

BACKENDS = ("torch", "jax")
MOST_WAITING = 8  # of one person
MOST_RUNNING = 16  # of all, one network step each in turn
_SHARE = 4  # one person's runs at once


@dataclass(eq=False)
class _Live:
    """A run between two of its network steps."""

    job: Job
    items: Iterator[Progress | EditResult]
    began: float
    trace: list[Progress] = field(default_factory=list)


class Service:
    """Runs edits for everyone and keeps every result. Threads may share it."""

    def __init__(self, runtime: Runtime, keeper: Keeper, most_running: int = MOST_RUNNING) -> None:
        self._runtime, self._keeper, self._most = runtime, keeper, most_running
        self._queue = FairQueue()
        self._changed = threading.Condition()
        self._taken: list[Job] = []  # their engine is being loaded
        self._live: list[_Live] = []
        self._closed = False
        self._counts: Counter[str] = Counter()
        self._pace: float | None = None  # seconds of a run, of late
        self._engines = Engines(runtime.load, self._wake)
        self._worker = threading.Thread(target=self._work, name="elf-device", daemon=True)
        self._worker.start()

    def models(self) -> list[str]:
        """Names of the models a person may choose."""
        return list(self._runtime.models())

    def check(self, model: str, backend: str) -> None:
        """Raise ElfError unless both names are known here."""
        if backend not in BACKENDS:
            raise ElfError(f"backend '{backend}' is unknown; choose one of {', '.join(BACKENDS)}")
        if model not in (names := self.models()):
            raise ElfError(f"model '{model}' is not installed; there is: {', '.join(names)}")

    def tasks(self, model: str) -> tuple[str, ...]:
        """What the model was trained for, from its configuration alone."""
        return tuple(self._config(model).layout.tasks)

    def known(self, model: str) -> Known:
        """Configuration and place of a model. Raises ElfError."""
        return Known(self._config(model), self._runtime.path(model))

    def loaded(self) -> list[tuple[str, str]]:
        """Model and backend of the engines now in memory."""
        return self._engines.loaded()

    def settings_for(self, task: str, model: str) -> SampleSpec:
        """The model's own settings for the task, without loading its weights. Raises ElfError."""
        return self._config(model).defaults.get(task, SampleSpec())

    def choice_for(self, model: str) -> str | None:
        """The installed choice whose results carry the name `model`, if there is one."""
        return installed_as(model, self.models(), lambda name: self._runtime.config(name).name)

    def submit(
        self,
        request: EditRequest,
        model: str,
        backend: str,
        on_event: Callable[[Event], None],
        *,
        owner: str = "",
        parent_id: str | None = None,
        keep_steps: bool = False,
    ) -> Job:
        """Queue one run. `on_event` is called from other threads, `Done` last.

        `owner` is "page@account"; accounts take turns, or pages where there are none. Raises
        ElfError for an unknown model or backend, and when the owner already has too many runs
        waiting; what is wrong with the request comes as `Failed`.
        """
        job = Job(request, model, backend, owner, parent_id, keep_steps, on_event, self._drop)
        return self._enqueue(job)

    def rerun(
        self,
        request: EditRequest,
        model: str,
        backend: str,
        on_event: Callable[[Event], None],
        owner: str = "",
    ) -> Job:
        """`submit`, with nothing going into the history: to verify a result that is there."""
        job = Job(request, model, backend, owner, None, False, on_event, self._drop, keep=False)
        return self._enqueue(job)

    def _enqueue(self, job: Job) -> Job:
        self.check(job.model, job.backend)
        with self._changed:
            if self._closed:
                raise ElfError("ELF Studio is shutting down; start it again")
            if self._queue.waiting(job.turn) >= MOST_WAITING:
                raise ElfError(f"{MOST_WAITING} of your runs are waiting already; stop one first")
            self._queue.put(job)
            self._tell_positions()
            self._changed.notify_all()
        return job

    def warm(self, model: str, backend: str) -> None:
        """Load an engine ahead of its first run."""
        self.check(model, backend)
        self._engines.warm((model, backend))

    def running(self) -> list[Job]:
        """The runs that have begun, those that wait for their model included."""
        with self._changed:
            return [*(live.job for live in self._live), *self._taken]

    def metrics(self) -> dict[str, Any]:
        """Counts since the start, and what goes on now."""
        with self._changed:
            waiting, running = len(self._queue.order()), len(self._live) + len(self._taken)
            counts = {
                name: self._counts[name] for name in ("finished", "failed", "stopped", "results")
            }
        seconds = {"run_seconds": round(self._pace, 3) if self._pace is not None else None}
        loaded = [f"{model} ({backend})" for model, backend in self.loaded()]
        return {"waiting": waiting, "running": running, **counts, **seconds, "loaded": loaded}

    @property
    def alive(self) -> bool:
        """Runs are being worked on."""
        return self._worker.is_alive() and not self._closed

    def close(self, timeout: float | None = 10.0) -> bool:
        """Stop the runs, drop the waiting ones and end the threads. False when one is still busy
        after `timeout` seconds: with a long step, or loading."""
        with self._changed:
            self._closed = True
            jobs = [*self._queue.order(), *self._taken, *(live.job for live in self._live)]
        for job in jobs:
            job.cancel()
        self._wake()
        ended = self._engines.close(timeout)
        self._worker.join(timeout)
        return ended and not self._worker.is_alive()

    def _config(self, model: str) -> ModelConfig:
        self.check(model, BACKENDS[0])
        return self._runtime.config(model)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _drop(self, job: Job) -> None:
        """Take a cancelled job out of the line, if it still waits there."""
        with self._changed:
            waiting = self._queue.remove(job)
            if job in self._taken:
                self._taken.remove(job)
                waiting = True
            if waiting:
                self._tell_positions()
                self._counts["stopped"] += 1
        if waiting:
            job._send(Done(stopped=True))
            self._wake()

    def _tell_positions(self) -> None:
        """Called with the lock held, or the order of the events would not be that of the line."""
        begun = len(self._live) + len(self._taken)
        for place, job in enumerate(self._queue.order(), begun + 1):
            ahead = max(0, place - self._most)
            rounds = -(-ahead // self._most)
            job._send(Queued(ahead, self._pace and self._pace * rounds))

    def _work(self) -> None:
        while True:
            with self._changed:
                started = self._admit()
                while not (started or self._live or self._closed):
                    self._changed.wait()
                    started = self._admit()
                if self._closed and not (self._live or started):
                    return
            for job in started:
                self._begin(job)
            for live in list(self._live):
                self._end_stopped()
                if live in self._live:
                    self._turn(live)

    def _admit(self) -> list[Job]:
        """Take jobs from the line while there is room; those whose engine is there, or cannot be
        had. No run is begun while an engine waits for others to be let go."""
        own = Counter(job.turn for job in (*(live.job for live in self._live), *self._taken))
        room = self._most - own.total()
        taken = len(self._taken)
        while room > 0 and not (self._engines.starved or self._closed):
            job = self._queue.take(lambda job: own[job.turn] < _SHARE)
            if job is None:
                break
            own[job.turn] += 1
            room -= 1
            self._taken.append(job)
            if not self._engines.has(job.engine):
                job._send(Loading(*job.engine))
                self._engines.want(job.engine)
        if len(self._taken) > taken:
            self._tell_positions()
        self._engines.hold({live.job.engine for live in self._live})
        ready = [job for job in self._taken if self._engines.settled(job.engine)]
        self._taken = [job for job in self._taken if job not in ready]
        return ready

    def _begin(self, job: Job) -> None:
        def start() -> None:
            engine = self._engines.get(job.engine)
            items = self._runtime.run(engine, job.request)
            with self._changed:
                self._live.append(_Live(job, items, time.monotonic()))

        message = attempt("starting a run", start)
        if message is not None:
            self._finish(job, message, "failed")

    def _end_stopped(self) -> None:
        for live in [live for live in self._live if live.job._stop.is_set() or self._closed]:
            self._leave(live, None, "stopped")

    def _turn(self, live: _Live) -> None:
        """Hand on the next thing of a run; its iterator makes one network step at most."""
        found: list[Progress | EditResult | None] = []
        message = attempt("a run", lambda: found.append(next(live.items, None)))
        if message is not None:
            self._leave(live, message, "failed")
        elif (item := found[0]) is None:
            self._leave(live, None, "finished")
        elif isinstance(item, Progress):
            live.trace += [item] if live.job.keep_steps and item.texts else []
            live.job._send(item)
        else:
            kept = self._keep(live, item) if live.job.keep else None
            self._counts["results"] += 1
            live.job._send(Finished(item, kept))

    def _leave(self, live: _Live, message: str | None, how: str) -> None:
        close = getattr(live.items, "close", None)
        if close is not None:
            attempt("ending a run", close)
        with self._changed:
            self._live.remove(live)
        if how == "finished":
            seconds = time.monotonic() - live.began
            self._pace = seconds if self._pace is None else 0.8 * self._pace + 0.2 * seconds
        self._finish(live.job, message, how)

    def _finish(self, job: Job, message: str | None, how: str) -> None:
        with self._changed:
            self._counts[how] += 1
            self._tell_positions()
        if message is not None:
            job._send(Failed(message))
        job._send(Done(stopped=how == "stopped"))

    def _keep(self, live: _Live, result: EditResult) -> str | None:
        job, trace = live.job, live.trace
        row = result.index - job.request.first
        steps = [StoredStep(p.step, p.t, p.texts[row]) for p in trace if 0 <= row < len(p.texts)]
        kept: list[str] = []

        def add() -> None:
            parent, owner = job.parent_id, job.account
            id = self._keeper.add(result, job.request, parent_id=parent, steps=steps, owner=owner)
            kept.append(id)

        message = attempt("keeping a result", add)
        if message is None:
            return kept[0]
        job._send(Warned(f"This result is not in the history: {message}"))
        return None
