"""An encoder and a tokenizer of other kinds, plugged in by a model's configuration."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from elf_engine import encoders, tokens
from elf_engine.config import TokenizerSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Free, build_row
from elf_engine.pipeline import Engine
from tests.fakes import tiny_config, tiny_model_dir


class Backwards(tokens.BytesTokenizer):
    """Reads and writes text from its end."""

    def encode(self, text):
        return super().encode(text)[::-1]

    def decode(self, ids):
        return super().decode(list(ids)[::-1])


def table_encoder(spec, weights):
    """Every token's latent is its row of one table, whatever stands beside it."""
    table = np.asarray(weights["table"], np.float32)

    def encode(ids, visible):
        import torch

        return torch.from_numpy(table)[ids.long()]

    return encode


@pytest.fixture
def model(tmp_path):
    """A tiny model directory whose encoder and tokenizer are of kinds the engine lacks."""
    from safetensors.numpy import save_file

    path = tiny_model_dir(tmp_path)
    table = np.random.default_rng(0).standard_normal((272, 16)).astype(np.float32)
    save_file({"table": table}, path / "encoder.safetensors")
    config = json.loads((path / "config.json").read_text())
    config["encoder"] |= {"kind": "table", "latent_mean": 0.0, "latent_std": 1.0}
    config["tokenizer"]["kind"] = "backwards"
    (path / "config.json").write_text(json.dumps(config))
    return path, table


def test_both_are_refused_until_registered(model, monkeypatch):
    monkeypatch.setattr(encoders, "_REGISTRY", {})
    with pytest.raises(ElfError, match=r"encoder kind 'table' .*encoders.register"):
        Engine.load(model[0])
    with pytest.raises(ElfError, match=r"tokenizer kind 'backwards' .*tokens.register"):
        tokens.load_tokenizer(TokenizerSpec(kind="backwards"), model[0])


def test_both_work_once_registered(model, monkeypatch):
    monkeypatch.setattr(encoders, "_REGISTRY", {})
    monkeypatch.setattr(tokens, "_PLUGGED", {})
    encoders.register("table", "torch", table_encoder)
    tokens.register("backwards", lambda spec, _: Backwards(spec.pad_id, spec.eos_id))
    engine = Engine.load(model[0])
    assert engine.tokenizer.decode(engine.tokenizer.encode("abc")) == "abc"
    ids = engine.tokenizer.encode("abc")
    batch = engine.batch([build_row(engine.config.layout, 1, "infill", [ids, Free(3)])])
    clean = engine.constraint(batch).clean.numpy()
    np.testing.assert_array_equal(clean[batch.known], model[1][batch.ids[batch.known]])
    *_, last = engine.sample(batch, replace(tiny_config().defaults["infill"], steps=2), [0])
    assert np.isfinite(last.norms()).all()
