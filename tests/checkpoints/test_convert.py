"""Conversion: what is inferred, what the catalogue adds, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from elf_engine import model_dir
from elf_engine.config import PUBLISHED_SIZES, NetworkSpec
from elf_engine.errors import ElfError
from elf_engine.published.catalogue import CATALOGUE, check_published, infer_network
from elf_engine.published.convert import Options, convert, locate
from elf_engine.published.t5_encoder import infer_spec, read_encoder
from elf_engine.types import Weights
from tests.checkpoints import makers
from tests.fakes import random_weights

WEIGHTS, ENCODER = makers.network(), makers.encoder()


def checkpoint(path: Path, weights: Weights = WEIGHTS) -> Path:
    return makers.write_msgpack(path, makers.train_state(weights, weights))


def tokenizer(path: Path) -> Path:
    makers.write_tokenizer(path)
    (path / "pytorch_model.bin").write_text("not a tokenizer file")
    return path


def test_a_converted_model_holds_the_checkpoint_s_weights(tmp_path: Path) -> None:
    options = Options(
        name="mine",
        max_length=64,
        encoder=makers.write_pickle(tmp_path / "t5.pkl", ENCODER),
        tokenizer=tokenizer(tmp_path / "tok"),
    )
    loaded = model_dir.load(convert(checkpoint(tmp_path / "checkpoint_3"), tmp_path / "m", options))
    makers.assert_same(loaded.network, WEIGHTS)
    makers.assert_same(loaded.encoder, ENCODER)
    assert loaded.config.name == "mine"
    assert loaded.config.network == makers.NETWORK
    assert loaded.config.encoder == makers.ENCODER
    files = sorted(p.name for p in (loaded.path / loaded.config.tokenizer.file).iterdir())
    assert files == ["tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"guidance_tokens": 0},
        {"guidance_tokens": 0, "self_conditioning": False},
        {"depth": 11, "heads": 4, "bottleneck": 3, "time_tokens": 1, "mode_tokens": 5},
        {"embedding_dim": 24, "vocab": 71, "max_length": 20},
    ],
)
def test_every_size_is_inferred_from_the_weights(change: dict[str, Any]) -> None:
    spec = replace(makers.NETWORK, **change)
    weights = random_weights(model_dir.expected_shapes(spec))
    assert infer_network(weights, spec.max_length, "file") == spec


@pytest.mark.parametrize("change", [{}, {"gated": False}, {"layers": 3, "heads": 2, "d_kv": 6}])
def test_every_encoder_size_is_inferred(change: dict[str, Any]) -> None:
    spec = replace(makers.ENCODER, **change)
    assert infer_spec(random_weights(model_dir.expected_shapes(spec)), "file") == spec


@pytest.mark.parametrize(
    ("task", "max_length", "max_source", "hold", "tasks", "pad"),
    [
        ("owt", 1024, 0, "renoise", {"draft": -1, "infill": -1}, 0),
        ("de-en", 128, 64, "clean", {"translate": -1}, 1),
        ("xsum", 1088, 1024, "clean", {"summarise": -1}, 1),
    ],
)
def test_a_task_brings_its_published_layout(
    tmp_path: Path, task: str, max_length: int, max_source: int, hold: str, tasks: Any, pad: int
) -> None:
    path = convert(checkpoint(tmp_path / "c"), tmp_path / "m", Options(task=task))
    config = model_dir.load(path).config
    layout = config.layout
    assert config.network.max_length == max_length
    assert layout.lengths == (max_length,)
    assert (layout.padding, layout.hold, layout.max_source) == ("attended", hold, max_source)
    assert (layout.tasks, layout.sep_id) == (tasks, -1)
    assert (config.tokenizer.pad_id, config.tokenizer.eos_id) == (pad, 1)
    assert set(config.defaults) == set(tasks)


def test_the_catalogue_has_the_published_names_and_settings() -> None:
    names = ["ELF-B-owt", "ELF-M-owt", "ELF-L-owt", "ELF-B-de-en", "ELF-B-xsum", "ELF-B-PD-owt"]
    assert set(CATALOGUE) == {*names, *(f"{name}-torch" for name in names)}
    base = CATALOGUE["ELF-B-owt"].defaults()["draft"]
    assert (base.steps, base.sampler, base.gamma, base.guidance) == (32, "sde", 1.5, 3.0)
    large = CATALOGUE["ELF-L-owt-torch"].defaults()["draft"]
    assert (large.steps, large.sampler, large.gamma, large.guidance) == (64, "sde", 1.0, 3.0)
    pair = CATALOGUE["ELF-B-de-en"].defaults()["translate"]
    assert (pair.steps, pair.sampler, pair.guidance, pair.condition_guidance) == (64, "ode", 1, 2)


def test_the_name_is_taken_from_the_folder(tmp_path: Path) -> None:
    """And then the checkpoint must be of that model's size."""
    folder = tmp_path / "ELF-M-owt"
    folder.mkdir()
    checkpoint(folder / "checkpoint_0")
    for source in (folder, folder / "checkpoint_0"):
        with pytest.raises(ElfError, match="checkpoint_0: hidden is 32, ELF-M-owt has 1056"):
            convert(source, tmp_path / "m")
    assert model_dir.load(convert(folder, tmp_path / "m", Options(name="own"))).config.name == "own"
    check_published(PUBLISHED_SIZES["M"], CATALOGUE["ELF-M-owt"], "file")
    with pytest.raises(ElfError, match="depth is 2, ELF-B-xsum has 12"):
        check_published(NetworkSpec(depth=2), CATALOGUE["ELF-B-xsum"], "file")


def test_the_latest_checkpoint_of_a_directory_is_taken(tmp_path: Path) -> None:
    for step in (9, 10, 2):
        checkpoint(tmp_path / f"checkpoint_{step}")
    (tmp_path / "README.md").write_text("")
    assert locate(tmp_path).name == "checkpoint_10"


QKV = "blocks_1/attn/qkv/kernel"


def without_block(weights: Weights) -> Weights:
    return {name: array for name, array in weights.items() if not name.startswith("blocks_0/")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w | {QKV: w[QKV].T}, r"qkv/kernel is \(96, 32\), the rest of it implies \(32,"),
        (lambda w: w | {"blocks_1/attn/qvk/kernel": w[QKV]}, "qvk/kernel is not a weight that"),
        (lambda w: {k: v for k, v in w.items() if k != QKV}, "blocks_1/attn/qkv/kernel is missing"),
        (without_block, "blocks_0/norm1/weight is missing; this is no ELF network"),
        (lambda w: w | {"proj_kernel": w["proj_kernel"].T}, r"proj_kernel is \(16, 32\)"),
        (lambda w: w | {"mode_tokens": w["mode_tokens"][0]}, r"mode_tokens is \(2, 32\)"),
        (
            lambda w: w | {"blocks_0/attn/q_norm/weight": np.ones(15, np.float32)},
            "heads of 15 do not divide a width of 32",
        ),
        (lambda w: w | {QKV: w[QKV] * np.float32(np.inf)}, "qkv/kernel holds values that are not"),
        (lambda w: {"anything": w[QKV]}, "this is no ELF network"),
    ],
)
def test_a_checkpoint_that_differs_is_refused_by_name(
    tmp_path: Path, change: Any, message: str
) -> None:
    source = checkpoint(tmp_path / "checkpoint_1", change(WEIGHTS))
    with pytest.raises(ElfError, match=rf"(checkpoint_1: )?.*{message}"):
        convert(source, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_sources_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match=r"no checkpoint at .*nowhere"):
        locate(tmp_path / "nowhere")
    with pytest.raises(ElfError, match="elf models pull ELF-B-owt"):
        locate(Path("ELF-B-owt"))
    with pytest.raises(ElfError, match="holds no checkpoint"):
        locate(tmp_path)
    with pytest.raises(ElfError, match="neither a file nor a directory"):
        locate(Path("/dev/null"))
    pickled = makers.write_pickle(tmp_path / "checkpoint_1", WEIGHTS)
    with pytest.raises(ElfError, match="is a pickle"):
        convert(pickled, tmp_path / "m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(task="poem"), "task 'poem' is unknown"),
        (Options(name="../x"), r"model name '\.\./x'"),
        (Options(max_length=64, max_source=64), "leaves no room"),
        (Options(latent_std=-1.0), "latent_std -1.0"),
        (Options(noise_scale=-1.0), "noise_scale -1.0"),
        (Options(dtype="float8"), "dtype 'float8'"),
        (Options(encoder=Path("nowhere.pkl")), "no encoder at 'nowhere.pkl'"),
        (Options(tokenizer=Path("nowhere")), "holds no tokenizer.json"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: Options, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        convert(checkpoint(tmp_path / "c"), tmp_path / "m", options)
    assert not (tmp_path / "m").exists()


def test_a_tokenizer_the_network_does_not_know_is_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "c")
    large = makers.write_tokenizer(tmp_path / "tok", words=273)
    with pytest.raises(ElfError, match="has 273 tokens, the checkpoint knows 272"):
        convert(source, tmp_path / "m", Options(tokenizer=large))
    (large / "tokenizer.json").write_text("{}")
    with pytest.raises(ElfError, match=r"holds a tokenizer\.json that is none"):
        convert(source, tmp_path / "m", Options(tokenizer=large))


def test_an_encoder_of_another_width_is_refused(tmp_path: Path) -> None:
    wide = random_weights(model_dir.expected_shapes(replace(makers.ENCODER, d_model=24)))
    options = Options(encoder=makers.write_pickle(tmp_path / "t5.pkl", wide))
    with pytest.raises(ElfError, match="encoder is 24 wide, the checkpoint's embeddings are 16"):
        convert(checkpoint(tmp_path / "c"), tmp_path / "m", options)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("gated", [True, False])
def test_encoder_pickles_bare_and_wrapped(tmp_path: Path, protocol: int, gated: bool) -> None:
    spec = replace(makers.ENCODER, gated=gated)
    weights = random_weights(model_dir.expected_shapes(spec))
    wrapped = {f"params/{name}": array for name, array in weights.items()}
    for tree in (weights, wrapped):
        path = makers.write_pickle(tmp_path / "t5.pkl", tree, protocol)
        makers.assert_same(read_encoder(path), weights)


@pytest.mark.parametrize("kind", ["safetensors", "torch"])
def test_hugging_face_encoders(tmp_path: Path, kind: str) -> None:
    named = makers.hugging_face_names(ENCODER)
    (tmp_path / "config.json").write_text('{"model_type": "t5", "feed_forward_proj": "gated-gelu"}')
    if kind == "torch":
        import torch

        tensors = {name: torch.from_numpy(array) for name, array in named.items()}
        torch.save(tensors, tmp_path / "pytorch_model.bin")
    else:
        save_file(named, tmp_path / "model.safetensors", {"format": "pt"})
    makers.assert_same(read_encoder(tmp_path), ENCODER)


def test_transformers_own_t5_is_understood(tmp_path: Path) -> None:
    """The names and orientation transformers itself writes, not what we believe it writes."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=30, d_model=16, d_kv=6, d_ff=20, num_layers=2, num_heads=2,
        feed_forward_proj="relu",
    )  # fmt: skip
    model = T5EncoderModel(config)
    model.save_pretrained(tmp_path)
    weights = read_encoder(tmp_path)
    spec = infer_spec(weights, "file")
    sizes = (spec.vocab, spec.d_model, spec.d_kv, spec.d_ff, spec.layers, spec.heads, spec.gated)
    assert sizes == (30, 16, 6, 20, 2, 2, False)
    query = model.encoder.block[1].layer[0].SelfAttention.q.weight.detach().numpy()
    assert np.array_equal(weights["encoder/block_1/layer_0/SelfAttention/q/kernel"], query.T)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bert"}, "a bert with"),
        ({"feed_forward_proj": "gated-silu"}, "with gated-silu layers"),
        ([], "not a readable model configuration"),
    ],
)
def test_encoders_other_than_t5_are_refused(tmp_path: Path, config: Any, message: str) -> None:
    save_file(makers.hugging_face_names(ENCODER), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ElfError, match=message):
        read_encoder(tmp_path)


KEY = "encoder/block_1/layer_0/SelfAttention/k/kernel"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: {k: v for k, v in w.items() if k != KEY}, f"{KEY} is missing"),
        (lambda w: w | {KEY: w[KEY][:, :-1]}, rf"{KEY} is \(16, 15\)"),
        (lambda w: w | {"encoder/block_1/x": w[KEY]}, "block_1/x is not a weight"),
        (lambda w: {"shared/embedding": w["shared/embedding"]}, "this is no T5 encoder"),
        (lambda w: w | {"shared/embedding": np.zeros(3, np.float32)}, "T5 encoder has 2 axes"),
    ],
)
def test_wrong_encoders_are_refused_by_name(tmp_path: Path, change: Any, message: str) -> None:
    path = makers.write_pickle(tmp_path / "t5.pkl", change(ENCODER))
    with pytest.raises(ElfError, match=rf"t5\.pkl: .*{message}"):
        read_encoder(path)


def test_foreign_hugging_face_weights_are_refused(tmp_path: Path) -> None:
    named = makers.hugging_face_names(ENCODER) | {"classifier.weight": np.zeros((2, 2), np.float32)}
    save_file(named, tmp_path / "model.safetensors")
    with pytest.raises(ElfError, match=r"classifier\.weight is not a weight of a T5 encoder"):
        read_encoder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ElfError, match="holds neither model"):
        read_encoder(tmp_path)
