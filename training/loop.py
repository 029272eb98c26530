"""The training loop: draw, step, log, checkpoint; resumes exactly."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine import tensor_file
from elf_engine.config import from_dict, to_dict
from elf_engine.errors import ElfError
from elf_engine.tokens import SentencePieceTokenizer
from elf_engine.types import Weights
from training import checkpoint, lines, table
from training.config import TrainConfig
from training.corpus import Split
from training.data import BatchSource, TrainBatch
from training.objective import split_rows
from training.step import arrays, initial_state, make_update

ENCODER, LATENTS, CONFIG = "encoder.safetensors", "latents.json", "config.json"


def open_table(config: TrainConfig, split: Split = "train") -> table.Table:
    """Rows of one split of the config's corpus, or the built-in lines when it names none."""
    file = Path(config.tokenizer)
    tokenizer = SentencePieceTokenizer(file)
    if not config.data:
        return table.build(lines.examples(), tokenizer)
    cache = Path(config.runs) / "cache"
    return table.cached(Path(config.data), split, tokenizer, file, cache)


def open_source(config: TrainConfig, split: Split = "train") -> BatchSource:
    """Batches of one split of the config's corpus."""
    tokenizer = SentencePieceTokenizer(Path(config.tokenizer))
    rows = open_table(config, split)
    return BatchSource(rows, tokenizer, config.layout, config.batches, config.seed)


def load_encoder(config: TrainConfig) -> tuple[TrainConfig, Weights]:
    """The run's pre-trained encoder, and the config with its latent mean and deviation."""
    file = config.directory / ENCODER
    if not file.is_file():
        raise ElfError(f"no {file}; train the encoder first: train --config {config.name}")
    measured = json.loads((config.directory / LATENTS).read_text())
    spec = dataclasses.replace(
        config.encoder, latent_mean=measured["mean"], latent_std=measured["std"]
    )
    return dataclasses.replace(config, encoder=spec), tensor_file.open_file(file).load_all()


def saved_config(directory: Path) -> TrainConfig:
    """The config a run was started with."""
    file = directory / CONFIG
    if not file.is_file():
        raise ElfError(f"'{directory}' is no run; it has no {CONFIG}")
    return from_dict(TrainConfig, json.loads(file.read_text()), str(file))


class Log:
    """Gathers metrics of the steps since the last line and writes JSON lines."""

    def __init__(self, file: Path, tokens: float) -> None:
        self._file = file
        self.tokens = tokens
        self._clear()

    def _clear(self) -> None:
        self._began, self._steps, self._new = time.time(), 0, 0
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, batch: TrainBatch, metrics: dict[str, Any], decode_rows: int) -> None:
        """Count one finished step. Raises ElfError when its loss is not finite."""
        loss = float(metrics["loss"])
        if not math.isfinite(loss):
            raise ElfError(
                "the loss is not finite; resume from the last checkpoint with a lower learning rate"
            )
        self._steps += 1
        self._new += int(batch.batch.valid.sum())
        self._count("loss", loss, 1.0)
        self._count("grad_norm", float(metrics["grad_norm"]), 1.0)
        rows, targets = np.asarray(metrics["per_row"]), np.asarray(metrics["targets"])
        for i, task in enumerate(batch.tasks):
            branch = "decode" if i < decode_rows else "denoise"
            self._count(branch, rows[i], targets[i])
            self._count(f"{branch}/{task}", rows[i], targets[i])

    def _count(self, name: str, total: float, weight: float) -> None:
        self._sums[name][0] += float(total)
        self._sums[name][1] += float(weight)

    def write(self, step: int) -> None:
        """One line for the steps since the last."""
        seconds = time.time() - self._began
        self.tokens += self._new
        line = {
            "step": step,
            "tokens": self.tokens,
            "tokens_per_s": round(self._new / seconds),
            "ms_per_step": round(1000 * seconds / self._steps),
            **{name: round(a / max(b, 1.0), 4) for name, (a, b) in sorted(self._sums.items())},
        }
        with self._file.open("a") as out:
            print(json.dumps(line), file=out)
        self._clear()


def run(config: TrainConfig, resume: bool = False) -> Path:
    """Train to `config.steps`; the directory of the run. With `resume`, from its last checkpoint.

    Raises ElfError when a fresh run would overwrite checkpoints, or the loss is not finite.
    """
    config, encoder = load_encoder(config)
    source, update = open_source(config), make_update(config, encoder)
    state, progress = initial_state(config), {"tokens": 0.0}
    checkpoints = config.directory / "checkpoints"
    if resume:
        state, progress = checkpoint.load(checkpoint.latest(checkpoints), state)
    elif any(checkpoints.glob("step-*")):
        raise ElfError(f"'{config.directory}' already has checkpoints; use: resume, or remove it")
    (config.directory / CONFIG).write_text(json.dumps(to_dict(config), indent=2))
    log = Log(config.directory / "log.jsonl", progress["tokens"])
    saved = time.time()
    for step in range(int(state.step), config.steps):
        batch = source.draw(step)
        state, metrics = update(state, arrays(batch))
        log.add(batch, metrics, split_rows(len(batch.tasks), config.objective).decode)
        last = step + 1 == config.steps
        if last or (step + 1) % config.log_every == 0:
            log.write(step + 1)
        if last or time.time() - saved > 60 * config.save_minutes:
            checkpoint.save(checkpoints, state, {"tokens": log.tokens})
            saved = time.time()
    return config.directory
