"""A stand-in for the engine: text that clears up step by step, and a record of what was run."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.service import Runtime
from editors import check
from editors.changes import splice
from editors.request import Change, EditRequest, EditResult, Progress
from elf_engine import model_dir
from elf_engine.config import LayoutSpec, ModelConfig, SampleSpec
from elf_engine.errors import ElfError

TASKS = {"draft": 5, "infill": 6, "translate": 7, "summarise": 8, "modernise": 9}
DEFAULTS = {
    "draft": SampleSpec(steps=6, guidance=3.0),
    "infill": SampleSpec(steps=6, guidance=2.0),
    "translate": SampleSpec(steps=6, sampler="ode", condition_guidance=1.5),
    "summarise": SampleSpec(steps=6),
    "modernise": SampleSpec(steps=6),
}


PAIRS = ("translate", "summarise", "modernise")


def parts(text: str) -> int:
    """A text that holds "in 3 parts" takes as many runs of the steps."""
    found = re.search(r"in (\d) parts", text)
    return int(found[1]) if found else 1


def known_models(directory: Path) -> Path:
    """`directory` as a model's without weights: the bundled one's, calibrated to few steps."""
    for name in ("config.json", "tokenizer.model"):
        shutil.copy(model_dir.find("starter") / name, directory / name)
    points = [{"quality": q, "guidance": 1.0 + q, "gamma": 1.0, "steps": 4 + 4 * q} for q in (0, 1)]
    table = {"format": 1, "tasks": dict.fromkeys(("draft", "infill"), points)}
    table["measured"] = {"draft": [{"quality": q, "ppl:ngram": 90 - 60 * q} for q in (0, 1)]}
    (directory / "calibration.json").write_text(json.dumps(table), "utf-8")
    return directory


@dataclass
class FakeEngine:
    model: str
    backend: str


@dataclass
class FakeWorld:
    """`pace` seconds a step; a run whose text holds "boom" breaks, one with "gate" waits for
    `gate` before each step."""

    pace: float = 0.0
    loaded: list[tuple[str, str]] = field(default_factory=list)
    steps_made: list[tuple[str, int]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    names: tuple[str, ...] = ("starter", "other")
    paths: dict[str, Path] = field(default_factory=dict)

    def runtime(self) -> Runtime:
        return Runtime(self.load, self.run, self.config, lambda: self.names, self.paths.get)

    def config(self, name: str) -> ModelConfig:
        tasks = {"draft": 5} if name.startswith("only-draft") else TASKS
        return ModelConfig(name=name, layout=LayoutSpec(tasks=tasks), defaults=DEFAULTS)

    def load(self, model: str, backend: str) -> FakeEngine:
        self.loaded.append((model, backend))
        return FakeEngine(model, backend)

    def run(self, engine: FakeEngine, request: EditRequest) -> Iterator[Progress | EditResult]:
        check(request)
        if request.editor == "infill" and not request.spans and "[[" not in request.text:
            raise ElfError(f"no gap in '{request.text}'; mark one with [[2-6]]")
        spec = request.settings or DEFAULTS[request.editor]
        start = time.monotonic()
        try:
            steps = spec.steps * parts(request.text)
            for step in range(1, steps + 1):
                if "gate" in request.text:
                    self.gate.acquire()
                if "boom" in request.text:
                    raise RuntimeError("secret inner detail")
                time.sleep(self.pace)
                self.steps_made.append((request.text, step))
                clear = step / steps
                texts = tuple(self._text(request, i, clear) for i in _samples(request))
                yield Progress(step, steps, clear, texts if request.texts_every_step else ())
            for i in _samples(request):
                yield self.result(engine, request, spec, i, time.monotonic() - start)
        finally:
            self.closed.append(request.text)

    def _changes(self, request: EditRequest, index: int, clear: float) -> tuple[Change, ...]:
        """Each span becomes "lovely" and a number; without spans the text goes on."""
        end = len(request.text)
        word = f"lovely {index}" if request.spans else f" and so it went, candidate {index}."
        shown = int(len(word) * clear)
        word = word[:shown] + "·" * (len(word) - shown)
        return tuple(
            Change(a, b, request.text[a:b], word) for a, b in request.spans or ((end, end),)
        )

    def _text(self, request: EditRequest, index: int, clear: float) -> str:
        return splice(request.text, self._changes(request, index, clear))

    def result(
        self, engine: FakeEngine, request: EditRequest, spec: SampleSpec, i: int, seconds: float
    ) -> EditResult:
        settings: dict[str, Any] = asdict(spec)
        return EditResult(
            text=self._text(request, i, 1.0),
            changes=self._changes(request, i, 1.0),
            trajectory=tuple(
                self._text(request, i, step / spec.steps) for step in range(1, spec.steps + 1)
            )
            if request.texts_every_step
            else (),
            seed=spec.seed,
            index=i,
            editor=request.editor,
            input=request.text,
            model=engine.model,
            model_hash=f"hash-of-{engine.model}",
            backend=engine.backend,
            settings=settings,
            seconds=seconds,
            warnings=("it may go on",) if request.editor in PAIRS else (),
            scores={"fit": -0.5 - i} if request.rank == "fit" else {},
        )


def _samples(request: EditRequest) -> range:
    return range(request.first, request.first + request.count)
