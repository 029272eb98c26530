"""One text under several settings: every answer a run of its own in the service's line, so that
one that fails or is slow holds up no other person and no other answer."""

from __future__ import annotations

import functools
import itertools
import queue
import random
import string
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from app import service as events
from app.model_facts import check_task
from app.service import Job, Service
from editors.compare import Cell, asked, parse_knob
from editors.models import task_of
from editors.request import EditRequest, EditResult, Progress
from elf_engine.errors import ElfError

MOST_COLUMNS, MOST_ROWS = 4, 6
# Of one comparison in line at a time; the person's other tabs must still find room.
_AT_ONCE = 4
_SHUFFLE = random.SystemRandom()

Heads = tuple[str, ...]


@dataclass(eq=False)
class Answer:
    """What one setting gave so far. `name` says the setting; `ids` are places in the history."""

    cell: Cell
    name: str
    state: Literal["waiting", "running", "ready", "failed", "stopped"] = "waiting"
    step: int = 0
    steps: int = 0
    results: list[EditResult] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def over(self) -> bool:
        return self.state in ("ready", "failed", "stopped")


@dataclass(eq=False)
class Comparison:
    """The answers in the order shown. `rows` and `columns` head a grid, empty for plain columns.

    blind      names stay hidden until `revealed`
    preferred  (answer, candidate), chosen `unseen` when that was before the names were shown
    """

    request: EditRequest
    answers: list[Answer]
    rows: Heads = ()
    columns: Heads = ()
    blind: bool = False
    revealed: bool = False
    preferred: tuple[int, int] | None = None
    unseen: bool = False

    @property
    def hidden(self) -> bool:
        return self.blind and not self.revealed

    def preferred_id(self) -> str | None:
        """Place of the preferred candidate in the history."""
        if self.preferred is None:
            return None
        answer, candidate = self.preferred
        return self.answers[answer].ids[candidate]


def letter(place: int) -> str:
    return string.ascii_uppercase[place]


def setting_name(cell: Cell) -> str:
    """The setting in words; a seed is no setting, it only picks one of its texts."""
    parts = [cell.model, cell.backend]
    parts += [f"quality {cell.quality:g}"] if cell.quality is not None else []
    knobs = {name: value for name, value in cell.knobs.items() if name != "seed"}
    parts += [
        f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in knobs.items()
    ]
    own = cell.quality is None and not knobs
    return ", ".join([*parts, "own settings"] if own else parts)


def columns_of(request: EditRequest, cells: Sequence[Cell], *, blind: bool = False) -> Comparison:
    """A comparison of up to four columns; blind ones in an order nobody knows."""
    if not 1 <= len(cells) <= MOST_COLUMNS:
        raise ElfError(f"{len(cells)} columns to compare; give 1 to {MOST_COLUMNS}")
    answers = [Answer(cell, setting_name(cell)) for cell in cells]
    if blind:
        _SHUFFLE.shuffle(answers)
    return Comparison(request, answers, blind=blind)


def grid_of(
    request: EditRequest,
    base: Cell,
    down: tuple[str, str],
    across: tuple[str, str],
    *,
    blind: bool = False,
) -> Comparison:
    """A grid over two knobs, each with its values as typed ("8, 16, 32"). Raises ElfError."""
    if down[0] == across[0]:
        raise ElfError(f"both sides of the grid vary '{down[0]}'; choose two knobs")
    rows = _values(*down, MOST_ROWS)
    columns = _values(*across, MOST_COLUMNS)
    cells = [
        _with(base, {down[0]: parse_knob(down[0], a), across[0]: parse_knob(across[0], b)})
        for a, b in itertools.product(rows, columns)
    ]
    answers = [Answer(cell, setting_name(cell)) for cell in cells]
    if blind:  # heads would tell which is which
        _SHUFFLE.shuffle(answers)
        return Comparison(request, answers, blind=True)
    return Comparison(request, answers, _heads(down[0], rows), _heads(across[0], columns))


def _heads(knob: str, values: Sequence[str]) -> Heads:
    return tuple(f"{_words(knob)} {value}" for value in values)


def _values(knob: str, typed: str, most: int) -> list[str]:
    found = list(dict.fromkeys(v for part in typed.split(",") if (v := part.strip())))
    if not 1 <= len(found) <= most:
        raise ElfError(
            f"{_words(knob)} has {len(found)} values to compare; give 1 to {most}, such as 8, 16"
        )
    return found


def _with(base: Cell, knobs: Mapping[str, object]) -> Cell:
    named = {"model": base.model, "backend": base.backend, "quality": base.quality}
    both = {**named, **base.knobs, **knobs}
    model, backend, quality = (both.pop(name) for name in named)
    assert isinstance(quality, float | None)
    return Cell(str(model), str(backend), quality, both)


def _words(knob: str) -> str:
    return knob.replace("_", " ")


def place_of(comparison: Comparison, answer: object, candidate: object) -> tuple[int, int] | None:
    """The candidate a page names, None when there is no such."""
    if type(answer) is not int or type(candidate) is not int:
        return None
    if not 0 <= answer < len(comparison.answers):
        return None
    there = 0 <= candidate < len(comparison.answers[answer].results)
    return (answer, candidate) if there else None


def stage(comparison: Comparison) -> list[tuple[str, int]]:
    """Changes when the table has to be drawn again."""
    return [(a.state, len(a.results)) for a in comparison.answers]


class CompareRun:
    """Runs a comparison for one person. `cancel` may be called from any thread, the rest belongs
    to the thread that reads the events."""

    def __init__(self, service: Service, comparison: Comparison, owner: str) -> None:
        self.comparison = comparison
        self._service, self._owner = service, owner
        self._events: queue.SimpleQueue[tuple[int, events.Event]] = queue.SimpleQueue()
        self._todo = deque(range(len(comparison.answers)))
        self._jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._stopped = False
        self._started = 0.0
        self.warnings: list[str] = []

    def cancel(self) -> None:
        """Stop all answers that are not ready."""
        with self._lock:
            self._stopped = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()

    def start(self) -> None:
        self._submit()

    @property
    def over(self) -> bool:
        return all(answer.over for answer in self.comparison.answers)

    def advance(self) -> None:
        """Wait for something to happen and take it in."""
        batch = [self._events.get()]
        while not self._events.empty():
            batch.append(self._events.get())
        for place, event in batch:
            self._take(place, event)
        self._submit()

    def _submit(self) -> None:
        """Put answers in line, few at a time. What is wrong with one is its answer."""
        with self._lock:
            if self._stopped:
                for place in self._todo:
                    self.comparison.answers[place].state = "stopped"
                self._todo.clear()
            while self._todo and len(self._jobs) < _AT_ONCE:
                place = self._todo.popleft()
                answer = self.comparison.answers[place]
                try:
                    request = self._request(answer.cell)
                except ElfError as error:
                    answer.state, answer.error = "failed", str(error)
                    continue
                try:
                    self._jobs[place] = self._service.submit(
                        request,
                        answer.cell.model,
                        answer.cell.backend,
                        functools.partial(self._send, place),
                        owner=self._owner,
                    )
                except ElfError as error:
                    if self._jobs:  # the person's line is full; it moves when one of these ends
                        self._todo.appendleft(place)
                        return
                    answer.state, answer.error = "failed", str(error)

    def _request(self, cell: Cell) -> EditRequest:
        request = self.comparison.request
        self._service.check(cell.model, cell.backend)
        check_task(self._service, cell.model, task_of(request.editor))
        return asked(self._service.known(cell.model), request, cell)

    def _send(self, place: int, event: events.Event) -> None:
        self._events.put((place, event))

    def _take(self, place: int, event: events.Event) -> None:
        answer = self.comparison.answers[place]
        match event:
            case Progress(step, steps):
                self._started = self._started or time.monotonic()
                answer.state, answer.step, answer.steps = "running", step, steps
            case events.Loading():
                answer.state = "running"
            case events.Finished(result, id):
                answer.results.append(result)
                answer.ids.append(id)
            case events.Warned(message):
                answer.notes.append(message)
            case events.Failed(message):
                answer.error = message
            case events.Done(stopped):
                answer.state = "failed" if answer.error else "stopped" if stopped else "ready"
                with self._lock:
                    del self._jobs[place]

    def progress(self) -> tuple[int, int, float]:
        """Steps made, steps in all as far as is known, and seconds left (0 when not known)."""
        answers = self.comparison.answers
        known = [a.steps for a in answers if a.steps]
        guess = round(sum(known) / len(known)) if known else 0
        done = sum(a.step for a in answers)
        total = sum(a.step if a.over else a.steps or guess for a in answers)
        passed = time.monotonic() - self._started
        left = passed / done * (total - done) if done > 1 and self._started else 0.0
        return done, total, left
