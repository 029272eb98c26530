"""A converted checkpoint runs, alike on both backends, with and without its encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elf_engine import layout
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from elf_engine.pipeline import Engine
from elf_engine.published.convert import Options, convert
from tests.checkpoints import makers

LENGTH = 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orbax checkpoint, encoder pickle and a Hugging Face tokenizer, converted."""
    root = tmp_path_factory.mktemp("model")
    weights = makers.network()
    makers.write_orbax(root / "checkpoint_0", makers.train_state(weights, weights))
    options = Options(
        name="tiny",
        max_length=LENGTH,
        encoder=makers.write_pickle(root / "t5.pkl", makers.encoder()),
        tokenizer=makers.write_tokenizer(root / "tokenizer"),
    )
    return convert(root / "checkpoint_0", root / "m", options)


def draft_batch(engine: Engine, prefix: list[int]) -> layout.Batch:
    free = layout.Free(LENGTH - len(prefix))
    row = layout.build_row(engine.config.layout, 1, "draft", [prefix, free])
    return engine.batch([row])


def last_latents(engine: Engine, prefix: list[int]) -> np.ndarray:
    spec = SampleSpec(steps=4, gamma=1.5, guidance=3.0)
    *_, last = engine.sample(draft_batch(engine, prefix), spec, [0])
    return engine.backend.to_numpy(last.state.z)


def test_both_backends_run_a_converted_checkpoint_alike(model: Path) -> None:
    engines = {name: Engine.load(model, name) for name in ("jax", "torch")}
    ids = engines["jax"].tokenizer.encode("w5 w7")
    assert ids == [5, 7]
    assert engines["torch"].tokenizer.decode([5, 7, 1]) == "w5 w7"
    for prefix in ([], ids):
        jax, torch = (last_latents(engine, prefix) for engine in engines.values())
        assert np.abs(jax).max() > 0.1
        np.testing.assert_allclose(jax, torch, atol=1e-3)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_without_encoder_a_model_drafts_freely_but_cannot_read(
    tmp_path: Path, model: Path, backend: str
) -> None:
    source = model.parent / "checkpoint_0"
    options = Options(max_length=LENGTH, tokenizer=model.parent / "tokenizer")
    engine = Engine.load(convert(source, tmp_path / "m", options), backend)
    engine.constraint(draft_batch(engine, []))
    with pytest.raises(ElfError, match=r"model 'm' has no encoder.*--encoder"):
        engine.constraint(draft_batch(engine, [5, 7]))
