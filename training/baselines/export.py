"""A baseline's averaged weights as a directory, and its losses on held-out rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from elf_engine import decoder_dir
from elf_engine.backends.torch.decoder import load_decoder
from elf_engine.config import DecoderConfig, LayoutSpec
from elf_engine.types import Weights
from training.baselines.config import BaselineConfig
from training.baselines.run import STATE, open_rows, saved_config
from training.baselines.trainer import Trainer, token_losses
from training.config import tokenizer_path


def model_config(config: BaselineConfig) -> DecoderConfig:
    """What evaluation needs to know of a run."""
    shared = config.shared()
    layout = shared.layout if config.rows == "tasks" else LayoutSpec()
    return DecoderConfig(
        config.name, network=config.network, tokenizer=shared.tokenizer_spec, layout=layout
    )


def load_run(directory: Path) -> tuple[BaselineConfig, Weights]:
    """Config and averaged weights of a run. Raises ElfError when it was never saved."""
    config = replace(saved_config(directory), name=directory.absolute().name)
    trainer = Trainer(config)
    trainer.load(directory / STATE)
    return config, {k: np.ascontiguousarray(a.numpy()) for k, a in trainer.average.items()}


def export(directory: Path, out: Path, card: str = "", dtype: str = "float16") -> Path:
    """Write the averaged weights of run `directory` to `out`, stored as `dtype`."""
    config, weights = load_run(directory)
    source = tokenizer_path(config.shared())
    return decoder_dir.save(out, model_config(config), weights, source, card, dtype)


@torch.inference_mode()
def evaluate(directory: Path, batches: int) -> dict[str, float]:
    """Mean loss of a token (natural log) on validation rows, in all and per task."""
    config, weights = load_run(directory)
    net = load_decoder(config.network, weights, torch.device("cpu"), torch.float32)
    source = open_rows(config, "validation")
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for step in range(batches):
        batch = source.draw(step)
        nll, owner = token_losses(net, batch)
        for name, at in [("loss", owner >= 0), *_by_task(batch.tasks, owner)]:
            sums[name][0] += float(nll[at].sum())
            sums[name][1] += int(at.sum())
    return {name: total / count for name, (total, count) in sorted(sums.items())}


def _by_task(tasks: tuple[str, ...], owner: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    numbers = torch.tensor([sorted(set(tasks)).index(task) for task in tasks])
    return [(task, numbers[owner] == k) for k, task in enumerate(sorted(set(tasks)))]
