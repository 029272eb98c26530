"""The PyTorch step: one state with the JAX step, resumes to the bit, refuses what it lacks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

from elf_engine.errors import ElfError
from tests.training.small import ready
from tests.training.test_run import copy_encoder
from training import loop
from training.checkpoint import Checkpoints
from training.config import OptimizerConfig, TrainConfig
from training.cpu.optimizer import average
from training.cpu.step import CpuStepper
from training.embeddings import load_encoder
from training.evaluate import evaluate_run
from training.export import load_run
from training.optimizer import average_step
from training.step import State, Stepper

pytestmark = pytest.mark.usefixtures("quick_steps")
STEPS = 6


def bits(config: TrainConfig) -> dict[str, bytes]:
    _, _, state = load_run(config.directory)
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(a).tobytes() for path, a in flat}


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, quick_steps: None
) -> tuple[TrainConfig, TrainConfig]:
    """The same steps in one go, and stopped half-way and resumed."""
    directory = tmp_path_factory.mktemp("runs")
    whole = ready(directory, "whole", steps=STEPS, backend="torch")
    halved = dataclasses.replace(whole, name="halved", steps=STEPS // 2)
    copy_encoder(whole, halved)
    loop.run(whole)
    loop.run(halved)
    loop.run(dataclasses.replace(halved, steps=STEPS), resume=True)
    return whole, halved


def test_a_run_in_two_parts_is_the_run_in_one(prepared: tuple[TrainConfig, TrainConfig]) -> None:
    whole, halved = prepared
    found = bits(whole)
    assert found == bits(halved)
    params = {k: a for k, a in found.items() if k.startswith(".params")}
    assert any(a != found[k.replace(".params", ".average")] for k, a in params.items())


def test_jax_goes_on_where_torch_left_off(prepared: tuple[TrainConfig, TrainConfig]) -> None:
    _, halved = prepared
    assert evaluate_run(halved.directory, 1)["step"] == STEPS
    more = dataclasses.replace(halved, backend="jax", steps=STEPS + 2)
    loop.run(more, resume=True)
    _, _, state = load_run(more.directory)
    assert int(state.step) == STEPS + 2
    loop.run(dataclasses.replace(halved, steps=STEPS + 4), resume=True)
    assert int(load_run(halved.directory)[2].step) == STEPS + 4


def test_it_starts_where_jax_starts(tmp_path: Path) -> None:
    config, encoder = load_encoder(
        ready(tmp_path, backend="torch", unembedding="encoder", steps=STEPS)
    )
    mine, theirs = CpuStepper(config, encoder), Stepper(config, encoder)
    assert jax.tree.structure(mine.like) == jax.tree.structure(theirs.like)
    for a, b in zip(jax.tree.leaves(mine.start()), jax.tree.leaves(theirs.start()), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    kernel = np.asarray(mine.start().params["unembed_kernel"])
    table = encoder["shared/embedding"] - encoder["shared/embedding"].mean(axis=0)
    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, atol=1e-5)
    np.testing.assert_allclose(kernel * np.linalg.norm(table, axis=1), table.T, atol=1e-4)


def test_a_bad_loss_changes_nothing(tmp_path: Path) -> None:
    config, encoder = load_encoder(ready(tmp_path, backend="torch", steps=STEPS))
    stepper, source = CpuStepper(config, encoder), loop.open_source(config)
    state: Any = stepper.start()
    state, first = stepper(state, source.draw(0), 0)
    before = jax.tree.map(np.array, state)
    for limit, ok in ((float(first["loss"]) / 9, None), (float("inf"), False)):
        state, metrics = stepper(state, source.draw(1), 1, limit, ok)
        assert metrics["ok"] is False
        assert jax.tree.all(jax.tree.map(np.array_equal, before, state))
    state, metrics = stepper(state, source.draw(1), 1)
    assert metrics["ok"] is True
    assert int(state.step) == 2


def test_a_saved_state_does_not_move_with_the_next_step(tmp_path: Path) -> None:
    config, encoder = load_encoder(ready(tmp_path, backend="torch", steps=STEPS))
    stepper, source = CpuStepper(config, encoder), loop.open_source(config)
    state, _ = stepper(stepper.start(), source.draw(0), 0)
    kept = jax.tree.map(np.array, state)
    with Checkpoints(config.directory) as store:
        store.save(config, state, {"tokens": 0.0, "usual": {}, "data": {}})
        stepper(state, source.draw(1), 1)
    with Checkpoints(config.directory) as store:
        found: State = store.restore(stepper.like)[0]
    assert jax.tree.all(jax.tree.map(np.array_equal, kept, found))


def test_operations_are_counted(tmp_path: Path) -> None:
    config, encoder = load_encoder(ready(tmp_path, backend="torch", steps=STEPS))
    stepper, batch = CpuStepper(config, encoder), loop.open_source(config).draw(0)
    params = sum(a.size for a in jax.tree.leaves(stepper.like.params) if a.ndim == 2)
    positions = batch.batch.ids.size
    assert stepper.flops(stepper.start(), batch, 0) > 2 * params * positions / 10


@pytest.mark.parametrize("ramp", [True, False])
def test_the_average_is_the_jax_steps(ramp: bool) -> None:
    config = OptimizerConfig(ema=0.95, ema_ramp=ramp)
    kept, params = {"a": torch.tensor([1.0, -2.0])}, {"a": torch.tensor([3.0, 5.0])}
    for step in (0, 1, 7, 400):
        expected = average_step(config, {"a": kept["a"].numpy()}, {"a": params["a"].numpy()}, step)
        average(kept, params, config, step)
        np.testing.assert_allclose(kept["a"].numpy(), expected["a"], rtol=1e-6)


def test_options_of_the_jax_step_alone_are_refused(tmp_path: Path) -> None:
    config = ready(tmp_path, backend="torch")
    plan = config.optimizer
    for key, changes in {
        "optimizer.kind": {"optimizer": dataclasses.replace(plan, kind="adamw")},
        "optimizer.accumulate": {"optimizer": dataclasses.replace(plan, accumulate=2)},
        "optimizer.untaken": {"optimizer": dataclasses.replace(plan, untaken="keep")},
        "remat": {"remat": True},
    }.items():
        with pytest.raises(ElfError, match=f"{key}: this value needs backend: jax"):
            loop.run(dataclasses.replace(config, **changes))  # type: ignore[arg-type]
