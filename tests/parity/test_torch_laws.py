"""What must hold of the torch backend whatever the weights."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from elf_engine import encoders
from elf_engine.backends.torch import backend as torch_backend
from elf_engine.backends.torch.backend import TorchBackend, choose_device, load_network, load_t5
from elf_engine.backends.torch.layers import rms_norm, rope_table, rotate
from elf_engine.backends.torch.weights import export
from elf_engine.config import EncoderSpec, ModelConfig, NetworkSpec
from elf_engine.errors import ElfError
from tests.parity.common import (
    ENCODERS,
    NETWORKS,
    backend,
    both_modes,
    encoder_weights,
    network_inputs,
    network_weights,
)

CPU = torch.device("cpu")
MAIN = NETWORKS["guidance2-selfcond1"]
RELU = ENCODERS["relu"]


@pytest.mark.parametrize("spec", NETWORKS.values(), ids=NETWORKS)
def test_network_weights_round_trip(spec: NetworkSpec) -> None:
    weights = network_weights(spec)
    back = export(load_network(spec, weights, CPU, torch.float32))
    assert back.keys() == weights.keys()
    assert all(back[k].tobytes() == weights[k].tobytes() for k in weights)


@pytest.mark.parametrize("spec", ENCODERS.values(), ids=ENCODERS)
def test_encoder_weights_round_trip(spec: EncoderSpec) -> None:
    weights = encoder_weights(spec)
    back = export(load_t5(spec, weights, CPU))
    assert back.keys() == weights.keys()
    assert all(back[k].tobytes() == weights[k].tobytes() for k in weights)


def test_loaded_weights_are_a_copy() -> None:
    weights = network_weights(MAIN)
    net = load_network(MAIN, weights, CPU, torch.float32)
    weights["proj_kernel"][:] = 0
    assert net.proj_kernel.abs().max() > 0


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("blocks_1/attn/qkv/kernel", None, "missing"),
        ("blocks_1/attn/qkv/kernel", np.zeros((90, 30), np.float32), r"\(90, 30\)"),
        ("blocks_3/attn/qkv/kernel", np.zeros((30, 90), np.float32), "not part"),
    ],
)
def test_wrong_weights_are_refused(name: str, change: Any, message: str) -> None:
    weights = network_weights(MAIN)
    if change is None:
        del weights[name]
    else:
        weights[name] = change
    with pytest.raises(ElfError, match=f"{name}.*{message}"):
        load_network(MAIN, weights, CPU, torch.float32)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spec", NETWORKS.values(), ids=NETWORKS)
def test_bfloat16_stays_near_float32(spec: NetworkSpec, masked: bool) -> None:
    inputs = network_inputs(spec)
    exact = both_modes(backend("torch", spec, RELU), inputs, masked)
    short = both_modes(backend("torch", spec, RELU, "bfloat16"), inputs, masked)
    for a, b in zip(exact, short, strict=True):
        assert b.dtype == np.float32
        assert 0 < np.sqrt(np.mean((a - b) ** 2)) <= 0.02 * np.sqrt(np.mean(a**2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_padding_is_never_read(dtype: str) -> None:
    made = backend("torch", MAIN, RELU, dtype)
    inputs = network_inputs(MAIN)
    hole = ~inputs["valid"][..., None]
    garbage = {k: np.where(hole, 1e3, inputs[k]).astype(np.float32) for k in ("z", "x_prev")}
    changed = both_modes(made, inputs | garbage, masked=True)
    for a, b in zip(both_modes(made, inputs, masked=True), changed, strict=True):
        assert np.abs(a - b)[inputs["valid"]].max() <= 1e-5


def test_masked_tail_equals_shorter_row() -> None:
    made = backend("torch", MAIN, RELU)
    inputs = network_inputs(MAIN, batch=2, size=20)
    inputs["valid"][:] = np.arange(20) < 11
    cut = {k: v[:, :11] if v.ndim > 1 else v for k, v in inputs.items()}
    short = both_modes(made, cut, masked=False)
    for a, b in zip(both_modes(made, inputs, masked=True), short, strict=True):
        assert np.abs(a[:, :11] - b).max() <= 1e-5


def test_batch_order_and_size_do_not_matter() -> None:
    made = backend("torch", MAIN, RELU)
    inputs = network_inputs(MAIN, batch=5)
    order = [3, 0, 4]
    some = both_modes(made, {k: v[order] for k, v in inputs.items()}, masked=True)
    for a, b in zip(both_modes(made, inputs, masked=True), some, strict=True):
        assert np.abs(a[order] - b).max() <= 1e-5


def test_same_call_gives_same_bits() -> None:
    made = backend("torch", MAIN, RELU)
    inputs = network_inputs(MAIN)
    first, second = (both_modes(made, inputs, masked=True) for _ in range(2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("spec", NETWORKS.values(), ids=NETWORKS)
def test_inputs_matter_exactly_where_the_variant_has_them(spec: NetworkSpec) -> None:
    made = backend("torch", spec, RELU)
    inputs = network_inputs(spec)
    x, logits = both_modes(made, inputs, masked=False)
    x_w, logits_w = both_modes(made, inputs | {"w": inputs["w"] + 1}, masked=False)
    x_prev, logits_prev = both_modes(made, inputs | {"x_prev": inputs["z"]}, masked=False)
    assert (np.abs(x - x_w).max() > 1e-3) == bool(spec.guidance_tokens)
    assert (np.abs(logits - logits_w).max() > 1e-3) == bool(spec.guidance_tokens)
    assert (np.abs(x - x_prev).max() > 1e-3) == spec.self_conditioning
    assert np.abs(logits - logits_prev).max() == 0
    x_t, logits_t = both_modes(made, inputs | {"t": inputs["t"] / 2}, masked=False)
    assert np.abs(x - x_t)[1:].max() > 1e-3
    assert np.abs(logits - logits_t).max() == 0


def test_too_long_rows_are_refused() -> None:
    made = backend("torch", MAIN, RELU)
    with pytest.raises(ElfError, match=r"25 tokens .* at most 24"):
        both_modes(made, network_inputs(MAIN, size=25), masked=False)


def test_rotation_depends_on_distance_only_and_spares_the_prefix() -> None:
    table = rope_table(2, 9, 6, CPU)
    q, k = torch.randn(6), torch.randn(6)
    rows = torch.stack([q, k])[None, None, :, None].expand(1, 11, 2, 1, 6).contiguous()
    turned = rotate(rows, table)[0, :, :, 0]
    assert torch.equal(turned[:3], rows[0, :3, :, 0])  # position 0 of the text does not turn either
    scores = turned[2:, 0] @ turned[2:, 1].T
    for offset in range(-8, 9):
        diagonal = scores.diagonal(offset)
        assert (diagonal - diagonal[0]).abs().max() <= 1e-5
    assert scores.std() > 1e-3


def test_rotation_cached_in_inference_mode_serves_gradients() -> None:
    rope_table.cache_clear()
    both_modes(backend("torch", MAIN, RELU), network_inputs(MAIN), masked=False)
    net = load_network(MAIN, network_weights(MAIN), CPU, torch.float32)
    x = torch.randn(1, 17, 2 * MAIN.embedding_dim, requires_grad=True)
    net.trunk(x, torch.zeros(1), torch.ones(1), None, False).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().max() > 0


def test_rms_norm_equals_its_definition() -> None:
    x, weight = torch.randn(3, 7, dtype=torch.float64) * 1e-3, torch.randn(7, dtype=torch.float64)
    expected = x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * weight
    assert (rms_norm(x.float(), weight.float()) - expected).abs().max() <= 1e-6


@pytest.mark.parametrize("spec", ENCODERS.values(), ids=ENCODERS)
def test_encoder_equals_transformers(spec: EncoderSpec) -> None:
    from transformers import T5Config, T5EncoderModel

    ours = load_t5(spec, encoder_weights(spec), CPU)
    config = T5Config(
        vocab_size=spec.vocab,
        d_model=spec.d_model,
        d_kv=spec.d_kv,
        d_ff=spec.d_ff,
        num_layers=spec.layers,
        num_heads=spec.heads,
        feed_forward_proj="gated-gelu" if spec.gated else "relu",
    )
    theirs = T5EncoderModel(config).eval()
    found = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not found.unexpected_keys
    assert set(found.missing_keys) <= {"encoder.embed_tokens.weight"}
    ids = torch.randint(0, spec.vocab, (2, 150), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(150) < torch.tensor([[150], [90]])
    with torch.inference_mode():
        for visible in (None, mask):
            expected = theirs(input_ids=ids, attention_mask=visible).last_hidden_state
            error = (ours(ids, visible) - expected).abs().max()
            assert error <= 1e-6 * expected.abs().max()


def test_encoder_rows_see_only_what_they_may() -> None:
    encoder = load_t5(RELU, encoder_weights(RELU), CPU)
    ids = torch.arange(10)[None] % RELU.vocab
    known = torch.arange(10) < 4
    visible = torch.where(known[:, None], known[None], torch.ones(10, 10, dtype=torch.bool))[None]
    alone = encoder(ids[:, :4], None)
    whole = encoder(ids, visible)
    assert (whole[:, :4] - alone).abs().max() <= 1e-6
    changed = encoder(torch.where(known, ids, 7), visible)
    assert torch.equal(changed[:, :4], whole[:, :4])
    assert (changed[:, 4:] - whole[:, 4:]).abs().max() > 1e-3


def test_encoder_row_that_sees_nothing_attends_evenly() -> None:
    spec = replace(RELU, layers=1)
    weights = encoder_weights(spec)
    even = dict(weights)
    for name in ("q/kernel", "relative_attention_bias/rel_embedding"):
        even[f"encoder/block_0/layer_0/SelfAttention/{name}"] = np.zeros_like(
            weights[f"encoder/block_0/layer_0/SelfAttention/{name}"]
        )
    ids = torch.arange(8)[None]
    hidden = load_t5(spec, weights, CPU)(ids, torch.zeros(1, 8, dtype=torch.bool))
    assert (hidden - load_t5(spec, even, CPU)(ids, None)).abs().max() <= 1e-6


def test_encode_normalises() -> None:
    made = backend("torch", MAIN, RELU)
    assert isinstance(made, TorchBackend)
    ids = torch.arange(6)[None]
    hidden = load_t5(RELU, encoder_weights(RELU), CPU)(ids, None)
    expected = (hidden - RELU.latent_mean) / RELU.latent_std
    assert torch.equal(made.encode(ids, None), expected)


def test_model_without_encoder_says_so() -> None:
    config = ModelConfig("drafty", network=MAIN, encoder=RELU)
    made = torch_backend.make_backend(config, network_weights(MAIN), {}, "float32")
    with pytest.raises(ElfError, match="'drafty' has no encoder"):
        made.encode(torch.zeros(1, 2, dtype=torch.int32), None)


def test_other_encoder_kinds_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig("plugged", network=MAIN, encoder=replace(RELU, kind="flat"))
    with pytest.raises(ElfError, match="'flat' is unknown on torch"):
        torch_backend.make_backend(config, network_weights(MAIN), {}, "float32")

    def flat(spec: EncoderSpec, weights: Any) -> Any:
        return lambda ids, visible: torch.ones(*ids.shape, spec.d_model)

    monkeypatch.setitem(encoders._REGISTRY, ("flat", "torch"), flat)
    made = torch_backend.make_backend(config, network_weights(MAIN), {}, "float32")
    latents = made.encode(torch.zeros(1, 2, dtype=torch.int32), None)
    assert torch.equal(latents, torch.full((1, 2, 12), (1 - 0.1) / 0.25))


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(ElfError, match="dtype 'float16' is unknown"):
        backend("torch", MAIN, RELU, "float16")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta", "cpu:x"])
def test_unusable_device_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELF_DEVICE", name)
    with pytest.raises(ElfError, match=f"ELF_DEVICE '{name}'"):
        choose_device()


def test_device_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELF_DEVICE", "cpu")
    assert choose_device() == CPU


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_arrays_keep_type_and_value(dtype: str) -> None:
    made = backend("torch", MAIN, RELU)
    array = np.arange(6).reshape(2, 3).astype(dtype)
    array.setflags(write=False)
    back = made.to_numpy(made.asarray(array))
    assert back.dtype == array.dtype
    assert (back == array).all()


def test_torch_backend_needs_no_other_heavy_library() -> None:
    code = (
        "import sys, elf_engine.backends.torch.backend; "
        "print(sorted({'jax', 'flax', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
