"""The four kinds of latents: a table looks tokens up and nothing else; encoders are checked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from elf_engine import model_dir
from elf_engine.backends.jax.t5 import T5Encoder
from elf_engine.config import EncoderSpec
from elf_engine.errors import ElfError
from elf_engine.weights import unflatten
from tests.training.small import ENCODER, ROOT, small
from training import cooccurrence
from training.config import EncoderTraining, TrainConfig
from training.embeddings import load_encoder, make_encoder, table_spec, table_weights


def pretrained(tmp_path: Path, source: str, encoder: EncoderSpec) -> TrainConfig:
    network = dataclasses.replace(small(tmp_path).network, embedding_dim=encoder.d_model)
    return small(
        tmp_path, embeddings="pretrained", encoder_from=source, encoder=encoder, network=network
    )


def test_a_table_gives_each_token_one_unit_vector_wherever_it_stands() -> None:
    spec = table_spec(dataclasses.replace(ENCODER, vocab=20))
    weights = table_weights(spec, seed=3)
    assert {k: w.shape for k, w in weights.items()} == model_dir.expected_shapes(spec)
    ids = np.array([[1, 5, 5, 7], [7, 1, 0, 5]], np.int32)
    h = np.asarray(jax.jit(T5Encoder(spec).apply)({"params": unflatten(weights)}, ids))
    table = weights["shared/embedding"]
    unit = table / np.sqrt((table**2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(h, unit[ids], rtol=1e-5)
    assert (table_weights(spec, 3)["shared/embedding"] == table).all()
    assert (table_weights(spec, 4)["shared/embedding"] != table).any()


def test_tokens_of_like_company_get_like_vectors() -> None:
    counts = np.zeros((60, 60), np.float32)
    for token, company in ((20, (30, 31, 32)), (21, (30, 31, 32)), (22, (40, 41, 42))):
        counts[token, company] = counts[company, token] = 50.0
    table = cooccurrence.embedding(counts, 16)
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    assert unit[20] @ unit[21] > 0.4 + abs(unit[20] @ unit[22])


def test_the_table_of_counts_is_the_run_s_latents(tmp_path: Path) -> None:
    plan = EncoderTraining(counted_examples=20)
    config = small(tmp_path, embeddings="counts", encoder_training=plan)
    make_encoder(config)
    table = load_encoder(config)[1]["shared/embedding"]
    np.testing.assert_array_equal(table, np.load(config.directory / "embedding.npy"))
    assert (table != table_weights(config.encoder, config.seed)["shared/embedding"]).any()
    with pytest.raises(ElfError, match="counted_examples 0: nothing to count"):
        small(tmp_path, embeddings="counts")


def test_the_bundled_encoder_serves_another_run_with_its_own_statistics(tmp_path: Path) -> None:
    source = ROOT / "assets" / "starter"
    spec = dataclasses.replace(model_dir.load_config(source).encoder, latent_std=0.5)
    config = pretrained(tmp_path, str(source), spec)
    make_encoder(config)
    config, weights = load_encoder(config)
    files = model_dir.load(source)
    assert config.encoder == files.config.encoder
    np.testing.assert_array_equal(weights["shared/embedding"], files.encoder["shared/embedding"])


def test_a_hugging_face_encoder_keeps_the_config_s_statistics(tmp_path: Path) -> None:
    from transformers import T5Config, T5EncoderModel

    sizes = T5Config(vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    T5EncoderModel(sizes).save_pretrained(tmp_path / "t5")
    spec = EncoderSpec(vocab=40, d_model=8, d_kv=4, d_ff=8, layers=1, heads=2, latent_std=0.2)
    config = pretrained(tmp_path, str(tmp_path / "t5"), spec)
    make_encoder(config)
    assert load_encoder(config)[0].encoder == spec
    wrong = pretrained(tmp_path, str(tmp_path / "t5"), dataclasses.replace(spec, layers=2))
    with pytest.raises(ElfError, match=r"layers is 1, the config's encoder\.layers is 2"):
        make_encoder(wrong)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="make the encoder first: elf-train encoder"):
        load_encoder(small(tmp_path))
    with pytest.raises(ElfError, match="encoder 'no/such' is no file or directory"):
        make_encoder(pretrained(tmp_path, "no/such", ENCODER))
