"""Laws of the training objective, checked against a plain reading of its definition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import FlowSpec, NetworkSpec
from training.config import ObjectiveConfig
from training.objective import Draws, Inputs, Split, draw, losses, split_rows

SPEC = NetworkSpec(
    embedding_dim=8, hidden=16, depth=1, heads=2, bottleneck=8, vocab=11, max_length=8,
    time_tokens=1, guidance_tokens=1, mode_tokens=1,
)  # fmt: skip
FLOW = FlowSpec(noise_scale=1.0, p_mean=-1.0)
NET = ELFNetwork(SPEC)
B, S, D = 10, 8, 8
SPLIT = split_rows(B, ObjectiveConfig())
INIT = jax.jit(NET.init)
APPLY = jax.jit(NET.apply, static_argnames="method")
LOSSES = jax.jit(lambda p, i, d: losses(p, NET, i, d, SPLIT, FLOW))


def make(seed: int) -> tuple[Any, Inputs, Draws]:
    rng = np.random.default_rng(seed)
    one = jnp.zeros((1,))
    params = INIT(jax.random.key(seed), jnp.zeros((1, 1, 2 * D)), one, one, None, one)["params"]
    # The heads start at zero; move every weight so that a wrong input shows.
    leaves, tree = jax.tree.flatten(params)
    noise = [a + 0.3 * jnp.asarray(rng.standard_normal(a.shape), jnp.float32) for a in leaves]
    params = jax.tree.unflatten(tree, noise)
    valid = np.ones((B, S), bool)
    valid[:, 6:] = rng.random((B, 2)) < 0.5
    known = np.zeros((B, S), bool)
    known[:, :3] = True
    inputs = Inputs(
        jnp.asarray(rng.integers(0, SPEC.vocab, (B, S)), jnp.int32),
        jnp.asarray(rng.standard_normal((B, S, D)), jnp.float32),
        jnp.asarray(known),
        jnp.asarray(valid),
        jnp.asarray(rng.random(B) < 0.3),
    )
    draws = draw(jax.random.key(seed + 1), (B, S, D), SPLIT, FLOW, ObjectiveConfig())
    return params, inputs, draws


def one_row(params: Any, inputs: Inputs, draws: Draws, row: int) -> float:
    """The summed loss of one row, from ELF.md's words."""

    def run(z: Any, prev: Any, t: Any, mode: float, head: str) -> Any:
        h = APPLY(
            {"params": params}, jnp.concatenate([z, prev], -1)[None], jnp.asarray([t]),
            draws.w[row : row + 1], inputs.valid[row : row + 1], jnp.asarray([mode]),
            method="hidden",
        )  # fmt: skip
        return APPLY({"params": params}, h, method=head)[0]

    x, known = inputs.x[row], inputs.known[row][:, None]
    clean = jnp.where(known, jnp.zeros_like(x) if inputs.drop[row] else x, 0)
    target = (inputs.valid & ~inputs.known)[row]
    if row < SPLIT.decode:
        lam = draws.lam[row][:, None]
        z = jnp.where(known, clean, lam * x + (1 - lam) * draws.decode_noise[row])
        logits = run(z, jnp.zeros_like(x), 1.0, 1.0, "predict_logits")
        nll = -jax.nn.log_softmax(logits)[jnp.arange(S), inputs.ids[row]]
        return float((nll * target).sum())
    t, noise = draws.t[row - SPLIT.decode], draws.noise[row - SPLIT.decode]
    z0 = t * x + (1 - t) * noise
    z, gap = jnp.where(known, clean, z0), max(1 - float(t), FLOW.t_eps)
    v = (x - z0) / gap
    first = run(z, clean, t, 0.0, "predict_x")
    if row < SPLIT.decode + SPLIT.self_cond:
        prev = jnp.where(known, clean, first)
        predicted = run(z, prev, t, 0.0, "predict_x")
        w = float(draws.w[row])
        guided = v + (1 - 1 / w) * ((predicted - z) / gap - (first - z) / gap)
    else:
        predicted, guided = first, v
    error = (((predicted - z) / gap - guided) ** 2).mean(-1)
    return float((error * target).sum())


def test_losses_are_those_of_the_definition() -> None:
    params, inputs, draws = make(0)
    _, found = LOSSES(params, inputs, draws)
    target = np.asarray(inputs.valid & ~inputs.known)
    rows = [one_row(params, inputs, draws, row) for row in range(B)]
    m = SPLIT.decode
    np.testing.assert_allclose(found["decode"], sum(rows[:m]) / target[:m].sum(), rtol=1e-4)
    np.testing.assert_allclose(found["denoise"], sum(rows[m:]) / target[m:].sum(), rtol=1e-4)


def test_padding_and_what_stands_there_change_nothing() -> None:
    params, inputs, draws = make(2)
    total, _ = LOSSES(params, inputs, draws)
    garbage = jnp.where(inputs.valid[:, :, None], inputs.x, 1e3)
    ids = jnp.where(inputs.valid, inputs.ids, 0)
    other, _ = LOSSES(params, inputs._replace(x=garbage, ids=ids), draws)
    np.testing.assert_allclose(total, other, rtol=1e-5)


def test_known_tokens_are_no_targets_but_are_read() -> None:
    params, inputs, draws = make(3)
    inputs = inputs._replace(drop=jnp.zeros(B, bool))
    total, _ = LOSSES(params, inputs, draws)
    ids = jnp.where(inputs.known, 0, inputs.ids)
    same, _ = LOSSES(params, inputs._replace(ids=ids), draws)
    assert total == same
    moved = inputs._replace(x=jnp.where(inputs.known[:, :, None], inputs.x + 1, inputs.x))
    assert total != LOSSES(params, moved, draws)[0]
    dropped = jnp.ones(B, bool)
    a, _ = LOSSES(params, inputs._replace(drop=dropped), draws)
    b, _ = LOSSES(params, moved._replace(drop=dropped), draws)
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_no_gradient_flows_through_the_guided_target() -> None:
    """The gradient is that of the error against the target held fixed: with w = 1 the guided
    target is the plain one, and its gradient must equal the plain rows'."""
    params, inputs, draws = make(4)
    draws = draws._replace(w=jnp.ones(B))
    split = Split(SPLIT.decode, B - SPLIT.decode, B)
    grad = jax.jit(jax.grad(lambda p: losses(p, NET, inputs, draws, split, FLOW)[1]["denoise"]))(
        params
    )

    def plain(p: Any) -> Any:
        return losses(p, NET, inputs, draws, split, FLOW)[1]["per_row"][SPLIT.decode :].sum()

    target = (inputs.valid & ~inputs.known)[SPLIT.decode :].sum()
    for a, b in zip(
        jax.tree.leaves(grad), jax.tree.leaves(jax.jit(jax.grad(plain))(params)), strict=True
    ):
        np.testing.assert_allclose(a, b / target, rtol=1e-3, atol=1e-5)


def test_draws_have_the_stated_distribution() -> None:
    split = Split(1, 1, 4001)
    d = draw(jax.random.key(0), (4001, 2, 2), split, FLOW, ObjectiveConfig(decode_noise=2.0))
    logit = np.log(np.asarray(d.t) / (1 - np.asarray(d.t)))
    assert abs(logit.mean() + 1.0) < 0.05
    assert abs(logit.std() - 0.8) < 0.05
    u = np.log1p(np.asarray(d.w))
    assert d.w.min() >= 0.5 - 1e-5
    assert d.w.max() <= 5 + 1e-5
    assert abs(u.mean() - (np.log(1.5) + np.log(6)) / 2) < 0.03
    assert abs(float(d.noise.std()) - FLOW.noise_scale) < 0.02


def test_every_kind_of_row_is_present() -> None:
    for rows in (3, 4, 16, 64):
        split = split_rows(rows, ObjectiveConfig())
        assert 0 < split.decode < split.decode + split.self_cond < split.rows == rows
