"""The torch network and encoder against the published code's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elf_engine.backends.torch.backend import load_network, load_t5
from elf_engine.backends.torch.t5 import position_buckets
from elf_engine.config import EncoderSpec, NetworkSpec
from tests.parity.common import golden, group

CPU = torch.device("cpu")


def _network_spec(meta: dict[str, Any], self_conditioning: bool) -> NetworkSpec:
    return NetworkSpec(
        embedding_dim=int(meta["text_encoder_dim"]),
        hidden=int(meta["hidden_size"]),
        depth=int(meta["depth"]),
        heads=int(meta["num_heads"]),
        bottleneck=int(meta["bottleneck_dim"]),
        vocab=int(meta["vocab_size"]),
        max_length=int(meta["max_length"]),
        time_tokens=int(meta["num_time_tokens"]),
        guidance_tokens=int(meta["num_self_cond_cfg_tokens"]),
        mode_tokens=int(meta["num_model_mode_tokens"]),
        self_conditioning=self_conditioning,
    )


@pytest.mark.parametrize("variant", ["main", "nosctok", "noselfcond"])
@pytest.mark.parametrize(
    "name", ["denoise", "denoise_masked", "denoise_false", "decode", "decode_masked"]
)
def test_forward(variant: str, name: str) -> None:
    arrays = golden(f"forward_{variant}.npz")
    spec = _network_spec(group(arrays, "meta"), variant != "noselfcond")
    net = load_network(spec, group(arrays, "params"), CPU, torch.float32)
    case = {k: torch.tensor(v) for k, v in group(arrays, name).items()}
    valid = case["attention_mask"].bool() if "attention_mask" in case else None
    decode = bool(case.get("decoder_step_active", 0))
    h = net.trunk(case["x"], case["t"], case.get("self_cond_cfg_scale"), valid, decode)
    assert (net.clean_estimate(h) - case["output"]).abs().max() <= 5e-5
    if decode:
        assert (net.token_logits(h) - case["logits"]).abs().max() <= 5e-5


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        *(("relu", name) for name in ("nomask", "mask2d", "mask3d", "long2d")),
        ("relu", "mask3d_allzero_row"),
        *(("gated", name) for name in ("nomask", "mask2d", "mask3d")),
    ],
)
def test_encoder(variant: str, name: str) -> None:
    arrays = golden(f"t5_{variant}.npz")
    case, meta = group(arrays, name), group(arrays, "meta")
    spec = EncoderSpec(
        vocab=int(meta["vocab_size"]),
        d_model=int(meta["d_model"]),
        d_kv=int(meta["d_kv"]),
        d_ff=int(meta["d_ff"]),
        layers=int(meta["num_layers"]),
        heads=int(meta["num_heads"]),
        gated=bool(meta["is_gated_act"]),
    )
    encoder = load_t5(spec, group(arrays, "params"), CPU)
    mask = case.get("attention_mask")
    visible = None if mask is None else torch.tensor(mask > 0)
    hidden = encoder(torch.tensor(case["input_ids"]), visible).numpy()
    assert np.abs(hidden - case["last_hidden_state"]).max() <= 2e-6


def test_position_buckets() -> None:
    relpos = group(golden("t5_relu.npz"), "relpos")
    buckets = position_buckets(torch.tensor(relpos["relative_position"]))
    assert (buckets.numpy() == relpos["bucket"]).all()
