"""Several people at once: nobody's stop, error or model touches another's run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.runtime import real_runtime
from app.service import KEPT_ENGINES, Done, Failed, Finished, Loading, Runtime, Service
from editors.request import EditRequest, Progress
from elf_engine.config import SampleSpec
from tests.app.fake import FakeEngine, FakeWorld
from tests.app.test_service import PATIENCE, Listener, Shelf, draft

LONG = 300.0  # of a busy machine that loads a library


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def service(world: FakeWorld, shelf: Shelf) -> Iterator[Service]:
    made = Service(world.runtime(), shelf)
    made.warm("starter", "torch")
    yield made
    world.gate.release(1000)
    assert made.close()


def hold(service: Service, world: FakeWorld) -> Listener:
    """A run whose first step is under way: others gather behind it and begin together."""
    held = Listener()
    service.submit(draft("gate"), "starter", "torch", held, owner="holder")
    world.gate.release()
    held.until(Progress)
    return held


def test_runs_take_steps_in_turn(service: Service, world: FakeWorld) -> None:
    held = hold(service, world)
    heard = [Listener() for _ in range(3)]
    for i, listener in enumerate(heard):
        service.submit(draft(f"t{i}"), "starter", "torch", listener, owner=str(i))
    world.gate.release(3)
    for listener in (held, *heard):
        assert listener.until(Done) == Done(stopped=False)
    order = [text for text, _ in world.steps_made if text != "gate"]
    assert order[:3] == ["t0", "t1", "t2"]
    assert order[3:6] == ["t0", "t1", "t2"]


def test_one_persons_stop_or_error_leaves_the_others(service: Service, world: FakeWorld) -> None:
    held = hold(service, world)
    stopped, broken, fine = Listener(), Listener(), Listener()
    job = service.submit(draft("stop"), "starter", "torch", stopped, owner="a")
    service.submit(draft("boom"), "starter", "torch", broken, owner="b")
    service.submit(draft("fine"), "starter", "torch", fine, owner="c")
    world.gate.release(2)  # the holder's turn comes before that of those who have just begun
    stopped.until(Progress)
    job.cancel()
    world.gate.release()
    assert stopped.until(Done) == Done(stopped=True)
    assert broken.until(Done) == Done(stopped=False)
    assert len(broken.of(Failed)) == 1
    for listener in (held, fine):
        assert listener.until(Done) == Done(stopped=False)
        assert len(listener.of(Finished)) == 1
    assert len([1 for text, _ in world.steps_made if text == "stop"]) <= 2
    counts = service.metrics()
    assert (counts["finished"], counts["failed"], counts["stopped"]) == (2, 1, 1)
    assert counts["waiting"] == counts["running"] == 0


def test_a_person_of_many_runs_leaves_room(service: Service, world: FakeWorld) -> None:
    held = hold(service, world)
    many, one = [Listener() for _ in range(6)], Listener()
    for listener in many:
        service.submit(draft("many"), "starter", "torch", listener, owner="a")
    service.submit(draft("one"), "starter", "torch", one, owner="b")
    world.gate.release(3)
    for listener in (held, one, *many):
        listener.until(Done)
    order = [text for text, _ in world.steps_made if text != "gate"]
    assert order[:5] == ["many", "one", "many", "many", "many"], "four of one person at a time"


def slow_runtime(world: FakeWorld, gate: threading.Event) -> Runtime:
    def load(model: str, backend: str) -> FakeEngine:
        if model == "slow":
            assert gate.wait(PATIENCE)
        return world.load(model, backend)

    return replace(world.runtime(), load=load, models=lambda: ["starter", "other", "slow"])


def test_switching_models_holds_up_nobody(world: FakeWorld, shelf: Shelf) -> None:
    gate = threading.Event()
    service = Service(slow_runtime(world, gate), shelf)
    switching, other = Listener(), Listener()
    service.submit(draft("switch"), "slow", "torch", switching, owner="a")
    switching.until(Loading)
    service.submit(draft("meanwhile"), "starter", "torch", other, owner="b")
    waiting = service.submit(draft("given up"), "slow", "torch", Listener(), owner="c")
    waiting.cancel()
    assert waiting.wait(PATIENCE), "a run whose model still loads stops at once"
    gate.set()
    for listener in (other, switching):
        assert listener.until(Done) == Done(stopped=False)
    assert service.close()


def test_an_engine_in_use_is_kept_and_the_next_waits_its_turn(
    world: FakeWorld, shelf: Shelf
) -> None:
    service = Service(replace(world.runtime(), models=lambda: ["m1", "m2", "m3"]), shelf)
    heard = [Listener() for _ in range(4)]
    for i, listener in enumerate(heard[:2]):
        service.submit(draft(f"gate {i}"), f"m{i + 1}", "torch", listener, owner=str(i))
    service.submit(draft("third"), "m3", "torch", heard[2], owner="c")
    service.submit(draft("late"), "m1", "torch", heard[3], owner="d")
    world.gate.release(1000)
    for listener in heard:
        assert listener.until(Done) == Done(stopped=False)
        assert len(service.loaded()) <= KEPT_ENGINES
    assert world.loaded[:3] == [("m1", "torch"), ("m2", "torch"), ("m3", "torch")]
    assert service.close()


def test_results_belong_to_the_account(world: FakeWorld, shelf: Shelf) -> None:
    owners: list[str | None] = []
    add = shelf.add
    shelf.add = lambda *a, owner=None, **k: (owners.append(owner), add(*a, **k))[1]  # type: ignore
    service = Service(world.runtime(), shelf)
    for owner in ("page@anna", "page@", "x@eve@", "lone"):
        heard = Listener()
        service.submit(draft(), "starter", "torch", heard, owner=owner)
        heard.until(Done)
    assert owners == ["anna", "", "", ""]
    assert service.close()


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_texts_do_not_depend_on_company(backend: str) -> None:
    """The bundled model, everyone with settings of their own: texts as when alone."""
    spec = SampleSpec(steps=5, guidance=2.0, condition_guidance=2.0)
    requests = [
        EditRequest("draft", "The old man", settings=replace(spec, seed=3)),
        EditRequest("infill", "A [[2-6]] house.", count=3, settings=replace(spec, guidance=3.0)),
        EditRequest("translate", "Das Haus ist alt.", settings=replace(spec, steps=4)),
        EditRequest("draft", "Once", count=2, settings=replace(spec, sampler="ode", seed=9)),
    ]

    if backend == "jax":  # each number of rows is a program to compile
        requests = requests[:1] + requests[3:]

    def texts(together: bool) -> list[list[str]]:
        service = Service(real_runtime(), Shelf())
        heard = [Listener() for _ in requests]
        for i, (listener, request) in enumerate(zip(heard, requests, strict=True)):
            job = service.submit(request, "starter", backend, listener, owner=str(i))
            assert together or job.wait(LONG)
        assert job.wait(LONG)
        for listener in heard:
            listener.until(Done)
            assert listener.of(Failed) == []
        shared = sum(e.shared_steps for e in service._engines._loaded.values())
        assert bool(shared) == together
        assert service.close(60)
        return [[f.result.text for f in h.of(Finished)] for h in heard]  # type: ignore[attr-defined]

    assert texts(together=True) == texts(together=False)
