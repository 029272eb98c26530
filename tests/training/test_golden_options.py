"""The per-example objective of the bundled model's training, pinned by numbers that options added
beside it must not move; and the laws of those options."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import FlowSpec, NetworkSpec
from elf_engine.errors import ElfError
from elf_engine.model_dir import expected_shapes
from elf_engine.weights import flatten, unflatten
from tests.golden.models import QUICK
from training.config import ObjectiveConfig, OptimizerConfig, load
from training.objective import Draws, Inputs, Split, losses, split_rows, split_step, targets
from training.optimizer import average_step

SPEC = NetworkSpec(
    embedding_dim=6, hidden=8, depth=1, heads=2, bottleneck=4, vocab=7, max_length=5,
    time_tokens=2, guidance_tokens=1, mode_tokens=1,
)  # fmt: skip
B, S, D = 5, 5, 6
SPLIT = Split(decode=2, self_cond=2, rows=B)
FLOW = FlowSpec(noise_scale=1.5)
# Of the objective as it was when the first bundled model's training began.
TOTAL, DENOISE, DECODE = 55.029255, 90.339699, 2.0635755
PER_ROW = [6.9388962, 3.3789811, 1.9875449, 1.8534253, 628.53027]
GRADIENTS = {"blocks_0/attn/qkv/kernel": 1.0136893, "unembed_kernel": 0.030137796}


def _waves(shape: tuple[int, ...], seed: float, size: float) -> Any:
    """Numbers that depend on no random generator."""
    count = int(np.prod(shape))
    return (size * np.sin(seed + 1.7 * np.arange(count)).reshape(shape)).astype(np.float32)


def _batch() -> tuple[Any, Inputs, Draws]:
    names = sorted(expected_shapes(SPEC).items())
    params = unflatten({k: _waves(s, i, 0.4) for i, (k, s) in enumerate(names)})
    known = np.zeros((B, S), bool)
    known[:, :2] = True
    valid = np.ones((B, S), bool)
    valid[1, 4:] = valid[3, 3:] = False
    drop = np.array([False, True, False, True, False])
    ids = (np.arange(B * S).reshape(B, S) * 3) % SPEC.vocab
    inputs = Inputs(ids, _waves((B, S, D), 0.3, 1.0), known, valid, drop)
    share = 0.5 + _waves((2, S), 0.9, 0.4)
    draws = Draws(
        t=np.array([0.1, 0.5, 0.97], np.float32),
        w=np.array([0.6, 1.0, 2.0, 4.0, 3.0], np.float32),
        noise=_waves((3, S, D), 2.1, 1.5),
        lam=share,
        decode_noise=_waves((2, S, D), 2.9, 1.0),
    )
    return params, inputs, draws


def test_losses_and_gradients_are_those_the_bundled_model_was_trained_with() -> None:
    params, inputs, draws = _batch()

    @partial(jax.jit, compiler_options=QUICK)
    def grad(params: Any, inputs: Inputs, draws: Draws) -> Any:
        run = partial(losses, net=ELFNetwork(SPEC), split=SPLIT, flow=FLOW)
        return jax.value_and_grad(run, has_aux=True)(params, inputs=inputs, draws=draws)

    (total, found), grads = grad(params, inputs, draws)
    flat = {name: float(np.linalg.norm(a)) for name, a in flatten(grads).items()}
    assert float(total) == pytest.approx(TOTAL, rel=2e-6)
    assert float(found["denoise"]) == pytest.approx(DENOISE, rel=2e-6)
    assert float(found["decode"]) == pytest.approx(DECODE, rel=2e-6)
    np.testing.assert_allclose(found["per_row"], PER_ROW, rtol=2e-6)
    assert {name: flat[name] for name in GRADIENTS} == pytest.approx(GRADIENTS, rel=1e-5)


@partial(jax.jit, static_argnames=("split", "config"), compiler_options=QUICK)
def _run(params: Any, inputs: Inputs, draws: Draws, split: Split, config: ObjectiveConfig) -> Any:
    return losses(params, ELFNetwork(SPEC), inputs, draws, split, FLOW, config)


def _total(inputs: Inputs, draws: Draws, params: Any, split: Split, **options: Any) -> Any:
    return _run(params, inputs, draws, split, ObjectiveConfig(**options))


def test_a_step_of_one_branch_is_that_part_of_a_mixed_batch() -> None:
    """Rows meet nowhere but in the averages."""
    params, inputs, draws = _batch()
    _, both = _total(inputs, draws, params, SPLIT)
    none = jax.tree.map(lambda a: a[:0], draws)
    first, rest = slice(None, 2), slice(2, None)
    rows = [jax.tree.map(lambda a, part=part: a[part], inputs) for part in (first, rest)]
    alone = none._replace(w=draws.w[first], lam=draws.lam, decode_noise=draws.decode_noise)
    decode, found = _total(rows[0], alone, params, Split(2, 0, 2))
    np.testing.assert_allclose(decode, both["decode"], rtol=1e-5)
    np.testing.assert_allclose(found["per_row"], both["per_row"][:2], rtol=1e-5)
    alone = none._replace(w=draws.w[rest], t=draws.t, noise=draws.noise)
    denoise, found = _total(rows[1], alone, params, Split(0, 2, 3))
    np.testing.assert_allclose(denoise, both["denoise"], rtol=1e-5)
    np.testing.assert_allclose(found["per_row"], both["per_row"][2:], rtol=1e-5)


def test_published_options_change_what_they_name() -> None:
    params, inputs, draws = _batch()
    none = jax.tree.map(lambda a: a[:0], draws)
    draws = none._replace(w=draws.w[:2], lam=draws.lam, decode_noise=draws.decode_noise)
    inputs = jax.tree.map(lambda a: a[:2], inputs)._replace(drop=np.zeros(2, bool))
    split = Split(2, 0, 2)
    padding = inputs._replace(x=np.where(inputs.valid[:, :, None], inputs.x, inputs.x + 1))
    noise = draws.decode_noise + inputs.known[:, :, None].astype(np.float32)
    moved = draws._replace(decode_noise=noise)
    assert _total(padding, draws, params, split)[0] == _total(inputs, draws, params, split)[0]
    assert _total(inputs, moved, params, split)[0] == _total(inputs, draws, params, split)[0]
    attended, noised = {"padding": "attended"}, {"decode_condition": "noised"}
    plain = _total(inputs, draws, params, split, **attended)[0]
    assert abs(_total(padding, draws, params, split, **attended)[0] - plain) > 1e-6
    plain = _total(inputs, draws, params, split, **noised)[0]
    assert abs(_total(inputs, moved, params, split, **noised)[0] - plain) > 1e-6


def test_the_two_loss_masks() -> None:
    _, inputs, _ = _batch()
    pad, eos = (targets(inputs, ObjectiveConfig(loss_mask=mask)) for mask in ("pad", "eos"))
    assert pad.sum(1).tolist() == [3, 2, 3, 1, 3]
    assert eos.sum(1).tolist() == [3] * B


def test_the_branch_of_a_step_follows_from_seed_and_step() -> None:
    config = ObjectiveConfig(branch="step", decode_share=0.3)
    splits = [split_step(8, config, seed=4, step=i) for i in range(500)]
    assert splits == [split_step(8, config, seed=4, step=i) for i in range(500)]
    assert splits != [split_step(8, config, seed=5, step=i) for i in range(500)]
    assert set(splits) == {Split(8, 0, 8), Split(0, 4, 8)}
    assert abs(splits.count(Split(8, 0, 8)) / 500 - 0.3) < 0.06
    with pytest.raises(ElfError, match="no split by rows"):
        split_rows(8, config)
    assert split_step(8, ObjectiveConfig(), 4, 0) == split_rows(8, ObjectiveConfig())


def test_an_average_moves_once_per_update() -> None:
    config = OptimizerConfig(accumulate=2, ema=0.5, ema_ramp=False)
    average, seen = jnp.zeros(()), []
    for step in range(4):
        average = average_step(config, average, jnp.ones(()), step)
        seen.append(float(average))
    assert seen == [0.0, 0.5, 0.5, 0.75]


def test_padding_is_trained_as_it_is_used() -> None:
    config = load("tiny")
    with pytest.raises(ElfError, match=r"must equal layout\.padding"):
        replace(config, objective=ObjectiveConfig(padding="attended"))
