"""A real run, small: it learns, resumes to the bit, stops on bad losses, exports, and speaks."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from elf_engine import model_dir
from elf_engine.errors import ElfError
from elf_engine.weights import flatten
from tests.training.small import ready
from training import loop
from training.checkpoint import Checkpoints
from training.config import TrainConfig
from training.embeddings import load_encoder
from training.evaluate import evaluate_run
from training.export import export, load_run
from training.loop import run, saved_config
from training.step import State, Stepper

STEPS = 40
TIMING = ("tokens_per_s", "ms_per_step", "tflop_per_s", "utilisation")


pytestmark = pytest.mark.usefixtures("quick_steps")


def copy_encoder(source: TrainConfig, target: TrainConfig) -> None:
    target.directory.mkdir(parents=True)
    for name in (loop.ENCODER, loop.LATENTS):
        (target.directory / name).write_bytes((source.directory / name).read_bytes())


def final_bits(config: TrainConfig) -> dict[str, bytes]:
    config, encoder = load_encoder(config)
    with Checkpoints(config.directory) as store:
        state, _ = store.restore(Stepper(config, encoder).like)
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in flat}


def log_lines(config: TrainConfig) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (config.directory / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in TIMING} for row in rows]


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, quick_steps: None
) -> tuple[TrainConfig, TrainConfig]:
    """The same 40 steps of Muon in one go, and stopped half-way and resumed."""
    directory = tmp_path_factory.mktemp("runs")
    whole = ready(directory, "whole", steps=STEPS)
    halved = dataclasses.replace(whole, name="halved", steps=STEPS // 2)
    copy_encoder(whole, halved)
    run(whole)
    run(halved)
    run(dataclasses.replace(saved_config(halved.directory), steps=STEPS), resume=True)
    return whole, halved


def test_forty_steps_equal_twenty_and_twenty_to_the_bit(
    runs: tuple[TrainConfig, TrainConfig],
) -> None:
    whole, halved = (final_bits(config) for config in runs)
    assert whole == halved
    assert log_lines(runs[0]) == log_lines(runs[1])
    assert len(log_lines(runs[0])) == STEPS


def test_it_learns(runs: tuple[TrainConfig, TrainConfig]) -> None:
    lines = log_lines(runs[0])
    assert lines[0]["decode"] == pytest.approx(math.log(8192), rel=0.1), "it begins with a guess"
    assert lines[-1]["decode"] < lines[0]["decode"] - 1.0


def test_the_log_names_branches_tasks_and_speed(runs: tuple[TrainConfig, TrainConfig]) -> None:
    text = (runs[0].directory / "log.jsonl").read_text()
    keys = {key for line in text.splitlines() for key in json.loads(line)}
    assert {"loss", "denoise", "decode", "tokens", "denoise/translate", *TIMING} <= keys


def test_the_last_checkpoints_are_kept(runs: tuple[TrainConfig, TrainConfig]) -> None:
    with Checkpoints(runs[1].directory) as store:
        assert store.steps == [STEPS // 2, STEPS]
        record = store.record(STEPS)
    assert record["config"]["name"] == "halved"
    assert record["random"] == {"seed": 0, "step": STEPS}
    assert record["data"]["step"] == STEPS


def test_a_fresh_run_does_not_overwrite(runs: tuple[TrainConfig, TrainConfig]) -> None:
    with pytest.raises(ElfError, match="already has checkpoints"):
        run(runs[0])


def test_another_config_is_told_apart_from_damage(
    runs: tuple[TrainConfig, TrainConfig],
) -> None:
    wider = dataclasses.replace(
        runs[0], network=dataclasses.replace(runs[0].network, bottleneck=24)
    )
    with pytest.raises(ElfError, match=r"text_proj.*the config implies"):
        run(dataclasses.replace(wider, steps=STEPS + 1), resume=True)
    with Checkpoints(runs[0].directory) as store:
        assert store.steps[-1] == STEPS


def test_export_loads_with_its_own_numbers(
    runs: tuple[TrainConfig, TrainConfig], tmp_path: Path
) -> None:
    export(runs[0].directory, tmp_path / "model")
    files = model_dir.load(tmp_path / "model")
    assert files.config.network == runs[0].network
    assert files.config.layout.tasks["infill"] == 6
    assert files.config.encoder.latent_std == 1.0
    average = flatten(load_run(runs[0].directory)[2].average)
    assert set(average) == set(files.network)
    for name, value in files.network.items():
        np.testing.assert_allclose(value, average[name], rtol=1e-3, atol=1e-4)


def test_validation_names_every_task(runs: tuple[TrainConfig, TrainConfig]) -> None:
    found = evaluate_run(runs[0].directory, batches=3)
    assert found["step"] == STEPS
    assert {"denoise", "decode", "decode/translate"} <= set(found)
    assert found["decode"] < math.log(8192)


class Broken:
    """A step that finds the losses from one step on far above what is usual."""

    def __init__(self, config: TrainConfig, encoder: Any, at: int) -> None:
        self.inner, self.at = Stepper(config, encoder), at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, state: State, batch: Any, step: int, limit: float, ok: Any) -> Any:
        assert math.isfinite(limit) == (step >= 20)
        return self.inner(state, batch, step, limit / 1e9 if step >= self.at else limit, ok)


def test_a_burst_loss_stops_the_run_and_keeps_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ready(tmp_path, steps=30, log_every=4)
    monkeypatch.setattr(loop, "Stepper", lambda c, e: Broken(c, e, 23))
    why = r"stopped at step 23: the loss is .*, the usual one .*; its batch of 8 rows \("
    with pytest.raises(ElfError, match=why) as e:
        run(config)
    assert "\n" not in str(e.value)
    monkeypatch.setattr(loop, "Stepper", Stepper)
    with Checkpoints(config.directory) as store:
        assert store.steps[-1] == 23
    run(config, resume=True)
    whole = ready(tmp_path, "whole", steps=30, log_every=4)
    run(whole)
    assert final_bits(config) == final_bits(whole), "steps 23 and 24 left no trace"


def test_a_nan_changes_nothing_and_stops(tmp_path: Path) -> None:
    config = ready(tmp_path, steps=4)
    config, encoder = load_encoder(config)
    stepper, source = Stepper(config, encoder), loop.open_source(config)
    state, metrics = stepper(stepper.start(), source.draw(0), 0)
    good = jax.tree.map(np.array, state)
    state = state._replace(params=jax.tree.map(lambda a: a * np.nan, state.params))
    bad = jax.tree.map(np.array, state)
    state, metrics = stepper(state, source.draw(1), 1)
    assert not bool(metrics["ok"])
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.array, state), bad)
    start = jax.device_put(good, stepper.shardings)
    state, metrics = stepper(start, source.draw(1), 1, ok=metrics["ok"])
    assert not bool(metrics["ok"]), "nothing moves after a stop"
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.array, state), good)


def test_precision_and_remat_keep_the_loss(tmp_path: Path) -> None:
    config, encoder = load_encoder(ready(tmp_path))
    batch, found = loop.open_source(config).draw(0), []
    for options in ({}, {"remat": True}, {"compute": "bfloat16"}):
        stepper = Stepper(dataclasses.replace(config, **options), encoder)
        state, metrics = stepper(stepper.start(), batch, 0)
        assert {leaf.dtype.name for leaf in jax.tree.leaves(state)} == {"float32", "int32"}
        found.append((float(metrics["loss"]), float(metrics["grad_norm"])))
    plain, remat, low = found
    assert remat == pytest.approx(plain, rel=1e-5)
    assert low == pytest.approx(plain, rel=3e-2)
    assert low != pytest.approx(plain, rel=1e-5), "it computes in bfloat16"


def test_a_learned_table_is_trained(tmp_path: Path) -> None:
    config = ready(tmp_path, steps=3, embeddings="learned")
    run(config)
    _, encoder, state = load_run(config.directory)
    moved = np.asarray(state.params["shared"]["embedding"]) - encoder["shared/embedding"]
    assert np.abs(moved).max() > 1e-3
    export(config.directory, tmp_path / "model", dtype="float32")
    files = model_dir.load(tmp_path / "model")
    np.testing.assert_array_equal(
        files.encoder["shared/embedding"], np.asarray(state.average["shared"]["embedding"])
    )
    assert not any(name.startswith("shared") for name in files.network)
