"""Models built from stored parameters alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from elf_engine import backends, model_dir
from elf_engine.backends.protocol import Backend
from elf_engine.config import EncoderSpec, ModelConfig, NetworkSpec
from elf_engine.types import Weights
from tests.golden.archive import Archive, BadFileError

# meta/ name -> NetworkSpec field; stored beside some networks, implied by the shapes of all.
META = {
    "text_encoder_dim": "embedding_dim",
    "hidden_size": "hidden",
    "depth": "depth",
    "num_heads": "heads",
    "bottleneck_dim": "bottleneck",
    "num_time_tokens": "time_tokens",
    "num_model_mode_tokens": "mode_tokens",
    "num_self_cond_cfg_tokens": "guidance_tokens",
    "vocab_size": "vocab",
    "max_length": "max_length",
}

# A check compiles most programs to run them once: compile fast, not well.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def network_spec(params: Mapping[str, Any], max_length: int) -> NetworkSpec:
    """The sizes that the shapes of a network's parameters imply."""
    try:
        hidden, width = params["proj_kernel"].shape
        return NetworkSpec(
            embedding_dim=width,
            hidden=hidden,
            depth=len({k.split("/")[0] for k in params if k.startswith("blocks_")}),
            heads=hidden // params["blocks_0/attn/q_norm/weight"].shape[0],
            bottleneck=params["text_proj/proj1/kernel"].shape[1],
            vocab=params["unembed_bias"].shape[0],
            max_length=max_length,
            time_tokens=params["t_emb_tokens"].shape[1],
            guidance_tokens=_count(params, "self_cond_cfg_tokens"),
            mode_tokens=_count(params, "mode_tokens"),
            self_conditioning="self_cond_proj/kernel" in params,
        )
    except KeyError as error:
        raise BadFileError(f"network parameter {error.args[0]} is missing") from error


def _count(params: Mapping[str, Any], name: str) -> int:
    return int(params[name].shape[1]) if name in params else 0


def check_meta(archive: Archive, spec: NetworkSpec) -> None:
    """Raise BadFileError when a stored size contradicts the shapes."""
    meta = archive.meta
    for name, field in META.items():
        if name in meta and int(meta.number(name)) != getattr(spec, field):
            raise BadFileError(
                f"{archive.path}: meta/{name} is {int(meta.number(name))}, "
                f"the parameters imply {getattr(spec, field)}"
            )


def network_backend(name: str, params: Weights, max_length: int) -> Backend:
    """A stored network on backend `name`, beside an encoder that is never run."""
    spec = network_spec(params, max_length)
    encoder = EncoderSpec(
        vocab=2, d_model=spec.embedding_dim, d_kv=2, d_ff=2, layers=1, heads=1, latent_std=1.0
    )
    config = ModelConfig("network", spec, encoder)
    return backends.load(name)(config, params, zeros(encoder), "float32")


def row_length(archive: Archive, array: str) -> int:
    """The longest row of `array` (B,S,...) over all cases."""
    return max(int(case[array].shape[1]) for case in archive.cases.values())


def encoder_backend(name: str, spec: EncoderSpec, encoder: Weights) -> Backend:
    """A stored encoder on backend `name`, beside a network that is never run."""
    network = NetworkSpec(
        embedding_dim=spec.d_model, hidden=2, depth=1, heads=1, bottleneck=1, vocab=2
    )
    config = ModelConfig("encoder", network, spec)
    return backends.load(name)(config, zeros(network), encoder, "float32")


def zeros(spec: NetworkSpec | EncoderSpec) -> Weights:
    """Weights of the right shapes."""
    return {k: np.zeros(s, np.float32) for k, s in model_dir.expected_shapes(spec).items()}
