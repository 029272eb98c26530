"""Model directories: the round trip, and the first difference named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from elf_engine import model_dir
from elf_engine.config import EncoderSpec, NetworkSpec
from elf_engine.errors import ElfError
from tests.fakes import random_weights, tiny_config, tiny_model_dir


def files(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_save_of_load_is_bit_equal(tmp_path: Path, dtype: str) -> None:
    first = tiny_model_dir(tmp_path, dtype=dtype)
    loaded = model_dir.load(first)
    again = model_dir.save(
        tmp_path / "again", loaded.config, loaded.network, loaded.encoder, None, "# tiny\n", dtype
    )
    assert files(again) == files(first)
    assert model_dir.load(again).hash == loaded.hash


def test_load_gives_back_exactly_what_was_saved(tmp_path: Path) -> None:
    config = tiny_config()
    network = random_weights(model_dir.expected_shapes(config.network), 3)
    encoder = random_weights(model_dir.expected_shapes(config.encoder), 4)
    tokenizer = tmp_path / "some.model"
    tokenizer.write_bytes(b"pieces")
    config = replace(config, tokenizer=replace(config.tokenizer, file="tokenizer.model"))
    path = model_dir.save(tmp_path / "m", config, network, encoder, tokenizer, "card")
    loaded = model_dir.load(path)
    assert loaded.config == config
    assert (path / "tokenizer.model").read_bytes() == b"pieces"
    assert (path / "MODEL_CARD.md").read_text() == "card"
    for found, expected in ((loaded.network, network), (loaded.encoder, encoder)):
        assert sorted(found) == sorted(expected)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_model_without_encoder_loads(tmp_path: Path) -> None:
    loaded = model_dir.load(tiny_model_dir(tmp_path, encoder=False))
    assert loaded.encoder == {}
    assert "--encoder" in str(model_dir.missing_encoder(loaded.config.name))


def test_the_hash_follows_every_file_it_covers(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path)
    seen = {model_dir.model_hash(path)}
    for name in ("model.safetensors", "encoder.safetensors"):
        file = path / name
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        seen.add(model_dir.model_hash(path))
    config = path / "config.json"
    config.write_text(config.read_text().replace('"steps": 4', '"steps": 5', 1))
    seen.add(model_dir.load(path).hash)
    assert len(seen) == 4


def test_published_sizes_have_the_published_numbers_of_parameters() -> None:
    sizes = {"B": (12, 768, 12, 105), "M": (24, 1056, 16, 342), "L": (32, 1280, 16, 652)}
    for depth, hidden, heads, millions in sizes.values():
        spec = NetworkSpec(depth=depth, hidden=hidden, heads=heads)
        total = sum(int(np.prod(shape)) for shape in model_dir.expected_shapes(spec).values())
        assert abs(total / 1e6 - millions) < 0.6


def test_t5_small_has_its_number_of_parameters() -> None:
    shapes = model_dir.expected_shapes(EncoderSpec()).values()
    assert sum(int(np.prod(shape)) for shape in shapes) == 35_330_816


def change_weights(path: Path, change: Any) -> None:
    weights = load_file(path)
    change(weights)
    save_file({k: np.ascontiguousarray(v) for k, v in weights.items()}, path)


QKV = "blocks_1/attn/qkv/kernel"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.update({QKV: w[QKV][:, :-1]}),
            r"model.safetensors: blocks_1/attn/qkv/kernel is \(32, 95\), "
            r"config.json implies \(32, 96\)",
        ),
        (lambda w: w.update({QKV: w[QKV].T}), r"qkv/kernel is \(96, 32\)"),
        (lambda w: w.update({"other": w.pop(QKV)}), r"qkv/kernel is missing, .* \(32, 96\)"),
        (lambda w: w.update({"other": w[QKV]}), "other is not a weight"),
        (
            lambda w: [w.pop(name) for name in list(w) if name.startswith("blocks_1/")],
            "blocks_1/norm1/weight is missing",
        ),
        (
            lambda w: w.update({QKV: np.full_like(w[QKV], np.nan)}),
            "blocks_1/attn/qkv/kernel holds values that are not finite",
        ),
    ],
)
def test_the_first_wrong_weight_is_named(tmp_path: Path, change: Any, message: str) -> None:
    path = tiny_model_dir(tmp_path)
    change_weights(path / "model.safetensors", change)
    with pytest.raises(ElfError, match=message):
        model_dir.load(path)


def test_encoder_weights_are_checked_too(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path)
    change_weights(path / "encoder.safetensors", lambda w: w.pop("encoder/final_layer_norm/weight"))
    with pytest.raises(ElfError, match=r"encoder.safetensors: encoder/final_layer_norm/weight is"):
        model_dir.load(path)


def change_config(path: Path, change: Any) -> None:
    data = json.loads((path / "config.json").read_text())
    change(data)
    (path / "config.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["network"].update(depht=3), "did you mean 'depth'"),
        (lambda c: c["network"].update(depth=10**9), "blocks_2/norm1/weight is missing"),
        (lambda c: c["network"].update(depth=1), "blocks_1/attn/k_norm/weight is not a weight"),
        (lambda c: c["network"].update(heads=0), "network.heads 0"),
        (lambda c: c["network"].update(vocab=10), "unembed_kernel is"),
        (lambda c: c["encoder"].update(d_model=17), "d_model 17 is not network.embedding_dim 16"),
        (lambda c: c["encoder"].update(latent_std=0.0), "latent_std 0.0"),
        (lambda c: c["encoder"].update(gated=False), "DenseReluDense/wi/kernel is missing"),
        (lambda c: c["tokenizer"].update(file="../secret"), "outside the model directory"),
        (lambda c: c.update(format=2), "format 2"),
        (lambda c: c.pop("name"), "'name' is missing"),
        (lambda c: c["flow"].update(noise_scale=float("inf")), "Infinity is not a number"),
        (lambda c: c["flow"].update(noise_scale=-1.0), "flow.noise_scale -1.0"),
        (lambda c: c["flow"].update(t_eps=0.0), "flow.t_eps 0.0"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = tiny_model_dir(tmp_path)
    change_config(path, change)
    with pytest.raises(ElfError, match=message):
        model_dir.load(path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00", "[]", "null"])
def test_a_configuration_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tiny_model_dir(tmp_path)
    (path / "config.json").write_text(text)
    with pytest.raises(ElfError, match=r"config\.json"):
        model_dir.load(path)


def test_save_refuses_weights_that_do_not_fit(tmp_path: Path) -> None:
    loaded = model_dir.load(tiny_model_dir(tmp_path))
    network = dict(loaded.network)
    del network["unembed_bias"]
    with pytest.raises(ElfError, match="unembed_bias is missing"):
        model_dir.save(tmp_path / "b", loaded.config, network, loaded.encoder)
    assert not (tmp_path / "b").exists()


def test_a_failed_save_leaves_the_earlier_model(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path)
    before = files(path)
    loaded = model_dir.load(path)
    huge = {name: weight * np.float32(1e9) for name, weight in loaded.network.items()}
    with pytest.raises(ElfError, match="too large"):
        model_dir.save(path, loaded.config, huge, loaded.encoder, dtype="float16")
    assert files(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["tiny"]


def test_save_says_when_the_place_cannot_be_written(tmp_path: Path) -> None:
    loaded = model_dir.load(tiny_model_dir(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ElfError, match="cannot be written"):
        model_dir.save(tmp_path / "file" / "m", loaded.config, loaded.network, loaded.encoder)


def test_save_replaces_a_model_but_nothing_else(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path, seed=1)
    first = model_dir.model_hash(path)
    assert model_dir.model_hash(tiny_model_dir(tmp_path, seed=2)) != first
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("keep")
    with pytest.raises(ElfError, match="not a model directory"):
        tiny_model_dir(tmp_path, name="letters")
    assert (tmp_path / "letters" / "mine.txt").read_text() == "keep"


def test_find_knows_bundled_installed_and_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(model_dir, "BUNDLED", tmp_path / "assets")
    bundled = tiny_model_dir(tmp_path / "assets", name="starter")
    installed = tiny_model_dir(tmp_path / "home" / "models", name="mine")
    elsewhere = tiny_model_dir(tmp_path / "elsewhere")
    assert model_dir.find("starter") == bundled
    assert model_dir.find("mine") == installed
    assert model_dir.find(elsewhere) == elsewhere
    with pytest.raises(ElfError, match=r"did you mean 'starter'\?.*elf models pull"):
        model_dir.find("startr")
    with pytest.raises(ElfError, match="no model directory at"):
        model_dir.find("../mine")
    with pytest.raises(ElfError, match="no such model directory"):
        model_dir.load(tmp_path / "nothing")
