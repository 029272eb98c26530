"""A run's averaged weights as a model directory."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from elf_engine import model_dir
from elf_engine.config import ModelConfig
from elf_engine.types import Weights
from elf_engine.weights import flatten
from training.checkpoint import Checkpoints, tokenizer_files
from training.config import TrainConfig, tokenizer_path
from training.embeddings import load_encoder
from training.loop import own_tokenizer, saved_config
from training.mesh import everywhere
from training.step import TABLE, State, Stepper


def model_config(config: TrainConfig) -> ModelConfig:
    """What an engine needs to know of a run."""
    return ModelConfig(
        name=config.name,
        network=config.network,
        encoder=config.encoder,
        flow=config.flow,
        tokenizer=config.tokenizer_spec,
        layout=config.layout,
        defaults=config.defaults,
    )


def load_run(directory: Path) -> tuple[TrainConfig, Weights, State]:
    """A run's config, encoder and newest whole checkpoint. Raises ElfError when there is none."""
    config, encoder = load_encoder(saved_config(directory))
    stepper = Stepper(config, encoder)
    with Checkpoints(directory, config.keep) as store:
        state, record = store.restore(stepper.like)
    return own_tokenizer(config, record), encoder, state


def host_weights(
    average: Any, encoder: Weights, mesh: Mesh | None = None
) -> tuple[Weights, Weights]:
    """(network, encoder) on the host, gathered from the devices; a learned token table goes into
    the encoder, which looks tokens up in it."""
    if mesh is not None:
        average = jax.jit(lambda tree: tree, out_shardings=everywhere(mesh))(average)
    flat = {name: np.asarray(a, np.float32) for name, a in flatten(average).items()}
    table = {name: a for name, a in flat.items() if name.startswith(f"{TABLE}/")}
    return {name: a for name, a in flat.items() if name not in table}, {**encoder, **table}


def export(
    directory: Path,
    out: Path,
    card: str = "",
    defaults: TrainConfig | None = None,
    dtype: str = "float16",
) -> Path:
    """Write the averaged weights of `directory` to `out`, stored as `dtype`. `defaults` gives newer
    sampling defaults than the run's own. Raises ElfError when there is no checkpoint."""
    config, encoder, state = load_run(directory)
    model = model_config(config)
    if defaults is not None:
        model = dataclasses.replace(model, defaults=defaults.defaults)
    network, encoder = host_weights(state.average, encoder)
    with tempfile.TemporaryDirectory() as scratch:
        source = tokenizer_path(config)
        if source.is_dir():  # which may hold a whole model: only the tokenizer's files are wanted
            for name, raw in tokenizer_files(source).items():
                (Path(scratch) / name).write_bytes(raw)
            source = Path(scratch)
        return model_dir.save(out, model, network, encoder, source, card, dtype)
