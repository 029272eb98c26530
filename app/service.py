"""One device, many people: a fair queue in front of one worker thread that owns the engines.

Knows neither Gradio nor SQL. What it loads, runs and stores with comes in as a `Runtime` and a
`Keeper`, so the tests run it on a fake engine.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from app.records import StoredStep
from app.verify import installed_as
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import ModelConfig, SampleSpec
from elf_engine.errors import ElfError

log = logging.getLogger(__name__)

BACKENDS = ("torch", "jax")
KEPT_ENGINES = 2
MOST_WAITING = 8  # of one person


@dataclass(frozen=True)
class Queued:
    """Waiting; `position` runs go first."""

    position: int


@dataclass(frozen=True)
class Loading:
    """The engine is being loaded, which may take seconds."""

    model: str
    backend: str


@dataclass(frozen=True)
class Finished:
    """One candidate is ready. `id` is its place in the history, None when it was not saved."""

    result: EditResult
    id: str | None


@dataclass(frozen=True)
class Warned:
    """Something the person should know that does not stop the run."""

    message: str


@dataclass(frozen=True)
class Failed:
    """The run ended without all its results; one line says why."""

    message: str


@dataclass(frozen=True)
class Done:
    """Always the last event, sent once. `stopped` when `Job.cancel` ended the run."""

    stopped: bool


Event: TypeAlias = Queued | Loading | Progress | Finished | Warned | Failed | Done


class Keeper(Protocol):
    """Where results go: `app.store.Store`."""

    def add(
        self,
        result: EditResult,
        request: EditRequest,
        *,
        parent_id: str | None = None,
        steps: Sequence[StoredStep] = (),
    ) -> str: ...


def _nowhere(_model: str) -> Path | None:
    return None


@dataclass(frozen=True)
class Runtime:
    """How to load and run models. `models` lists the names a person may choose, `path` says where
    one lies, None when it is no directory."""

    load: Callable[[str, str], Any]
    run: Callable[[Any, EditRequest], Iterator[Progress | EditResult]]
    config: Callable[[str], ModelConfig]
    models: Callable[[], Sequence[str]]
    path: Callable[[str], Path | None] = _nowhere


@dataclass(frozen=True)
class Known:
    """A model that may be chosen, its weights not loaded."""

    config: ModelConfig
    path: Path | None


@dataclass(eq=False)
class Job:
    """One request on its way. Only `cancel`, `wait` and `ended` are for callers."""

    request: EditRequest
    model: str
    backend: str
    owner: str
    parent_id: str | None
    keep_steps: bool
    on_event: Callable[[Event], None]
    _drop: Callable[[Job], None]
    _stop: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _complete: bool = False
    keep: bool = True

    def cancel(self) -> None:
        """End the run before its next network step; at once when it is still waiting."""
        self._stop.set()
        self._drop(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run is over; False when `timeout` seconds passed first."""
        return self._ended.wait(timeout)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def _send(self, event: Event) -> None:
        if isinstance(event, Done):
            self._ended.set()
        try:
            self.on_event(event)
        except Exception:  # a listener that broke must not stop the worker
            log.exception("an event listener failed")


class FairQueue:
    """Owners take turns; the jobs of one owner keep their order. Not locked itself."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[Job]] = OrderedDict()

    def put(self, job: Job) -> None:
        self._of.setdefault(job.owner, deque()).append(job)

    def take(self) -> Job | None:
        """The next job; its owner goes to the end of the line."""
        if not self._of:
            return None
        owner, jobs = self._of.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._of[owner] = jobs
        return job

    def remove(self, job: Job) -> bool:
        jobs = self._of.get(job.owner, deque())
        if job not in jobs:
            return False
        jobs.remove(job)
        if not jobs:
            del self._of[job.owner]
        return True

    def waiting(self, owner: str) -> int:
        return len(self._of.get(owner, ()))

    def order(self) -> list[Job]:
        """All jobs in the order `take` will give them."""
        rounds = max((len(jobs) for jobs in self._of.values()), default=0)
        lines = [list(jobs) for jobs in self._of.values()]
        return [line[i] for i in range(rounds) for line in lines if i < len(line)]


class Service:
    """Runs edits for everyone, one at a time, and keeps every result. Threads may share it."""

    def __init__(self, runtime: Runtime, keeper: Keeper) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._queue = FairQueue()
        self._changed = threading.Condition()
        self._running: Job | None = None
        self._warm: list[tuple[str, str]] = []
        self._closed = False
        self._engines: OrderedDict[tuple[str, str], Any] = OrderedDict()
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
        return list(self._engines)

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

        Owners take turns. Raises ElfError for an unknown model or backend, and when the owner
        already has too many runs waiting; what is wrong with the request comes as `Failed`.
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
            if self._queue.waiting(job.owner) >= MOST_WAITING:
                raise ElfError(f"{MOST_WAITING} of your runs are waiting already; stop one first")
            self._queue.put(job)
            self._tell_positions()
            self._changed.notify_all()
        return job

    def warm(self, model: str, backend: str) -> None:
        """Load an engine ahead of its first run, when the device is idle."""
        self.check(model, backend)
        with self._changed:
            self._warm.append((model, backend))
            self._changed.notify_all()

    def close(self, timeout: float | None = 10.0) -> bool:
        """Stop the running job, drop the waiting ones and end the worker. False when it is still
        busy after `timeout` seconds: with a long step, or loading."""
        with self._changed:
            self._closed = True
            jobs = [*self._queue.order(), *([self._running] if self._running else [])]
            self._changed.notify_all()
        for job in jobs:
            job.cancel()
        self._worker.join(timeout)
        return not self._worker.is_alive()

    def _config(self, model: str) -> ModelConfig:
        self.check(model, BACKENDS[0])
        return self._runtime.config(model)

    def _drop(self, job: Job) -> None:
        """Take a cancelled job out of the line, if it still waits there."""
        with self._changed:
            waiting = self._queue.remove(job)
            if waiting:
                self._tell_positions()
        if waiting:
            job._send(Done(stopped=True))

    def _tell_positions(self) -> None:
        ahead = 1 if self._running else 0
        for position, job in enumerate(self._queue.order(), ahead):
            job._send(Queued(position))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                while (job := self._queue.take()) is None and not self._warm and not self._closed:
                    self._changed.wait()
                if job is None and self._closed:
                    return
                self._running = job
                if job is not None:
                    self._tell_positions()
                warm = self._warm.pop(0) if job is None else None
            if job is not None:
                self._run(job)
            elif warm is not None:
                message = self._try("loading ahead", functools.partial(self._engine, *warm))
                if message is not None:
                    log.warning("loading ahead: %s", message)

    def _run(self, job: Job) -> None:
        message = self._try("a run", lambda: self._edit(job))
        if message is not None:
            job._send(Failed(message))
        job._send(Done(stopped=message is None and not job._complete))

    def _try(self, what: str, action: Callable[[], object]) -> str | None:
        """None, or one line about what went wrong. A defect's traceback goes to the log."""
        try:
            action()
        except ElfError as error:
            return str(error)
        except MemoryError:
            log.exception("%s ran out of memory", what)
            return "there is not enough memory for this; try fewer candidates or a smaller length"
        except Exception as error:
            log.exception("%s failed", what)
            kind = type(error).__name__
            return f"something went wrong inside ELF Studio ({kind}); its log says more"
        return None

    def _edit(self, job: Job) -> None:
        if (job.model, job.backend) not in self._engines:
            job._send(Loading(job.model, job.backend))
        engine = self._engine(job.model, job.backend)
        trace: list[Progress] = []
        items = self._runtime.run(engine, job.request)
        try:
            # The iterator makes one network step for each item, so this is the step to stop at.
            while not job._stop.is_set():
                item = next(items, None)
                if item is None:
                    job._complete = True
                    return
                if isinstance(item, Progress):
                    trace += [item] if job.keep_steps and item.texts else []
                    job._send(item)
                else:
                    kept = self._keep(job, item, trace) if job.keep else None
                    job._send(Finished(item, kept))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _keep(self, job: Job, result: EditResult, trace: list[Progress]) -> str | None:
        row = result.index - job.request.first
        steps = [StoredStep(p.step, p.t, p.texts[row]) for p in trace if 0 <= row < len(p.texts)]
        try:
            return self._keeper.add(result, job.request, parent_id=job.parent_id, steps=steps)
        except ElfError as error:
            job._send(Warned(f"This result is not in the history: {error}"))
            return None

    def _engine(self, model: str, backend: str) -> Any:
        """The engine, loaded or from the few last used. Only the worker calls this."""
        key = (model, backend)
        if key in self._engines:
            self._engines.move_to_end(key)
            return self._engines[key]
        while len(self._engines) >= KEPT_ENGINES:  # before loading, so that memory never holds more
            self._engines.popitem(last=False)
        self._engines[key] = self._runtime.load(model, backend)
        return self._engines[key]
