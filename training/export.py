"""A run's averaged weights as a model directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elf_engine import model_dir
from elf_engine.config import ModelConfig, TokenizerSpec
from elf_engine.weights import flatten
from training import checkpoint
from training.config import TrainConfig
from training.loop import load_encoder, saved_config
from training.step import State, initial_state


def model_config(config: TrainConfig) -> ModelConfig:
    """What an engine needs to know of a run."""
    return ModelConfig(
        name=config.name,
        network=config.network,
        encoder=config.encoder,
        flow=config.flow,
        tokenizer=TokenizerSpec(),
        layout=config.layout,
        defaults=config.defaults,
    )


def load_run(directory: Path) -> tuple[TrainConfig, State]:
    """A run's config and last checkpoint."""
    config = saved_config(directory)
    state, _ = checkpoint.load(checkpoint.latest(directory / "checkpoints"), initial_state(config))
    return config, state


def export(directory: Path, out: Path, card: str = "", defaults: TrainConfig | None = None) -> Path:
    """Write the averaged weights of `directory` to `out` in float16. `defaults` gives newer
    sampling defaults than the run's own. Raises ElfError when there is no checkpoint."""
    config, state = load_run(directory)
    config, encoder = load_encoder(config)
    model = model_config(config)
    if defaults is not None:
        import dataclasses

        model = dataclasses.replace(model, defaults=defaults.defaults)
    weights = {k: np.asarray(v, np.float32) for k, v in flatten(state.average).items()}
    return model_dir.save(out, model, weights, encoder, config.tokenizer, card, "float16")
