"""The service: Stop within one step, turns for everyone, every result kept, nothing lost."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.records import StoredStep
from app.service import (
    KEPT_ENGINES,
    MOST_WAITING,
    Done,
    Event,
    Failed,
    Finished,
    Loading,
    Queued,
    Service,
    Warned,
)
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from tests.app.fake import DEFAULTS, TASKS, FakeWorld

PATIENCE = 30.0


class Shelf:
    """A keeper in memory; `broken` makes it refuse."""

    def __init__(self) -> None:
        self.kept: list[tuple[EditResult, EditRequest, str | None, Sequence[StoredStep]]] = []
        self.broken = ""

    def add(
        self,
        result: EditResult,
        request: EditRequest,
        *,
        parent_id: str | None = None,
        steps: Sequence[StoredStep] = (),
        owner: str | None = None,
    ) -> str:
        if self.broken:
            raise ElfError(self.broken)
        self.kept.append((result, request, parent_id, steps))
        return f"id{len(self.kept)}"


class Listener:
    """Collects events and waits for them."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def __call__(self, event: Event) -> None:
        self._queue.put(event)

    def until(self, kind: type) -> Event:
        """Wait for the next event of this kind."""
        while True:
            event = self._queue.get(timeout=PATIENCE)
            self.seen.append(event)
            if isinstance(event, kind):
                return event

    def of(self, kind: type) -> list[Event]:
        return [e for e in self.seen if isinstance(e, kind)]


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def service(world: FakeWorld, shelf: Shelf) -> Iterator[Service]:
    made = Service(world.runtime(), shelf)
    yield made
    made.close()
    assert not made._worker.is_alive()


@pytest.fixture
def single(world: FakeWorld, shelf: Shelf) -> Iterator[Service]:
    """Runs one at a time, so that others wait."""
    made = Service(world.runtime(), shelf, most_running=1)
    yield made
    made.close()


def draft(text: str = "Once", **given: object) -> EditRequest:
    return EditRequest("draft", text, settings=SampleSpec(steps=4), **given)  # type: ignore[arg-type]


def test_a_run_tells_its_story_in_order(service: Service, shelf: Shelf) -> None:
    heard = Listener()
    request = draft(count=2, texts_every_step=True)
    service.submit(request, "starter", "torch", heard, parent_id="p", keep_steps=True)
    assert heard.until(Done) == Done(stopped=False)
    kinds = [type(e) for e in heard.seen]
    assert kinds == [Queued, Loading, *[Progress] * 4, Finished, Finished, Done]
    assert [p.step for p in heard.of(Progress)] == [1, 2, 3, 4]  # type: ignore[attr-defined]
    assert [f.id for f in heard.of(Finished)] == ["id1", "id2"]  # type: ignore[attr-defined]
    (first, kept_request, parent, steps), second = shelf.kept
    assert (first.index, second[0].index, kept_request, parent) == (0, 1, request, "p")
    assert [s.i for s in steps] == [1, 2, 3, 4]
    assert steps[-1].text == first.text
    assert second[3][-1].text == second[0].text


def test_steps_are_kept_only_when_asked_for(service: Service, shelf: Shelf) -> None:
    heard = Listener()
    service.submit(draft(texts_every_step=True), "starter", "torch", heard)
    heard.until(Done)
    assert shelf.kept[0][3] == []


def test_a_replaced_candidate_keeps_the_result_if_not_its_steps(
    service: Service, world: FakeWorld, shelf: Shelf
) -> None:
    made = world.result
    world.result = lambda *given: replace(made(*given), index=7)  # type: ignore[method-assign]
    heard = Listener()
    request = draft(texts_every_step=True)
    service.submit(request, "starter", "torch", heard, keep_steps=True)
    heard.until(Done)
    assert heard.of(Failed) == []
    assert [(kept[0].index, list(kept[3])) for kept in shelf.kept] == [(7, [])]


@pytest.mark.parametrize("made", [1, 2, 3])
def test_stop_takes_effect_within_one_step(
    service: Service, world: FakeWorld, shelf: Shelf, made: int
) -> None:
    heard = Listener()
    job = service.submit(draft("gate"), "starter", "torch", heard)
    for _ in range(made):
        world.gate.release()
        heard.until(Progress)
    job.cancel()
    world.gate.release()  # the step under way may end
    assert heard.until(Done) == Done(stopped=True)
    assert len(world.steps_made) <= made + 1
    assert world.closed == ["gate"], "the iterator was closed, so the editor has cleaned up"
    assert shelf.kept == []
    assert heard.of(Finished) == heard.of(Failed) == []


def test_stopping_a_waiting_run_is_immediate(single: Service, world: FakeWorld) -> None:
    running, waiting = Listener(), Listener()
    single.submit(draft("gate"), "starter", "torch", running)
    running.until(Loading)
    job = single.submit(draft("second"), "starter", "torch", waiting)
    assert waiting.until(Queued) == Queued(1)
    job.cancel()
    assert waiting.until(Done) == Done(stopped=True)
    assert job.wait(0)
    world.gate.release(4)
    assert running.until(Done) == Done(stopped=False)
    assert {text for text, _ in world.steps_made} == {"gate"}


def test_cancelling_after_the_end_changes_nothing(service: Service) -> None:
    heard = Listener()
    job = service.submit(draft(), "starter", "torch", heard)
    heard.until(Done)
    job.cancel()
    job.cancel()
    assert job.wait(0)
    again = Listener()
    service.submit(draft(), "starter", "torch", again)
    assert again.until(Done) == Done(stopped=False)
    assert len(heard.of(Done)) == 1


def test_people_take_turns(service: Service, world: FakeWorld) -> None:
    ends: list[str] = []
    hold = Listener()
    service.submit(draft("gate"), "starter", "torch", hold, owner="hold")
    hold.until(Loading)
    last = threading.Semaphore(0)

    def ended(name: str) -> object:
        def listen(event: Event) -> None:
            if isinstance(event, Done):
                ends.append(name)
                last.release()

        return listen

    names = ["a1", "a2", "a3", "b1", "b2", "c1"]
    for name in names:
        service.submit(draft(name), "starter", "torch", ended(name), owner=name[0])  # type: ignore[arg-type]
    world.gate.release(4)
    for _ in names:
        assert last.acquire(timeout=PATIENCE)
    assert ends == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_positions_are_told_as_they_change(single: Service, world: FakeWorld) -> None:
    hold, third = Listener(), Listener()
    single.submit(draft("gate"), "starter", "torch", hold, owner="a")
    hold.until(Loading)
    second = single.submit(draft("second"), "starter", "torch", Listener(), owner="b")
    single.submit(draft("third"), "starter", "torch", third, owner="c")
    assert third.until(Queued) == Queued(2)
    second.cancel()
    assert third.until(Queued) == Queued(1)
    world.gate.release(4)
    third.until(Done)


def test_one_person_cannot_fill_the_queue(single: Service, world: FakeWorld) -> None:
    hold = Listener()
    single.submit(draft("gate"), "starter", "torch", hold, owner="a")
    hold.until(Loading)
    for _ in range(MOST_WAITING):
        single.submit(draft(), "starter", "torch", Listener(), owner="a")
    with pytest.raises(ElfError, match="waiting already"):
        single.submit(draft(), "starter", "torch", Listener(), owner="a")
    other = Listener()
    single.submit(draft("other"), "starter", "torch", other, owner="b")
    world.gate.release(4)
    assert other.until(Done) == Done(stopped=False)


def test_bad_requests_come_back_as_a_line(service: Service) -> None:
    heard = Listener()
    service.submit(EditRequest("infill", "no gap here"), "starter", "torch", heard)
    heard.until(Done)
    (failed,) = heard.of(Failed)
    assert failed == Failed("no gap in 'no gap here'; mark one with [[2-6]]")
    with pytest.raises(ElfError, match="backend 'cuda' is unknown"):
        service.submit(draft(), "starter", "cuda", heard)
    with pytest.raises(ElfError, match=r"model '\.\./x' is not installed; there is: starter"):
        service.submit(draft(), "../x", "torch", heard)


def test_a_defect_is_a_line_for_the_person_and_a_traceback_in_the_log(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Listener()
    with caplog.at_level(logging.ERROR):
        service.submit(draft("boom"), "starter", "torch", heard)
        heard.until(Done)
    (failed,) = heard.of(Failed)
    assert isinstance(failed, Failed)
    assert "RuntimeError" in failed.message
    assert "secret inner detail" not in failed.message
    assert "secret inner detail" in caplog.text
    after = Listener()
    service.submit(draft(), "starter", "torch", after)
    assert after.until(Done) == Done(stopped=False), "the worker lives on"


def test_a_listener_that_breaks_stops_nobody(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise ValueError("page gone")

    job = service.submit(draft(), "starter", "torch", broken)
    assert job.wait(PATIENCE)
    heard = Listener()
    service.submit(draft(), "starter", "torch", heard)
    heard.until(Done)
    assert "page gone" in caplog.text


def test_the_text_is_shown_when_the_history_cannot_keep_it(service: Service, shelf: Shelf) -> None:
    shelf.broken = "history is read-only"
    heard = Listener()
    service.submit(draft(), "starter", "torch", heard)
    heard.until(Done)
    (finished,) = heard.of(Finished)
    assert isinstance(finished, Finished)
    assert finished.id is None
    assert finished.result.text.startswith("Once")
    assert heard.of(Warned) == [Warned("This result is not in the history: history is read-only")]
    assert heard.of(Failed) == []


def test_engines_are_kept_but_not_many(service: Service, world: FakeWorld) -> None:
    keys = [("starter", "torch"), ("starter", "jax"), ("starter", "torch"), ("other", "torch")]
    keys += [("starter", "torch"), ("starter", "jax")]
    for model, backend in keys:
        heard = Listener()
        service.submit(draft(), model, backend, heard)
        heard.until(Done)
        assert len(service.loaded()) <= KEPT_ENGINES
    expected = [keys[0], keys[1], keys[3], keys[5]]
    assert world.loaded == expected


def test_warming_loads_ahead(service: Service, world: FakeWorld) -> None:
    service.warm("other", "torch")
    heard = Listener()
    while not world.loaded:
        threading.Event().wait(0.005)
    service.submit(draft(), "other", "torch", heard)
    heard.until(Done)
    assert world.loaded == [("other", "torch")]
    assert heard.of(Loading) == []


def test_a_failed_load_is_told_and_tried_again(world: FakeWorld, shelf: Shelf) -> None:
    working = world.load
    world.load = lambda model, backend: (_ for _ in ()).throw(ElfError("damaged"))  # type: ignore[method-assign]
    service = Service(world.runtime(), shelf)
    heard = Listener()
    service.warm("starter", "torch")
    service.submit(draft(), "starter", "torch", heard)
    heard.until(Done)
    assert heard.of(Failed) == [Failed("damaged")]
    service.close()
    world.load = working  # type: ignore[method-assign]


def test_defaults_come_from_the_configuration_alone(service: Service, world: FakeWorld) -> None:
    assert service.settings_for("translate", "starter") == DEFAULTS["translate"]
    assert service.settings_for("rewrite", "starter") == SampleSpec()
    assert service.tasks("starter") == tuple(TASKS)
    assert service.choice_for("other") == "other"
    assert service.choice_for("gone") is None
    assert world.loaded == []
    with pytest.raises(ElfError, match="not installed"):
        service.settings_for("draft", "gone")


def test_closing_stops_the_run_and_refuses_more(world: FakeWorld, shelf: Shelf) -> None:
    service = Service(world.runtime(), shelf)
    running, waiting = Listener(), Listener()
    service.submit(draft("gate"), "starter", "torch", running)
    service.submit(draft(), "starter", "torch", waiting)
    running.until(Loading)
    world.gate.release(100)
    service.close()
    running.until(Done)
    waiting.until(Done)
    with pytest.raises(ElfError, match="shutting down"):
        service.submit(draft(), "starter", "torch", running)


def test_the_service_knows_neither_gradio_nor_sql_nor_a_backend() -> None:
    code = (
        "import sys, app.service, app.runtime; "
        "heavy = {'gradio', 'sqlalchemy', 'alembic', 'torch', 'jax', 'transformers'}; "
        "bad = heavy & set(sys.modules); "
        "sys.exit(str(bad) if bad else 0)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
