"""The official checkpoint files, where ../shared/golden has them: bit for bit, then converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elf_engine import model_dir
from elf_engine.config import EncoderSpec, NetworkSpec
from elf_engine.published.convert import Options, convert, read_checkpoint
from elf_engine.published.t5_encoder import read_encoder
from tests.checkpoints.makers import assert_same

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "official_ckpt"

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no ../shared/golden")


def under(file: str, prefix: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / file) as data:
        return {
            name.removeprefix(prefix): data[name] for name in data.files if name.startswith(prefix)
        }


@pytest.mark.parametrize("kind", ["orbax", "msgpack", "torch"])
def test_checkpoints_convert_bit_for_bit(tmp_path: Path, kind: str) -> None:
    expected = under("expected.npz", "ema_params1/")
    (checkpoint,) = (GOLDEN / kind).glob("checkpoint_*")
    assert_same(read_checkpoint(checkpoint), expected)
    options = Options(max_length=16, encoder=GOLDEN / "t5_encoder.pkl")
    loaded = model_dir.load(convert(GOLDEN / kind, tmp_path / "m", options))
    assert_same(loaded.network, expected)
    assert_same(loaded.encoder, under("t5_encoder_expected.npz", "params/"))
    meta = {name: int(value) for name, value in under("expected.npz", "meta/").items()}
    assert loaded.config.network == NetworkSpec(
        embedding_dim=meta["text_encoder_dim"],
        hidden=meta["hidden_size"],
        depth=meta["depth"],
        heads=meta["num_heads"],
        bottleneck=meta["bottleneck_dim"],
        vocab=meta["vocab_size"],
        max_length=meta["max_length"],
        time_tokens=meta["num_time_tokens"],
        guidance_tokens=meta["num_self_cond_cfg_tokens"],
        mode_tokens=meta["num_model_mode_tokens"],
    )


@pytest.mark.parametrize("file", ["t5_encoder.pkl", "t5_encoder_wrapped.pkl"])
def test_encoder_pickles_are_read_bit_for_bit(file: str) -> None:
    assert_same(read_encoder(GOLDEN / file), under("t5_encoder_expected.npz", "params/"))


@pytest.mark.parametrize("variant", ["main", "nosctok", "noselfcond"])
def test_expected_shapes_are_those_of_the_reference(variant: str) -> None:
    with np.load(GOLDEN.parent / f"forward_{variant}.npz") as data:
        shapes = {n.removeprefix("params/"): data[n].shape for n in data if n.startswith("params/")}
        meta = {n.removeprefix("meta/"): int(data[n]) for n in data if n.startswith("meta/")}
    spec = NetworkSpec(
        embedding_dim=meta["text_encoder_dim"],
        hidden=meta["hidden_size"],
        depth=meta["depth"],
        heads=meta["num_heads"],
        bottleneck=meta["bottleneck_dim"],
        vocab=meta["vocab_size"],
        time_tokens=meta["num_time_tokens"],
        guidance_tokens=meta["num_self_cond_cfg_tokens"],
        mode_tokens=meta["num_model_mode_tokens"],
        self_conditioning=variant != "noselfcond",
    )
    assert model_dir.expected_shapes(spec) == shapes


@pytest.mark.parametrize("variant", ["relu", "gated"])
def test_expected_encoder_shapes_are_those_of_the_reference(variant: str) -> None:
    with np.load(GOLDEN.parent / f"t5_{variant}.npz") as data:
        shapes = {n.removeprefix("params/"): data[n].shape for n in data if n.startswith("params/")}
        meta = {n.removeprefix("meta/"): float(data[n]) for n in data if n.startswith("meta/")}
    spec = EncoderSpec(
        vocab=int(meta["vocab_size"]),
        d_model=int(meta["d_model"]),
        d_kv=int(meta["d_kv"]),
        d_ff=int(meta["d_ff"]),
        layers=int(meta["num_layers"]),
        heads=int(meta["num_heads"]),
        gated=bool(meta["is_gated_act"]),
    )
    assert model_dir.expected_shapes(spec) == shapes
