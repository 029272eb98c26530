"""Both backends give the same numbers, through the protocol alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elf_engine.config import EncoderSpec, SampleSpec
from elf_engine.layout import Free, build_row
from elf_engine.pipeline import Engine
from tests.fakes import tiny_model_dir
from tests.parity.common import ENCODERS, NETWORKS, backend, both_modes, network_inputs

MAIN = NETWORKS["guidance2-selfcond1"]


@pytest.mark.parametrize(
    ("variant", "masked"),
    [*((variant, True) for variant in NETWORKS), ("guidance2-selfcond1", False)],
)
def test_network(variant: str, masked: bool) -> None:
    spec = NETWORKS[variant]
    inputs = network_inputs(spec)
    ours, theirs = (
        both_modes(backend(name, spec, ENCODERS["relu"]), inputs, masked)
        for name in ("torch", "jax")
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == np.float32
        assert np.abs(a).max() > 0.1
        assert np.abs(a - b).max() <= 5e-5


def test_network_in_bfloat16() -> None:
    inputs = network_inputs(MAIN)
    ours, theirs = (
        both_modes(backend(name, MAIN, ENCODERS["relu"], "bfloat16"), inputs, masked=True)
        for name in ("torch", "jax")
    )
    for a, b in zip(ours, theirs, strict=True):
        assert np.sqrt(np.mean((a - b) ** 2)) <= 0.02 * np.sqrt(np.mean(a**2))


def _visibility(kind: str) -> np.ndarray[Any, Any] | None:
    valid = np.arange(140) < np.array([[140], [100], [3]])
    known = np.arange(140) < np.array([[50], [0], [2]])
    if kind == "3d":
        # The known see the known, the others all valid; row 2 of the batch has an all-hidden row.
        rows = np.where(known[:, :, None], known[:, None, :], valid[:, None, :])
        rows[2, 1] = False
        return rows
    return valid if kind == "2d" else None


@pytest.mark.parametrize("kind", ["none", "2d", "3d"])
@pytest.mark.parametrize("spec", ENCODERS.values(), ids=ENCODERS)
def test_encoder(spec: EncoderSpec, kind: str) -> None:
    ids = np.random.default_rng(0).integers(0, spec.vocab, (3, 140), dtype=np.int32)
    visible = _visibility(kind)
    results = []
    for name in ("torch", "jax"):
        made = backend(name, MAIN, spec)
        seen = None if visible is None else made.asarray(visible)
        results.append(made.to_numpy(made.encode(made.asarray(ids), seen)))
    assert np.isfinite(results[0]).all()
    assert np.abs(results[0]).max() > 1
    assert np.abs(results[0] - results[1]).max() <= 5e-5


def test_whole_run(tmp_path: Path) -> None:
    """The same noise, settings and known text give the same latents and ids."""
    path = tiny_model_dir(tmp_path)
    spec = SampleSpec(steps=6, gamma=1.0, guidance=2.0, condition_guidance=1.5, seed=3)
    results = []
    for name in ("torch", "jax"):
        engine = Engine.load(path, backend=name)
        pieces = [engine.tokenizer.encode("The"), Free(5), engine.tokenizer.encode("house.")]
        rows = [
            build_row(engine.config.layout, 1, "infill", pieces),
            build_row(engine.config.layout, 1, "draft", pieces[:2]),
        ]
        *_, last = engine.sample(engine.batch(rows), spec, [0, 1])
        results.append((engine.backend.to_numpy(last.state.z)[:2], last.ids()))
    assert np.abs(results[0][0] - results[1][0]).max() <= 1e-3
    assert (results[0][1] == results[1][1]).all()
