"""T5 encoders from elsewhere: the release's pickle, or a Hugging Face T5 directory or file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine import model_dir, tensor_file
from elf_engine.config import EncoderSpec
from elf_engine.errors import ElfError
from elf_engine.published.pickle_reader import read_pickle
from elf_engine.published.torch_ckpt import read_tensors
from elf_engine.types import Weights
from elf_engine.weights import flatten

_BIAS = "encoder/block_0/layer_0/SelfAttention/relative_attention_bias/rel_embedding"
_HF_FILES = ("model.safetensors", "pytorch_model.bin")
# What a whole Hugging Face T5 holds besides its encoder; the embedding is a copy of `shared`.
_HF_OTHER = re.compile(r"(decoder\.|lm_head\.|encoder\.embed_tokens\.)")
_HF_NAME = re.compile(
    r"encoder\.block\.(?P<block>\d+)\.layer\.(?P<layer>[01])\.(?P<rest>[\w.]+)\.weight"
)


def read_encoder(path: Path) -> Weights:
    """Encoder weights in the engine's naming, float32.

    `path` is a pickle of nested dicts (never executed), a safetensors or torch file, or a directory
    holding `model.safetensors` or `pytorch_model.bin`. Raises ElfError for anything else.
    """
    file = _weight_file(path)
    if file.suffix == ".safetensors":
        weights = tensor_file.open_file(file).load_all()
    elif _starts_with(file, b"PK"):
        tensors = read_tensors(file)
        weights = {str(k): t.float().numpy() for k, t in tensors.items() if hasattr(t, "float")}
    else:
        tree = read_pickle(file)
        inner = tree["params"] if set(tree) == {"params"} else tree
        weights = {name: value.astype(np.float32) for name, value in flatten(inner).items()}
    if "shared.weight" in weights:
        weights = _from_hugging_face(weights, file.name)
    model_dir.check_shapes(
        {name: w.shape for name, w in weights.items()},
        infer_spec(weights, file.name),
        file.name,
        "the rest of it",
    )
    return weights


def infer_spec(weights: Weights, file: str, mean: float = 0.0, std: float = 0.2) -> EncoderSpec:
    """Sizes of a T5 encoder from its weights. Raises ElfError when a telling one is missing."""

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if name not in weights:
            raise ElfError(f"{file}: {name} is missing; this is no T5 encoder")
        found = weights[name].shape
        if len(found) != rank:
            raise ElfError(f"{file}: {name} is {found}, a T5 encoder has {rank} axes there")
        return found

    block = "encoder/block_0"
    vocab, d_model = shape("shared/embedding", 2)
    _, heads = shape(_BIAS, 2)
    gated = f"{block}/layer_1/DenseReluDense/wi_0/kernel" in weights
    feed = f"{block}/layer_1/DenseReluDense/{'wi_0' if gated else 'wi'}/kernel"
    inner = shape(f"{block}/layer_0/SelfAttention/q/kernel", 2)[1]
    if not heads or inner % heads:
        raise ElfError(f"{file}: {inner} query columns do not divide among {heads} heads")
    layers = len({m[1] for n in weights if (m := re.match(r"encoder/block_(\d+)/", n))})
    return EncoderSpec(
        vocab=vocab,
        d_model=d_model,
        d_kv=inner // heads,
        d_ff=shape(feed, 2)[1],
        layers=layers,
        heads=heads,
        gated=gated,
        latent_mean=mean,
        latent_std=std,
    )


def _weight_file(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ElfError(f"no encoder at '{path}'")
    _check_hf_config(path / "config.json")
    for name in _HF_FILES:
        if (path / name).is_file():
            return path / name
    raise ElfError(f"{path}: holds neither {' nor '.join(_HF_FILES)}")


def _check_hf_config(file: Path) -> None:
    """The activation is not in the weights: only relu, and gated GELU, are what T5 means here."""
    if not file.is_file():
        return
    try:
        data: Any = json.loads(file.read_text("utf-8"))
        kind = data.get("model_type", "t5")
        activation = data.get("feed_forward_proj", "relu")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ElfError(f"{file}: not a readable model configuration") from error
    if kind != "t5" or activation not in ("relu", "gated-gelu"):
        raise ElfError(
            f"{file}: a {kind} with {activation} layers, only T5 relu or gated-gelu work"
        )


def _starts_with(file: Path, magic: bytes) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(magic)) == magic


def _from_hugging_face(weights: Weights, file: str) -> Weights:
    found: Weights = {}
    for key, value in weights.items():
        if _HF_OTHER.match(key):
            continue
        if key == "shared.weight":
            found["shared/embedding"] = value
        elif key == "encoder.final_layer_norm.weight":
            found["encoder/final_layer_norm/weight"] = value
        elif match := _HF_NAME.fullmatch(key):
            name, flip = _hf_leaf(match["rest"])
            prefix = f"encoder/block_{match['block']}/layer_{match['layer']}"
            found[f"{prefix}/{name}"] = np.array(value.T if flip else value, order="C")
        else:
            raise ElfError(f"{file}: {key[:120]} is not a weight of a T5 encoder")
    return found


def _hf_leaf(rest: str) -> tuple[str, bool]:
    """Engine name below the layer, and whether the matrix is stored (out, in)."""
    path = rest.replace(".", "/")
    if path == "layer_norm":
        return "layer_norm/weight", False
    if path.endswith("relative_attention_bias"):
        return f"{path}/rel_embedding", False
    return f"{path}/kernel", True
