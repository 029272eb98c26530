"""Muon in groups equals Muon one by one (optax), and leaves alone what it is told to."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers
from optax.contrib import muon as optax_muon

from elf_engine.weights import flatten, unflatten
from tests.golden.models import QUICK
from training.config import ObjectiveConfig, OptimizerConfig
from training.muon import Rates, muon
from training.newton_schulz import BLOCK, orthogonalise, symmetric_product
from training.objective import Split
from training.optimizer import DECODE_ONLY, DENOISE_ONLY, idle, make_optimizer

SHAPES = {
    "block_0/qkv/kernel": (24, 72),
    "block_1/qkv/kernel": (24, 72),
    "block_0/out/kernel": (72, 24),
    "block_0/square/kernel": (24, 24),
    "block_0/norm/weight": (24,),
    "tokens": (1, 2, 24),
    "table": (24, 300),
}


def trees(count: int) -> list[Any]:
    """`count` trees of the shapes above; singular values fall over three decades."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(count):
        named = {}
        for name, shape in SHAPES.items():
            scale = np.logspace(0, -3, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
            named[name] = jnp.asarray(rng.standard_normal(shape) * scale, jnp.float32)
        out.append(unflatten(named))
    return out


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_grouped_muon_is_optaxs(weight_decay: float) -> None:
    params, *grads = trees(5)
    rates = Rates(optax.linear_schedule(0.02, 0.01, 3), optax.constant_schedule(0.003))

    def dims(tree: Any) -> Any:
        return jax.tree.map(lambda a: MuonDimensionNumbers() if a.ndim == 2 else None, tree)

    theirs = optax_muon(
        rates.muon,
        adam_learning_rate=rates.adam,
        muon_weight_dimension_numbers=dims,
        weight_decay=weight_decay,
        adam_weight_decay=weight_decay,
    )
    ours = muon(rates, lambda _, a: a.ndim == 2, weight_decay=weight_decay)
    states = [jax.jit(rule.init, compiler_options=QUICK)(params) for rule in (ours, theirs)]
    updates = [jax.jit(rule.update, compiler_options=QUICK) for rule in (ours, theirs)]
    both = [params, params]
    for g in grads:
        for i, update in enumerate(updates):
            change, states[i] = update(g, states[i], both[i])
            both[i] = optax.apply_updates(both[i], change)
    expected = flatten(both[1])
    for name, found in flatten(both[0]).items():
        assert not np.allclose(found, flatten(params)[name], atol=1e-3), name
        np.testing.assert_allclose(found, expected[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("side", [5, BLOCK - 1, 2 * BLOCK + 3, 5 * BLOCK])
def test_symmetric_products_are_products(side: int) -> None:
    x = jax.random.normal(jax.random.key(1), (2, side, 16))
    found = jax.jit(symmetric_product)(x, x)
    np.testing.assert_allclose(found, x @ jnp.swapaxes(x, 1, 2), atol=1e-4)


@pytest.mark.parametrize("columns", [40, 64, 400])
def test_singular_values_end_near_one(columns: int) -> None:
    x = jax.random.normal(jax.random.key(2), (3, 40, columns))
    values = np.linalg.svd(np.asarray(jax.jit(orthogonalise)(x)), compute_uv=False)
    large = values[np.linalg.svd(np.asarray(x), compute_uv=False) > 0.05 * np.sqrt(columns)]
    assert ((large > 0.6) & (large < 1.25)).all()


def test_idle_parameters_and_their_moments_stay() -> None:
    params, first, second = trees(3)
    rule = muon(Rates(*[optax.constant_schedule(0.01)] * 2), lambda _, a: a.ndim == 2)
    still = ("table", "block_0/norm/weight")
    state = jax.jit(rule.init, compiler_options=QUICK)(params)
    _, state = jax.jit(rule.update, compiler_options=QUICK)(first, state, params)
    some = jax.jit(partial(rule.update, idle=still), compiler_options=QUICK)
    change, after = some(second, state, params)
    for name in SHAPES:
        same = name in still
        assert (np.abs(flatten(change)[name]).max() == 0) == same, name
        assert np.array_equal(flatten(after.mu)[name], flatten(state.mu)[name]) == same, name
        assert int(flatten(after.updates)[name]) == (1 if same else 2)
    assert int(after.count) == 2


def test_what_is_idle_follows_from_the_branch_taken() -> None:
    config = OptimizerConfig(untaken="keep")
    assert idle(config, Split(8, 0, 8)) == DENOISE_ONLY
    assert idle(config, Split(0, 4, 8)) == DECODE_ONLY
    assert idle(config, Split(2, 3, 8)) == ()
    assert idle(OptimizerConfig(), Split(8, 0, 8)) == ()


def test_only_parameters_without_a_gradient_are_idle() -> None:
    from training.objective import Inputs, draw, losses
    from training.settings import load
    from training.step import initial_state, network

    config = load("tiny")
    params, net = jax.jit(lambda: initial_state(config).params)(), network(config)
    # Fresh heads are zero and would hide what reaches them.
    params = jax.tree.map(lambda a: a + 0.01, params)
    shape = (4, 8, config.network.embedding_dim)
    ids = jnp.arange(32, dtype=jnp.int32).reshape(4, 8)
    no, yes = jnp.zeros((4, 8), bool), jnp.ones((4, 8), bool)
    inputs = Inputs(ids, jax.random.normal(jax.random.key(0), shape), no, yes, no[:, 0])
    for split in (Split(4, 0, 4), Split(0, 2, 4)):
        draws = draw(jax.random.key(1), shape, split, config.flow, ObjectiveConfig())

        def loss(p: Any, split: Split = split, draws: Any = draws) -> Any:
            return losses(p, net, inputs, draws, split, config.flow, ObjectiveConfig())[0]

        grads = flatten(jax.jit(jax.grad(loss), compiler_options=QUICK)(params))
        without = {name for name, g in grads.items() if not np.any(np.asarray(g))}
        assert without == set(idle(OptimizerConfig(untaken="keep"), split))


def test_every_kind_of_optimizer_takes_the_idle_names() -> None:
    params, grads = trees(2)
    for config in (
        OptimizerConfig(kind="adamw"),
        OptimizerConfig(accumulate=2),
        OptimizerConfig(clip=0.0),
    ):
        rule = make_optimizer(config, 10)
        state = jax.eval_shape(rule.init, params)
        jax.eval_shape(partial(rule.update, idle=("table",)), grads, state, params)
