"""The training loop: draw, step, watch, checkpoint; resumes to the bit."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import jax

from elf_engine.config import from_dict, to_dict
from elf_engine.errors import ElfError
from elf_engine.types import Weights
from training.checkpoint import (
    DAMAGED,
    FOLDER,
    Checkpoints,
    Record,
    hashes,
    tokenizer_files,
)
from training.config import TrainConfig, tokenizer_path
from training.data import TrainBatch
from training.embeddings import ENCODER, LATENTS, load_encoder
from training.mesh import agreed, first_process, peers, together
from training.sources import Source, open_source, open_table
from training.step import State, Stepper
from training.watch import LOG, Progress, Watch, peak_flops, trim

CONFIG, TOKENIZER = "config.json", "tokenizer"

__all__ = [
    "CONFIG", "ENCODER", "LATENTS", "load_encoder", "open_source", "open_table", "own_tokenizer",
    "run", "saved_config",
]  # fmt: skip


def saved_config(directory: Path) -> TrainConfig:
    """The config a run was started with."""
    file = directory / CONFIG
    if not file.is_file():
        raise ElfError(f"'{directory}' is no run; it has no {CONFIG}")
    try:
        data = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ElfError(f"{file}: is not valid JSON ({error})") from error
    return from_dict(TrainConfig, data, str(file))


def save_config(config: TrainConfig) -> None:
    """Write the config into the run's directory, whole or not at all."""
    config.directory.mkdir(parents=True, exist_ok=True)
    part = config.directory / f".{CONFIG}"
    part.write_text(json.dumps(to_dict(config), indent=2), "utf-8")
    os.replace(part, config.directory / CONFIG)


def batches(source: Source, first: int, stop: int) -> Iterator[tuple[int, TrainBatch]]:
    """(step, batch) of the steps from the source's position, which is `first`; each batch is made
    while the step before it runs."""
    with ThreadPoolExecutor(1) as thread:
        rows = iter(source)
        ahead = thread.submit(next, rows)
        for step in range(first, stop):
            batch = ahead.result()
            if step + 1 < stop:
                ahead = thread.submit(next, rows)
            yield step, batch


def stepper(config: TrainConfig, encoder: Weights) -> tuple[Any, Callable[[str], float]]:
    """What computes the steps of a run, and what measures its peak rate."""
    if config.backend == "jax":
        return Stepper(config, encoder), peak_flops
    from training.cpu import step as cpu

    return cpu.CpuStepper(config, encoder), cpu.peak_flops


class Run:
    """One run under way: `train` takes it to its last step."""

    def __init__(self, config: TrainConfig, encoder: Weights, store: Checkpoints) -> None:
        self.config, self.encoder, self.store = config, encoder, store
        self.stepper, self._peak = stepper(config, encoder)
        self.source: Source
        self.watch: Watch
        self.state: State
        self._saved = time.monotonic()

    def begin(self, resume: bool) -> None:
        """Fresh state, or the newest whole checkpoint's."""
        folder, progress = self.config.directory / FOLDER, Progress()
        traces = [p for p in folder.glob("*") if p.name.startswith(("step", DAMAGED))]
        if not resume and traces:
            raise ElfError(
                f"'{self.config.directory}' already has checkpoints; use: elf-train resume, or "
                "remove it"
            )
        record: Record = {}
        if traces:
            self.state, record = self.store.restore(self.stepper.like)
            self.config = own_tokenizer(self.config, record)
            progress = Progress(record["tokens"], record["usual"])
        else:
            if resume:
                print("no checkpoint was written yet: starting at step 0", file=sys.stderr)
            self.state = self.stepper.start()
        index, count = jax.process_index(), jax.process_count()
        self.source = open_source(self.config, "train", index, count)
        if record:
            self.source.restore(record["data"])
        if first_process():
            trim(self.config.directory / LOG, int(self.state.step))
            save_config(self.config)
        together("begin")
        self.watch = Watch(self.config, progress, self._peak(self.config.compute))
        if not record:
            self.save()

    def save(self, wait: bool = False) -> None:
        """Begin a checkpoint of the present state."""
        step, progress = int(self.state.step), self.watch.progress
        data = {**self.source.state(), "step": step}
        record = {**dataclasses.asdict(progress), "data": data}
        self.store.save(self.config, self.state, record, wait)
        self._saved = time.monotonic()

    def train(self, until: float | None = None) -> None:
        """To the last step, or to the time `until` (of `time.monotonic`).

        A step's loss is looked at while the next one runs. Raises ElfError where it stops the run;
        the last good state is saved then.
        """
        first, plan = int(self.state.step), self.config
        ok: Any = None
        waiting: tuple[Any, ...] = ()
        for step, batch in batches(self.source, first, plan.steps):
            split = self.stepper.split(step, batch)
            if step == first or not self.watch.flops:
                self.watch.flops = self.stepper.flops(self.state, batch, step)
            limit = self.watch.limit(split)
            self.state, metrics = self.stepper(self.state, batch, step, limit, ok)
            ok, done = metrics["ok"], step + 1
            self._look(waiting)
            waiting = (step, batch, split, metrics)
            events = self._due(done, until)
            if events:
                self._look(waiting)
                waiting = ()
                self._act(done, events)
                self.watch.go_on()
            if "stop" in events:
                break

    def _look(self, waiting: tuple[Any, ...]) -> None:
        if not waiting:
            return
        try:
            self.watch.add(*waiting)
        except ElfError:
            if int(self.state.step) not in self.store.steps:
                self.save(wait=True)
            raise

    def _due(self, done: int, until: float | None) -> set[str]:
        """What is to be done after `done` steps. What the clock decides, all processes decide
        alike, and only at log lines."""
        plan, watch, last = self.config, self.config.watch, done == self.config.steps
        events = set()
        if last or done % plan.log_every == 0:
            events.add("log")
        if last or (plan.save_steps and done % plan.save_steps == 0):
            events.add("save")
        if watch.validate_every and (last or done % watch.validate_every == 0):
            events.add("validate")
        if watch.sample_every and (last or done % watch.sample_every == 0):
            events.add("sample")
        if jax.process_count() == 1 or "log" in events:
            now = time.monotonic()
            if agreed(now - self._saved > 60 * plan.save_minutes):
                events.add("save")
            if until is not None and agreed(now > until):
                events |= {"log", "save", "stop"}
        return events

    @cached_property
    def _validation(self) -> tuple[Any, Source]:
        """What measures validation losses, and on what."""
        from training.evaluate import Validator

        validator = Validator(self.config, self.encoder, self.stepper.mesh)
        return validator, open_source(self.config, "validation")

    def _act(self, done: int, events: set[str]) -> None:
        if "log" in events:
            self.watch.write(done)
        if "save" in events:
            self.save()
        if "validate" in events:
            validate, source = self._validation
            losses = validate(self.state.average, source, self.config.watch.validate_batches)
            named = {f"validation/{name}": value for name, value in losses.items()}
            self.watch.note({"step": done, **named}, "validation")
            self.watch.say("validation  " + "  ".join(f"{k} {v:.4g}" for k, v in losses.items()))
        if "sample" in events:
            from training.sample import show

            texts = show(self.config, self.state.average, self.encoder, self.stepper.mesh)
            if texts:
                file = self.config.directory / "samples" / f"step-{done:08d}.md"
                file.parent.mkdir(exist_ok=True)
                file.write_text(texts, "utf-8")
                self.watch.texts(done, texts)
                self.watch.say(texts)


def run(config: TrainConfig, resume: bool = False, until: float | None = None) -> Path:
    """Train to `config.steps`, or to the time `until`; the directory of the run. With `resume`,
    from its newest whole checkpoint.

    Raises ElfError when a fresh run would overwrite checkpoints, none is whole, or a loss stops it.
    """
    config, encoder = load_encoder(config)
    # Within, so that it ends the process before the store waits for all to finish a save.
    with peers(), Checkpoints(config.directory, config.keep) as store, peers():
        here = Run(config, encoder, store)
        here.begin(resume)
        with closing(here.watch):
            here.train(until)
    return config.directory


def own_tokenizer(config: TrainConfig, record: Record) -> TrainConfig:
    """The config with a tokenizer that is the checkpoint's: its own file, or, where that is gone,
    a copy out of the checkpoint. Raises ElfError when it is another one."""
    files: dict[str, bytes] = record["tokenizer_files"]
    if config.tokenizer_spec.kind == "huggingface" or Path(config.tokenizer).exists():
        if hashes(tokenizer_files(tokenizer_path(config))) != record["tokenizer"]:
            raise ElfError(
                f"tokenizer '{config.tokenizer}' is not the one this run was trained with; "
                "restore it, or move it away to use the checkpoint's copy"
            )
        return config
    place = config.directory / TOKENIZER
    place.mkdir(exist_ok=True)
    for name, raw in files.items():
        (place / name).write_bytes(raw)
    path = place / next(iter(files)) if len(files) == 1 else place
    return dataclasses.replace(config, tokenizer=str(path))
