"""What the service is asked and what it tells: runtime, keeper, jobs and their events."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from app.records import StoredStep
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import ModelConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Queued:
    """Waiting; `position` runs have to end first, which may take so many `seconds` (None: no run
    has ended yet that would tell)."""

    position: int
    seconds: float | None = field(default=None, compare=False)


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
        owner: str | None = None,
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
    """One request on its way. Only `cancel`, `wait` and `ended` are for callers.

    owner  "page@account", the account empty where there are none; or any name
    """

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
    def account(self) -> str:
        return self.owner.rpartition("@")[2] if "@" in self.owner else ""

    @property
    def turn(self) -> str:
        """Who takes turns with others: the account, or the page where there are none."""
        return self.account or self.owner

    @property
    def engine(self) -> tuple[str, str]:
        return self.model, self.backend

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
        self._of.setdefault(job.turn, deque()).append(job)

    def take(self, allowed: Callable[[Job], bool] = lambda _: True) -> Job | None:
        """The next job that is allowed to go; its owner goes to the end of the line."""
        for owner, jobs in self._of.items():
            if allowed(jobs[0]):
                del self._of[owner]
                job = jobs.popleft()
                if jobs:
                    self._of[owner] = jobs
                return job
        return None

    def remove(self, job: Job) -> bool:
        jobs = self._of.get(job.turn, deque())
        if job not in jobs:
            return False
        jobs.remove(job)
        if not jobs:
            del self._of[job.turn]
        return True

    def waiting(self, turn: str) -> int:
        return len(self._of.get(turn, ()))

    def order(self) -> list[Job]:
        """All jobs in the order `take` will give them."""
        rounds = max((len(jobs) for jobs in self._of.values()), default=0)
        lines = [list(jobs) for jobs in self._of.values()]
        return [line[i] for i in range(rounds) for line in lines if i < len(line)]
