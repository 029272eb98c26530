"""Checkpoints of every published format, written from a tiny random network and encoder."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine import model_dir
from elf_engine.types import Weights
from elf_engine.weights import unflatten
from tests.fakes import random_weights, tiny_config

NETWORK = tiny_config().network
ENCODER = tiny_config().encoder
# Bare matrices, which the torch release does not transpose.
_BARE = ("proj_kernel", "unembed_kernel")


def network(seed: int = 0) -> Weights:
    return random_weights(model_dir.expected_shapes(NETWORK), seed)


def encoder(seed: int = 1) -> Weights:
    return random_weights(model_dir.expected_shapes(ENCODER), seed)


def train_state(averaged: Weights, params: Weights) -> dict[str, Any]:
    """The six keys of a JAX checkpoint."""
    return {
        "params": unflatten(params),
        "ema_params1": unflatten(averaged),
        "opt_state": {"0": {"count": np.int32(7)}, "1": {"mu": unflatten(params)}},
        "step": 7,
        "epoch": 2,
        "dropout_rng": np.array([0, 1], np.uint32),
    }


def write_orbax(path: Path, state: Mapping[str, Any]) -> Path:
    import orbax.checkpoint as ocp

    ocp.PyTreeCheckpointer().save(path.resolve(), dict(state))
    return path


def write_msgpack(path: Path, state: Mapping[str, Any]) -> Path:
    from flax import serialization

    path.write_bytes(serialization.msgpack_serialize(dict(state)))
    return path


def write_torch(path: Path, averaged: Weights, params: Weights, prefix: str = "") -> Path:
    """The torch release's six keys; `prefix` "_orig_mod." as a compiled module writes it."""
    import torch

    state = {
        "params": OrderedDict(torch_names(params, prefix)),
        "ema_params1": torch_names(averaged, prefix),
        "opt_state": {"state": {}, "param_groups": [{"lr": 0.002}]},
        "step": 7,
        "epoch": 2,
        "dropout_rng": torch.zeros(16, dtype=torch.uint8),
    }
    torch.save(state, path)
    return path


def write_converted(path: Path, weights: Weights) -> Path:
    """The layout of the JAX release's pull request 5: heads as Linear layers."""
    import torch

    heads = {"proj_kernel": "proj.weight", "proj_bias": "proj.bias"}
    heads |= {"unembed_kernel": "unembed.weight", "unembed_bias": "unembed.bias"}
    state = torch_names({k: v for k, v in weights.items() if k not in heads})
    for name, key in heads.items():
        array = weights[name]
        state[key] = torch.from_numpy(np.array(array.T if array.ndim == 2 else array, order="C"))
    torch.save({"model": state, "step": 7}, path)
    return path


def torch_names(weights: Weights, prefix: str = "") -> dict[str, Any]:
    import torch

    state = {}
    for name, array in weights.items():
        key = name.replace("blocks_", "blocks.").replace("/kernel", "/weight").replace("/", ".")
        flip = array.ndim == 2 and name not in _BARE
        state[prefix + key] = torch.from_numpy(np.array(array.T if flip else array, order="C"))
    return state


def write_pickle(path: Path, weights: Weights, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(unflatten(weights), protocol))
    return path


def write_tokenizer(directory: Path, words: int = 250) -> Path:
    """A Hugging Face tokenizer of `words` words, "w3" upwards after the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    known = {"<pad>": 0, "</s>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, words)}}
    built = Tokenizer(models.WordLevel(known, "<unk>"))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    built.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    directory.mkdir(parents=True, exist_ok=True)
    built.save(str(directory / "tokenizer.json"))
    special = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    special |= {"eos_token": "</s>", "unk_token": "<unk>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(special))
    return directory


def hugging_face_names(weights: Weights) -> Weights:
    """T5 weights as transformers names them, with a decoder and the copies it also stores."""
    state: Weights = {}
    for name, array in weights.items():
        key = name.replace("block_", "block.").replace("layer_0", "layer.0")
        key = key.replace("layer_1", "layer.1").replace("shared/embedding", "shared/weight")
        key = key.replace("/rel_embedding", "/weight").replace("/kernel", "/weight")
        flip = name.endswith("kernel")
        state[key.replace("/", ".")] = np.array(array.T if flip else array, order="C")
    state["encoder.embed_tokens.weight"] = state["shared.weight"]
    state["decoder.final_layer_norm.weight"] = np.ones(16, np.float32)
    return state


def assert_same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Equal names, shapes, types and bits."""
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == np.float32, name
        assert found[name].tobytes() == np.ascontiguousarray(array, np.float32).tobytes(), name
