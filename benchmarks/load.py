"""`python -m benchmarks.load`: many people at once on the bundled model, through the service.

Each asks again as soon as the answer is there. Reported: errors, how evenly people were served,
candidates a second, the same with the same requests one at a time in the same run, and the memory
of the process after switching models.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.records import StoredStep
from app.runtime import real_runtime
from app.service import KEPT_ENGINES, Done, Event, Failed, Finished, Service
from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

MODEL = "starter"
_STEPS = 16
_TEXTS = ("The old man", "Once", "In the morning the sea", "She looked up and", "It was late when")


class _Nowhere:
    """A history that keeps nothing: the device is measured, not the disk."""

    def add(
        self,
        result: EditResult,
        request: EditRequest,
        *,
        parent_id: str | None = None,
        steps: Sequence[StoredStep] = (),
        owner: str | None = None,
    ) -> str:
        return ""


@dataclass
class Person:
    """Someone who asks, waits for the answer and asks again."""

    number: int
    finished: int = 0
    errors: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def ask(self, service: Service, backend: str) -> None:
        """One request from its submission to its end."""
        heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        began = time.perf_counter()
        asked = request(self.number, len(self.waits))
        service.submit(asked, MODEL, backend, heard.put, owner=f"p{self.number}@")
        while not isinstance(event := heard.get(), Done):
            if isinstance(event, Failed):
                self.errors.append(event.message)
            self.finished += isinstance(event, Finished)
        self.waits.append(time.perf_counter() - began)

    def keep_asking(self, service: Service, backend: str, until: float) -> None:
        while time.perf_counter() < until:
            self.ask(service, backend)


def request(person: int, turn: int) -> EditRequest:
    """Everyone has a text, seed and guidance of their own."""
    spec = SampleSpec(steps=_STEPS, guidance=1.0 + person % 4, seed=1000 * person + turn)
    return EditRequest("draft", _TEXTS[person % len(_TEXTS)], length=24, settings=spec)


def crowd(
    service: Service, backend: str, people: int, seconds: float
) -> tuple[list[Person], float]:
    """All at once; the people, and candidates a second."""
    persons = [Person(i) for i in range(people)]
    began = time.perf_counter()
    given = (service, backend, began + seconds)
    threads = [threading.Thread(target=p.keep_asking, args=given) for p in persons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return persons, sum(p.finished for p in persons) / (time.perf_counter() - began)


def single_file(service: Service, backend: str, people: int, seconds: float) -> float:
    """The same requests one after the other; candidates a second."""
    persons = [Person(i) for i in range(people)]
    began = time.perf_counter()
    for person in itertools.cycle(persons):
        if time.perf_counter() - began >= seconds:
            break
        person.ask(service, backend)
    return sum(p.finished for p in persons) / (time.perf_counter() - began)


def switches(backend: str, count: int) -> list[float]:
    """Resident MiB after each of `count` changes of model, once as many as are kept are loaded."""
    # One model by many names is loaded anew for each, as different ones of its size are.
    real = real_runtime()
    runtime = replace(
        real,
        load=lambda name, kind: real.load(MODEL, kind),
        config=lambda name: real.config(MODEL),
        models=lambda: [f"{MODEL} {i}" for i in range(KEPT_ENGINES + 1)],
    )
    service, found = Service(runtime, _Nowhere()), []
    for i in range(KEPT_ENGINES + count):
        job = service.submit(
            request(0, i), runtime.models()[i % (KEPT_ENGINES + 1)], backend, _deaf
        )
        job.wait()
        found.append(resident())
    service.close(None)
    return found[KEPT_ENGINES:]


def _deaf(_event: Event) -> None:
    return None


def resident() -> float:
    """MiB of this process in memory. Raises ElfError where /proc does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError as error:
        raise ElfError(f"memory is read from /proc, which is not here: {error}") from error
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def table(rows: Sequence[tuple[str, Any]]) -> str:
    """Two columns of Markdown."""
    lines = ["| measure | value |", "| --- | ---: |"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows])


def measure(backend: str, people: int, seconds: float) -> tuple[list[tuple[str, Any]], bool]:
    """The rows of the table, and whether nobody saw an error or was starved."""
    service = Service(real_runtime(), _Nowhere())
    Person(0).ask(service, backend)  # loads the model
    alone = single_file(service, backend, people, seconds / 4)
    persons, together = crowd(service, backend, people, seconds)
    service.close(None)
    done = [p.finished for p in persons]
    errors = [e for p in persons for e in p.errors]
    waits = sorted(w for p in persons for w in p.waits)
    ratio = f"{together / alone:.2f}" if alone else "none finished alone"
    rows: list[tuple[str, Any]] = [
        ("people", people),
        ("seconds", f"{seconds:g}"),
        ("candidates", sum(done)),
        ("errors", len(errors)),
        ("fewest / most of a person", f"{min(done)} / {max(done)}"),
        ("median / longest wait, s", f"{waits[len(waits) // 2]:.2f} / {waits[-1]:.2f}"),
        ("a second, together", f"{together:.2f}"),
        ("a second, one at a time", f"{alone:.2f}"),
        ("ratio", ratio),
    ]
    return rows, not errors and min(done) > 0


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when someone saw an error or got nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch")
    parser.add_argument("--switches", type=int, default=20, help="changes of model; 0 for none")
    options = parser.parse_args(arguments)
    try:
        rows, good = measure(options.backend, options.people, options.seconds)
        if options.switches:
            found = switches(options.backend, options.switches)
            rows.append(
                (f"MiB after 1 / {len(found)} switches", f"{found[0]:.0f} / {found[-1]:.0f}")
            )
    except ElfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
