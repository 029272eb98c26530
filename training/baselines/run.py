"""A baseline's run: begin or go on, step, log, save, export."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import closing
from pathlib import Path

from safetensors import safe_open

from elf_engine.config import from_dict, to_dict
from elf_engine.errors import ElfError
from training.baselines.config import BaselineConfig
from training.baselines.rows import PackedSource, RowSource
from training.baselines.trainer import Trainer
from training.config import open_tokenizer, tokenizer_path
from training.corpus import Split
from training.objective import Split as Branches
from training.sources import open_table
from training.watch import LOG, Progress, Watch, trim

CONFIG, STATE = "config.json", "state.safetensors"


def open_rows(config: BaselineConfig, split: Split = "train") -> PackedSource:
    """Batches of one split."""
    shared = config.shared()
    rows = open_table(shared, split)
    source = RowSource(rows, open_tokenizer(shared), shared.layout, shared.batches, config.seed)
    return PackedSource(source, config.network.max_length, config.rows == "texts")


def data_mark(config: BaselineConfig) -> str:
    """Hex digest of what fixes the batches, so that a run goes on with its own data alone."""
    shared = config.shared()
    facts = [to_dict(shared.batches), to_dict(shared.layout), config.rows, config.seed, shared.data]
    mark = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    path = tokenizer_path(shared)
    mark.update(path.read_bytes() if path.is_file() else b"")
    return mark.hexdigest()[:16]


def run(config: BaselineConfig) -> Path:
    """Train to `config.steps`, from the last saved state if there is one; the run's directory.

    Raises ElfError when a loss stops the run, or the state is another network's or data's.
    """
    shared, directory = config.shared(), config.directory
    directory.mkdir(parents=True, exist_ok=True)
    state, progress, mark = directory / STATE, Progress(), data_mark(config)
    trainer = Trainer(config)
    if state.exists():
        trainer.load(state)
        progress = _progress(state, mark)
        trim(directory / LOG, trainer.step)
    (directory / CONFIG).write_text(json.dumps(to_dict(config), indent=2), "utf-8")
    source = open_rows(config)
    with closing(Watch(shared, progress)) as watch:
        _train(config, trainer, source, watch, mark)
    return directory


def _train(
    config: BaselineConfig, trainer: Trainer, source: PackedSource, watch: Watch, mark: str
) -> None:
    state, saved = config.directory / STATE, time.monotonic()

    def save() -> None:
        held = {"tokens": watch.progress.tokens, "usual": watch.progress.usual}
        trainer.save(state, {"data": mark, "progress": json.dumps(held)})

    for step in range(trainer.step, config.steps):
        batch = source.draw(step)
        branches = Branches(len(batch.tasks), 0, len(batch.tasks))
        metrics = trainer.update(batch, watch.limit(branches))
        try:
            watch.add(step, batch, branches, metrics)
        except ElfError:
            save()
            raise
        last = step + 1 == config.steps
        if last or (step + 1) % config.log_every == 0:
            watch.write(step + 1)
        if last or time.monotonic() - saved > 60 * config.save_minutes:
            save()
            saved = time.monotonic()
            watch.go_on()


def _progress(state: Path, mark: str) -> Progress:
    with safe_open(state, "pt") as file:
        facts = file.metadata() or {}
    if facts.get("data") != mark:
        raise ElfError(
            f"{state}: was trained on another mixture, layout or tokenizer; take a new --set name"
        )
    held = json.loads(facts["progress"])
    return Progress(held["tokens"], held["usual"])


def saved_config(directory: Path) -> BaselineConfig:
    """The config a run was started with. Raises ElfError when `directory` is no such run."""
    file = directory / CONFIG
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ElfError(f"'{directory}' is no baseline's run ({CONFIG} cannot be read)") from error
    return from_dict(BaselineConfig, data, str(file))
