"""What the latents are: the frozen encoder of a run, in one of the paper's four kinds, or a fixed
token table from counts, which needs no training and puts tokens of like use side by side.

A token table is a T5 encoder of one block whose output matrices are zero: the block adds nothing,
and the final norm gives every token a vector of unit root mean square. So tables need no code of
their own in either backend, and cannot shrink to please the velocity loss.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from elf_engine import model_dir, tensor_file
from elf_engine.config import EncoderSpec
from elf_engine.errors import ElfError
from elf_engine.types import FloatArray, Weights
from training.config import TrainConfig, open_tokenizer

ENCODER, LATENTS = "encoder.safetensors", "latents.json"
TABLES = ("learned", "random", "counts")
_SIZES = ("vocab", "d_model", "d_kv", "d_ff", "layers", "heads", "gated")


def table_spec(spec: EncoderSpec) -> EncoderSpec:
    """The smallest encoder with the same vocabulary and width; its latents have mean 0 and
    deviation 1 by construction."""
    return dataclasses.replace(
        spec, kind="t5", d_kv=1, d_ff=1, layers=1, heads=1, gated=False, latent_mean=0.0,
        latent_std=1.0,
    )  # fmt: skip


def table_weights(spec: EncoderSpec, seed: int, table: FloatArray | None = None) -> Weights:
    """A token table (V,D), random N(0, 1) by default, as an encoder that only looks tokens up."""
    weights: Weights = {}
    for name, shape in model_dir.expected_shapes(spec).items():
        zero = not name.endswith("/weight")
        weights[name] = np.zeros(shape, np.float32) if zero else np.ones(shape, np.float32)
    if table is None:
        rng = np.random.default_rng([seed, 2])
        table = rng.standard_normal((spec.vocab, spec.d_model), np.float32)
    return {**weights, "shared/embedding": table}


def run_encoder(config: TrainConfig) -> EncoderSpec:
    """Sizes of the encoder that the run's directory holds."""
    return table_spec(config.encoder) if config.embeddings in TABLES else config.encoder


def load_encoder(config: TrainConfig) -> tuple[TrainConfig, Weights]:
    """The run's encoder, and the config with its sizes and latent mean and deviation. Raises
    ElfError when it is not there yet."""
    file = config.directory / ENCODER
    if not file.is_file():
        raise ElfError(f"no {file}; make the encoder first: elf-train encoder --config NAME")
    measured = json.loads((config.directory / LATENTS).read_text())
    spec = dataclasses.replace(
        run_encoder(config), latent_mean=measured["mean"], latent_std=measured["std"]
    )
    weights = tensor_file.open_file(file).load_all()
    model_dir.check_shapes({k: w.shape for k, w in weights.items()}, spec, str(file), "the config")
    return dataclasses.replace(config, encoder=spec), weights


def make_encoder(config: TrainConfig) -> str:
    """Put the encoder into the run's directory, pre-training it where the config says so; one line
    about it. Raises ElfError when it cannot be found or has other sizes than the config."""
    if config.embeddings == "scratch":
        from training.encoder import pretrain
        from training.sources import open_table

        return pretrain(config, open_table(config))
    if config.embeddings in TABLES:
        spec = table_spec(config.encoder)
        table = _count(config) if config.embeddings == "counts" else None
        _write(config, table_weights(spec, config.seed, table), spec)
        return f"a {config.embeddings} table of {spec.vocab} x {spec.d_model}"
    weights, spec = _read(config)
    _write(config, weights, spec)
    return f"encoder {config.encoder_from}: latent mean {spec.latent_mean}, std {spec.latent_std}"


def _count(config: TrainConfig) -> FloatArray | None:
    from training.encoder import counted
    from training.sources import open_table

    return counted(config, open_table(config), open_tokenizer(config))


def _write(config: TrainConfig, weights: Weights, spec: EncoderSpec) -> None:
    config.directory.mkdir(parents=True, exist_ok=True)
    scratch = config.directory / f".{ENCODER}"
    tensor_file.write_file(scratch, weights, "float32")
    statistics = {"mean": spec.latent_mean, "std": spec.latent_std}
    (config.directory / LATENTS).write_text(json.dumps(statistics))
    scratch.rename(config.directory / ENCODER)


def _read(config: TrainConfig) -> tuple[Weights, EncoderSpec]:
    """The encoder at `encoder_from`: with the statistics of the model it is part of, or with the
    config's, as published."""
    from elf_engine.published.t5_encoder import infer_spec, read_encoder

    wanted, source = config.encoder, config.encoder_from
    path = Path(source)
    if (path / model_dir.CONFIG).is_file() and (path / model_dir.ENCODER).is_file():
        own = model_dir.load_config(path).encoder
        weights = read_encoder(path / model_dir.ENCODER)
        wanted = dataclasses.replace(wanted, latent_mean=own.latent_mean, latent_std=own.latent_std)
    else:
        weights = read_encoder(path if path.exists() else _download(source))
    found = infer_spec(weights, source, wanted.latent_mean, wanted.latent_std)
    for size in _SIZES:
        have, want = getattr(found, size), getattr(wanted, size)
        if have != want:
            raise ElfError(f"{source}: {size} is {have}, the config's encoder.{size} is {want}")
    return weights, found


def _download(name: str) -> Path:
    """A T5 from the Hugging Face Hub, kept under the user's models."""
    from elf_engine.published.hub import T5_FILES, fetch_snapshot

    place = model_dir.home() / "downloads" / "encoders" / name.replace("/", "--")
    place.mkdir(parents=True, exist_ok=True)
    try:
        fetch_snapshot(name, place, T5_FILES)
    # The Hub client raises its own errors, its HTTP library's and the system's.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ElfError(
            f"encoder '{name}' is no file or directory, and could not be downloaded "
            f"({reason[:200]}); copy {', '.join(T5_FILES[:2])} of it into a directory and name that"
        ) from error
    return place
