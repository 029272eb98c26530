"""Rotary positions that begin again behind the separator, on both backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from elf_engine.config import LayoutSpec, SampleSpec
from elf_engine.layout import Free, build_row, pair_pieces, rotary_positions
from elf_engine.pipeline import Engine
from tests.fakes import tiny_model_dir
from tests.parity.common import ENCODERS, NETWORKS, backend, network_inputs

NETWORK = NETWORKS["guidance2-selfcond1"]
SOURCE = LayoutSpec(tasks={"translate": 7, "draft": 5}, sep_id=4, positions="source")


def outputs(name: str, inputs: dict[str, Any], places: Any) -> tuple[Any, Any]:
    """(x, logits) of the network at these positions."""
    made = backend(name, NETWORK, ENCODERS["relu"])

    def run(net: Any, z: Any, x_prev: Any, t: Any, w: Any, places: Any) -> Any:
        return net.denoise(z, x_prev, t, w, None, places), net.logits(z, w, None, places)

    given = [made.asarray(inputs[k]) for k in ("z", "x_prev", "t", "w")]
    places = None if places is None else made.asarray(np.asarray(places, np.int32))
    x, logits = made.compile(run)(*given, places)
    return made.to_numpy(x), made.to_numpy(logits)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_tokens_and_positions_moved_together_give_the_same_moved(name: str) -> None:
    inputs = network_inputs(NETWORK)
    size = inputs["z"].shape[1]
    counted = outputs(name, inputs, np.tile(np.arange(size), (3, 1)))
    order = np.random.default_rng(0).permutation(size)
    moved = {**inputs, "z": inputs["z"][:, order], "x_prev": inputs["x_prev"][:, order]}
    for a, b, c, d in zip(
        outputs(name, inputs, None),
        counted,
        outputs(name, moved, np.tile(order, (3, 1))),
        outputs(name, moved, None),
        strict=True,
    ):
        assert np.abs(a - b).max() <= 1e-6
        assert np.abs(b[:, order] - c).max() <= 5e-5
        assert np.abs(c - d).max() > 1e-2


def test_backends_agree_row_by_row() -> None:
    inputs = network_inputs(NETWORK)
    size = inputs["z"].shape[1]
    places = np.stack([np.arange(size) % (7 + row) for row in range(3)])
    for a, b in zip(outputs("torch", inputs, places), outputs("jax", inputs, places), strict=True):
        assert np.abs(a - b).max() <= 5e-5


@pytest.mark.parametrize("library", [np.asarray, jnp.asarray, torch.tensor])
def test_the_target_stands_beside_its_source(library: Any) -> None:
    row = build_row(SOURCE, 1, "translate", pair_pieces(SOURCE, [30, 31, 32], Free(4, (40, 41))))
    plain = build_row(SOURCE, 1, "draft", [[30, 31], Free(6)])
    ids = np.stack([row.ids, plain.ids])
    found = np.asarray(rotary_positions(SOURCE, library(ids)))
    assert ids[0].tolist() == [7, 30, 31, 32, 4, 40, 41, 1, 1]
    assert found.tolist() == [[0, 1, 2, 3, 4, 1, 2, 3, 4], list(range(9))]
    assert rotary_positions(LayoutSpec(sep_id=4), library(ids)) is None


def test_a_run_uses_them_on_both_backends(tmp_path: Path) -> None:
    path = tiny_model_dir(tmp_path)
    latents = {}
    for kind in ("row", "source"):
        data = json.loads((path / "config.json").read_text())
        data["layout"] = {**data["layout"], "sep_id": 4, "positions": kind}
        (path / "config.json").write_text(json.dumps(data))
        for name in ("torch", "jax"):
            engine = Engine.load(path, backend=name)
            source = engine.tokenizer.encode("The house")
            pieces = pair_pieces(engine.config.layout, source, Free(5))
            rows = [build_row(engine.config.layout, 1, "translate", pieces)] * 2
            *_, last = engine.sample(engine.batch(rows), SampleSpec(steps=4, seed=3), [0, 1])
            latents[kind, name] = engine.backend.to_numpy(last.state.z)[:2]
    for kind in ("row", "source"):
        assert np.abs(latents[kind, "torch"] - latents[kind, "jax"]).max() <= 1e-3
    assert np.abs(latents["row", "torch"] - latents["source", "torch"]).max() > 1e-2
