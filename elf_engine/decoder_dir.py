"""Directories of autoregressive baselines: `config.json` of kind "ar", `model.safetensors`, a
tokenizer and `MODEL_CARD.md`, as an ELF model's but for the encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elf_engine import model_dir, tensor_file
from elf_engine.config import DecoderConfig, from_dict, to_dict
from elf_engine.errors import ElfError
from elf_engine.types import Weights


@dataclass(frozen=True)
class DecoderFiles:
    """One loaded baseline. Weights are float32 in the engine's naming; `hash` is the hex sha256
    over configuration and weights."""

    config: DecoderConfig
    weights: Weights
    path: Path
    hash: str


def is_decoder(path: str | Path) -> bool:
    """Whether a directory holds such a model."""
    try:
        return model_dir.kind_of(model_dir.read_config(path)) == "ar"
    except ElfError:
        return False


def load(path: str | Path) -> DecoderFiles:
    """Read a directory. Raises ElfError naming the first thing that is wrong with it."""
    directory = Path(path)
    config = from_dict(DecoderConfig, model_dir.read_config(directory), model_dir.CONFIG)
    if config.format != 1:
        raise ElfError(
            f"{model_dir.CONFIG}: format {config.format} is newer than this program reads (1)"
        )
    weights = model_dir.load_weights(directory / model_dir.NETWORK, config.network)
    return DecoderFiles(config, weights, directory, model_dir.model_hash(directory))


def save(
    path: str | Path,
    config: DecoderConfig,
    weights: Mapping[str, Any],
    tokenizer_file: Path | None,
    card: str = "",
    dtype: str = "float16",
) -> Path:
    """Write a directory, replacing an earlier model at `path` only once complete. `tokenizer_file`
    and `dtype` are those of `model_dir.save`. Raises ElfError when the weights do not fit."""
    shapes = {name: a.shape for name, a in weights.items()}
    model_dir.check_shapes(shapes, config.network, model_dir.NETWORK)

    def fill(new: Path) -> None:
        tensor_file.write_file(new / model_dir.NETWORK, weights, dtype)
        if tokenizer_file is not None:
            model_dir.copy_tokenizer(tokenizer_file, new / config.tokenizer.file)
        (new / model_dir.CARD).write_text(card or f"# {config.name}\n", "utf-8")
        text = json.dumps(to_dict(config), indent=2) + "\n"
        (new / model_dir.CONFIG).write_text(text, "utf-8")

    return model_dir.replace_directory(Path(path), fill)
