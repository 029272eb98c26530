"""Small stand-ins shared by the tests: a complete random model directory in a few milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine import model_dir
from elf_engine.config import (
    EncoderSpec,
    LayoutSpec,
    ModelConfig,
    NetworkSpec,
    SampleSpec,
    TokenizerSpec,
)
from elf_engine.types import Weights

# Control ids 0 to 15 as in `elf_engine.tokens.CONTROL`, then the 256 bytes.
TINY_VOCAB = 272


def tiny_config(**overrides: Any) -> ModelConfig:
    """A valid configuration with every task; `overrides` replace fields of ModelConfig."""
    config = ModelConfig(
        name="tiny",
        network=NetworkSpec(
            embedding_dim=16,
            hidden=32,
            depth=2,
            heads=2,
            bottleneck=8,
            vocab=TINY_VOCAB,
            max_length=64,
            time_tokens=2,
            guidance_tokens=2,
            mode_tokens=2,
        ),
        encoder=EncoderSpec(
            vocab=TINY_VOCAB, d_model=16, d_kv=8, d_ff=32, layers=2, heads=2, gated=True
        ),
        tokenizer=TokenizerSpec(kind="bytes", file=""),
        layout=LayoutSpec(
            lengths=(16, 32, 64),
            tasks={"draft": 5, "infill": 6, "translate": 7, "summarise": 8, "modernise": 9},
            sep_id=4,
        ),
        defaults={task: SampleSpec(steps=4) for task in ("draft", "infill", "translate")},
    )
    return replace(config, **overrides)


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Weights:
    """Float32 weights of a sane scale: norms near 1, kernels 1/sqrt(inputs), the rest small."""
    rng = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes.items():
        draw = rng.standard_normal(shape).astype(np.float32)
        if name.endswith("weight"):
            draw = 1 + 0.1 * draw
        elif name.endswith("kernel"):
            draw = draw / np.float32(np.sqrt(shape[0]))
        else:
            draw = 0.1 * draw
        weights[name] = draw.astype(np.float32)
    return weights


def tiny_model_dir(
    directory: Path,
    *,
    seed: int = 0,
    encoder: bool = True,
    dtype: str = "float32",
    **overrides: Any,
) -> Path:
    """Write `directory`/`name`, a complete random model directory, and return its path.

    `encoder=False` writes no encoder weights; `overrides` go to `tiny_config`.
    """
    config = tiny_config(**overrides)
    network = random_weights(model_dir.expected_shapes(config.network), seed)
    text = random_weights(model_dir.expected_shapes(config.encoder), seed + 1) if encoder else {}
    return model_dir.save(directory / config.name, config, network, text, None, dtype=dtype)
