"""Golden files, and odd-sized random models of every variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elf_engine import backends, model_dir
from elf_engine.backends.protocol import Backend
from elf_engine.config import EncoderSpec, ModelConfig, NetworkSpec
from elf_engine.types import Weights
from tests.fakes import random_weights

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / "tests" / "golden" / "files", ROOT / "../shared/golden")

# Guidance tokens and self-conditioning, each with and without.
NETWORKS = {
    f"guidance{tokens}-selfcond{int(conditioned)}": NetworkSpec(
        embedding_dim=12,
        hidden=30,
        depth=2,
        heads=3,
        bottleneck=5,
        vocab=41,
        max_length=24,
        time_tokens=3,
        guidance_tokens=tokens,
        mode_tokens=2,
        self_conditioning=conditioned,
    )
    for tokens in (2, 0)
    for conditioned in (True, False)
}
ENCODERS = {
    name: EncoderSpec(
        vocab=41,
        d_model=12,
        d_kv=5,
        d_ff=20,
        layers=3,
        heads=2,
        gated=name == "gated",
        latent_mean=0.1,
        latent_std=0.25,
    )
    for name in ("relu", "gated")
}


def golden(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a golden file; skips the test where there is no copy of it."""
    for place in PLACES:
        if (place / name).is_file():
            with np.load(place / name) as arrays:
                return dict(arrays)
    pytest.skip(f"{name} lies neither under tests/golden/files nor in ../shared/golden")


def group(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The entries under `prefix/`, without it."""
    return {
        k.removeprefix(f"{prefix}/"): v for k, v in arrays.items() if k.startswith(f"{prefix}/")
    }


def network_weights(spec: NetworkSpec, seed: int = 0) -> Weights:
    return random_weights(model_dir.expected_shapes(spec), seed)


def encoder_weights(spec: EncoderSpec, seed: int = 0) -> Weights:
    """Random, with a position bias as strong as the scores."""
    weights = random_weights(model_dir.expected_shapes(spec), seed)
    for name in weights:
        if name.endswith("embedding"):
            weights[name] = weights[name] * np.float32(10)
    return weights


def backend(
    name: str, network: NetworkSpec, encoder: EncoderSpec, dtype: str = "float32"
) -> Backend:
    config = ModelConfig("odd", network=network, encoder=encoder)
    weights = network_weights(network), encoder_weights(encoder)
    return backends.load(name)(config, *weights, dtype)


def network_inputs(
    spec: NetworkSpec, batch: int = 3, size: int = 17, seed: int = 1
) -> dict[str, np.ndarray[Any, Any]]:
    """z, x_prev (B,S,D), t, w (B,), valid (B,S) with trailing and inner holes, all float32."""
    rng = np.random.default_rng(seed)
    valid = np.ones((batch, size), np.bool_)
    valid[0, size // 2 :] = False
    valid[1, 1::3] = False
    shape = (batch, size, spec.embedding_dim)
    return {
        "z": rng.standard_normal(shape).astype(np.float32),
        "x_prev": rng.standard_normal(shape).astype(np.float32),
        "t": np.linspace(0, 0.97, batch, dtype=np.float32),
        "w": np.geomspace(0.5, 5, batch).astype(np.float32),
        "valid": valid,
    }


def both_modes(made: Backend, inputs: dict[str, Any], masked: bool) -> tuple[Any, Any]:
    """(x, logits) as NumPy through the backend protocol."""

    def run(net: Any, z: Any, x_prev: Any, t: Any, w: Any, valid: Any) -> Any:
        return net.denoise(z, x_prev, t, w, valid), net.logits(z, w, valid)

    put = {k: made.asarray(v) for k, v in inputs.items()}
    put["valid"] = put["valid"] if masked else None
    x, logits = made.compile(run)(*(put[k] for k in ("z", "x_prev", "t", "w", "valid")))
    return made.to_numpy(x), made.to_numpy(logits)
