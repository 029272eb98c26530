"""Laws of the flow, the grids and the samplers, on a denoiser whose answer is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf_engine import flow, samplers, times
from elf_engine.config import FlowSpec, SampleSpec
from elf_engine.constraint import Constraint
from elf_engine.errors import ElfError
from elf_engine.guidance import Guidance, Passes, guided_estimate
from tests.engine.closed_form import GaussianNetwork, NumpyBackend

SCALE, MEAN, STD = 2.0, 0.5, 0.7
ROWS, LENGTH, WIDTH = 2, 5, 3


def run(spec_times, gamma=0.0, hold="clean", known=None, seed=0, t_eps=0.05, resample=0):
    """All states of a run with unit noise drawn from `seed`."""
    backend = NumpyBackend(GaussianNetwork(MEAN, STD, SCALE))
    rng = np.random.default_rng(seed)
    count = (len(spec_times) + 1) * (1 + resample)
    draws = rng.standard_normal((count, ROWS, LENGTH, WIDTH))
    known = np.zeros((ROWS, LENGTH, 1), bool) if known is None else known
    clean = np.where(known, 3.0 + rng.standard_normal((ROWS, LENGTH, WIDTH)), 0.0)
    constraint = Constraint(known, clean, hold=hold)
    ones = np.ones(ROWS, np.float32)
    grids = np.float32([spec_times] * ROWS).T
    knobs = samplers.Knobs(grids, np.float32(gamma) * ones, ones, ones)
    step = samplers.make_step(np, FlowSpec(noise_scale=SCALE, t_eps=t_eps), Passes(), hold)
    states = samplers.run(
        backend, backend.compile(step), constraint, knobs, lambda i: draws[i], SCALE, resample
    )
    return list(states), SCALE * draws[0], clean


@given(st.floats(0, 0.9), st.integers(0, 1000))
def test_velocity_of_the_true_x_leads_to_x(t, seed):
    rng = np.random.default_rng(seed)
    x, noise = rng.standard_normal((2, 4))
    z = flow.interpolate(x, noise, t)
    v = flow.velocity_from_x(x, z, 1 - t)
    np.testing.assert_allclose(v, x - noise, atol=1e-9)
    np.testing.assert_allclose(flow.euler(z, v, 1 - t), x, atol=1e-9)


def test_ode_is_of_first_order():
    errors = []
    for steps in (16, 32, 64, 128):
        states, start, _ = run(times.uniform(steps), t_eps=1e-6)
        exact = GaussianNetwork(MEAN, STD, SCALE).solution(start)
        errors.append(np.abs(states[-1].z - exact).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 1.0, atol=0.15)


def test_one_step_from_noise_lands_on_the_prediction():
    states, _, _ = run((0.0, 1.0))
    np.testing.assert_allclose(states[1].z, states[1].x, atol=1e-12)
    np.testing.assert_allclose(states[1].x, MEAN, atol=1e-12)


def test_last_step_stops_short_when_the_grid_ends_inside_t_eps():
    states, _, _ = run((0.0, 0.5, 0.97, 1.0))
    before, after = states[-2].z, states[-1]
    np.testing.assert_allclose(after.z, before + 0.03 * (after.x - before) / 0.05, atol=1e-12)


def test_sde_with_gamma_zero_is_the_ode_and_with_gamma_is_not():
    ode, _, _ = run(times.uniform(8))
    sde, _, _ = run(times.uniform(8), gamma=0.0)
    noisy, _, _ = run(times.uniform(8), gamma=1.0)
    assert np.array_equal(ode[-1].z, sde[-1].z)
    assert np.abs(noisy[-1].z - ode[-1].z).max() > 0.01


def test_last_step_is_plain_ode():
    """A one-step SDE has only the last step, so gamma cannot matter."""
    assert np.array_equal(run((0.0, 1.0), gamma=9.0)[0][-1].z, run((0.0, 1.0))[0][-1].z)


def test_gamma_beyond_one_step_clips_to_pure_noise():
    states, _, _ = run((0.0, 0.5, 1.0), gamma=5.0)
    again, _, _ = run((0.0, 0.5, 1.0), gamma=50.0)
    np.testing.assert_array_equal(states[1].z, again[1].z)


@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_clean_hold_keeps_known_positions_bit_for_bit_at_every_step(gamma):
    known = np.zeros((ROWS, LENGTH, 1), bool)
    known[0, :2] = known[1, 3:] = True
    states, _, clean = run(times.uniform(6), gamma=gamma, known=known)
    where = np.broadcast_to(known, clean.shape)
    for state in states:
        assert np.array_equal(state.z[where], clean[where])
        assert np.array_equal(state.x[where], clean[where])


@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_renoise_hold_follows_the_flow_and_ends_clean(gamma):
    known = np.zeros((ROWS, LENGTH, 1), bool)
    known[:, 1:3] = True
    grid = times.uniform(5)
    states, start, clean = run(grid, gamma=gamma, known=known, hold="renoise")
    where = np.broadcast_to(known, clean.shape)
    for t, state in zip(grid, states, strict=True):
        expected = flow.interpolate(clean, start, t)
        np.testing.assert_allclose(state.z[where], expected[where], atol=1e-6)
    np.testing.assert_allclose(states[-1].z[where], clean[where], atol=1e-12)
    assert not states[0].x.any(), "such a model's first self-condition is zero everywhere"


def test_start_state_of_a_rewrite_is_the_noised_original():
    origin, noise = np.full((1, 2, 3), 4.0), np.full((1, 2, 3), -1.0)
    known = np.array([[[True], [False]]])
    constraint = Constraint(known, np.where(known, origin, 0.0), origin=origin, t_start=0.75)
    z = constraint.start(np, noise)
    np.testing.assert_allclose(z[0, 0], 4.0)
    np.testing.assert_allclose(z[0, 1], 0.75 * 4.0 - 0.25)


class Counting:
    """Predicts the mean of its inputs, so that each pass can be told apart."""

    def denoise(self, z, x_prev, t, w, valid, positions=None):
        self.rows = len(z)
        return z + 10 * x_prev

    def logits(self, z, w, valid, positions=None):
        raise AssertionError("guidance never decodes")


def estimate(passes, w, c, known_value=0):
    net = Counting()
    z, prev = np.full((1, 2, 1), 1.0), np.full((1, 2, 1), 2.0)
    known = np.array([[[True], [False]]]) if known_value else np.zeros((1, 2, 1), bool)
    constraint = Constraint(known, np.zeros_like(z))
    guidance = Guidance(np.array([w]), np.array([c]), passes)
    return guided_estimate(net, np, z, prev, np.array([0.5]), guidance, constraint), net.rows


@pytest.mark.parametrize(
    "passes", [Passes(), Passes(True), Passes(False, True), Passes(True, True)]
)
def test_scales_of_one_change_nothing_and_passes_go_as_one_batch(passes):
    x, rows = estimate(passes, 1.0, 1.0, known_value=1)
    assert rows == passes.count
    np.testing.assert_allclose(x, estimate(Passes(), 1.0, 1.0, known_value=1)[0])


def test_guidance_formulas():
    x, _ = estimate(Passes(False, True), 3.0, 1.0)
    np.testing.assert_allclose(x, 1 + 3.0 * (21 - 1))  # uncond 1, cond 21
    x, _ = estimate(Passes(True), 1.0, 2.0, known_value=1)
    # The known position: unconditional 0, conditional 21; the free one is the same in both.
    np.testing.assert_allclose(x[0, :, 0], [2.0 * 21, 21])


@pytest.mark.parametrize("steps", [1, 2, 7, 64])
@pytest.mark.parametrize("kind", ["uniform", "logit-normal", "quantile"])
def test_grids_rise_from_zero_to_one(kind, steps):
    grid = times.grid(SampleSpec(steps=steps, grid=kind, seed=3), FlowSpec())
    assert (len(grid), grid[0], grid[-1]) == (steps + 1, 0.0, 1.0)
    assert list(grid) == sorted(grid)


def test_only_the_drawn_grid_depends_on_the_seed():
    def grids(kind):
        return {times.grid(SampleSpec(steps=9, grid=kind, seed=s), FlowSpec()) for s in range(3)}

    assert len(grids("logit-normal")) == 3
    assert len(grids("quantile")) == 1


@given(st.integers(1, 60), st.floats(0, 0.999))
def test_a_grid_started_late_begins_there_and_runs_the_rest(steps, t_start):
    grid = times.start_at(times.uniform(steps), t_start)
    assert grid[0] == t_start
    assert grid[-1] == 1
    assert all(a < b for a, b in itertools.pairwise(grid))
    assert len(grid) - 1 <= steps


def test_a_start_at_the_end_is_refused():
    with pytest.raises(ElfError, match="start time 1"):
        times.start_at(times.uniform(4), 1.0)


@given(st.floats(0.01, 0.98), st.floats(0.02, 0.99), st.integers(0, 99))
def test_a_jump_back_keeps_the_marginal(t_back, t, seed):
    t_back, t = sorted((t_back, t + 1e-3))
    rng = np.random.default_rng(seed)
    noise, fresh = SCALE * rng.standard_normal((2, 20_000))
    z = flow.jump_back(flow.interpolate(2.0, noise, t), fresh, t, t_back)
    expected = flow.interpolate(2.0, noise, t_back)
    np.testing.assert_allclose(z.mean(), 2.0 * t_back, atol=0.1)
    np.testing.assert_allclose(z.std(), expected.std(), rtol=0.05)


def test_resampling_runs_inner_steps_again():
    assert samplers.order(4, 2) == [0, 1, 1, 1, 2, 2, 2, 3]
    assert samplers.order(1, 5) == [0]
    assert samplers.order(2, 5) == [0, 1]
    known = np.zeros((ROWS, LENGTH, 1), bool)
    known[:, :2] = True
    for hold in ("clean", "renoise"):
        plain, _, _ = run(times.uniform(8), hold=hold, known=known)
        states, _, clean = run(times.uniform(8), hold=hold, known=known, resample=2)
        assert [s.index for s in states] == list(range(1 + len(samplers.order(8, 2))))
        np.testing.assert_allclose(states[-1].z[:, :2], clean[:, :2], atol=1e-6)
        assert np.abs(states[-1].z - plain[-1].z)[:, 2:].max() > 0.1, "jumps add noise"
