"""Runs that share network steps get what they get alone, whatever their company does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elf_engine.config import SampleSpec
from elf_engine.layout import Free, build_row
from elf_engine.pipeline import Engine
from elf_engine.together import Together
from tests.fakes import tiny_model_dir

SPEC = SampleSpec(steps=5, sampler="sde", gamma=1.5, guidance=2.0)
# Differ in everything a row may differ in: steps and sampler too.
SPECS = [
    SPEC,
    replace(SPEC, seed=9, guidance=0.5, gamma=0.3, steps=3),
    replace(SPEC, sampler="ode", grid="quantile", steps=7),
    replace(SPEC, resample=1, steps=4),
]
TEXT = [40, 50, 60, 70]
# Latents, as documented for company on JAX; torch on a CPU gives the same bits.
TOLERANCE = {"jax": 2e-5, "torch": 0.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model_dir(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module", params=["jax", "torch"])
def engine(request, model):
    return Engine.load(model, backend=request.param)


def batch(engine, rows=1, known=TEXT):
    row = build_row(engine.config.layout, engine.tokenizer.eos_id, "draft", [known, Free(5)])
    return engine.batch([row] * rows)


def latents(engine, step):
    return engine.backend.to_numpy(step.state.z)[: step.rows]


def alone(engine, spec, rows=1, first=0):
    *_, last = engine.sample(batch(engine, rows), spec, range(first, first + rows))
    return latents(engine, last)


def in_turn(runs):
    """Every iterator one step at a time; the last step of each."""
    last, going = {}, dict(enumerate(runs))
    while going:
        for i, run in list(going.items()):
            step = next(run, None)
            if step is None:
                del going[i]
            else:
                assert step.index == (last[i].index + 1 if i in last else 1)
                last[i] = step
    return [last[i] for i in sorted(last)]


def test_company_changes_nothing(engine):
    shared = Together(engine)
    rows = [1, 3, 2, 1] if engine.backend.name == "torch" else [1, 1, 1, 1]
    runs = [
        shared.sample(batch(engine, n), spec, range(i, i + n))
        for i, (spec, n) in enumerate(zip(SPECS, rows, strict=True))
    ]
    for i, step in enumerate(in_turn(runs)):
        expected = alone(engine, SPECS[i], rows[i], first=i)
        limit = TOLERANCE[engine.backend.name]
        np.testing.assert_allclose(latents(engine, step), expected, rtol=0, atol=limit)
        expected_ids = list(engine.sample(batch(engine, rows[i]), SPECS[i], range(i, i + rows[i])))
        np.testing.assert_array_equal(step.ids(), expected_ids[-1].ids())
    assert shared.shared_steps > 0


def test_equal_runs_make_each_step_once(engine, monkeypatch):
    shared, calls = Together(engine), []
    made = engine.stepper

    def counted(passes):
        return lambda *inputs: (calls.append(len(inputs[2][0])), made(passes)(*inputs))[1]

    monkeypatch.setattr(engine, "stepper", counted)
    in_turn([shared.sample(batch(engine), SPEC, [i]) for i in range(4)])
    # The first go ahead until the last has begun; from then on all four move as one.
    assert max(calls) == 4
    assert len(calls) < 2 * SPEC.steps


def test_one_that_leaves_changes_nothing_for_the_others(engine):
    shared = Together(engine)
    leaver, stayer = (shared.sample(batch(engine), SPEC, [i]) for i in (0, 1))
    for _ in range(2):
        next(leaver), next(stayer)
    leaver.close()
    *_, last = stayer
    limit = TOLERANCE[engine.backend.name]
    np.testing.assert_allclose(latents(engine, last), alone(engine, SPEC, first=1), 0, limit)
    assert shared._open == []


def test_a_row_gone_mad_stays_its_own_affair(engine):
    shared = Together(engine)
    mad, sane = (shared.sample(batch(engine), SPEC, [i]) for i in (0, 1))
    step = next(mad)
    walk = shared._open[0].run.walk
    walk.state = replace(walk.state, z=walk.state.z * np.nan)
    next(sane)
    step = next(mad)
    assert not np.isfinite(step.norms()).any()
    *_, last = sane
    limit = TOLERANCE[engine.backend.name]
    np.testing.assert_allclose(latents(engine, last), alone(engine, SPEC, first=1), 0, limit)


def test_a_failing_shared_step_is_made_alone(engine, monkeypatch):
    shared, made = Together(engine), engine.stepper

    def narrow(passes):
        def step(*inputs):
            if len(inputs[2][0]) > 1:
                raise MemoryError("too much at once")
            return made(passes)(*inputs)

        return step

    expected = [alone(engine, SPEC, first=i) for i in (0, 1, 2)]
    monkeypatch.setattr(engine, "stepper", narrow)
    runs = [shared.sample(batch(engine), SPEC, [i]) for i in (0, 1, 2)]
    for i, step in enumerate(in_turn(runs)):
        np.testing.assert_array_equal(latents(engine, step), expected[i])
    assert shared._most_rows < 16


def test_room_is_kept_to(engine, monkeypatch):
    shared, sizes = Together(engine, most_rows=4), []
    made = engine.stepper

    def measured(passes):
        return lambda *inputs: (sizes.append(len(inputs[2][0])), made(passes)(*inputs))[1]

    monkeypatch.setattr(engine, "stepper", measured)
    in_turn([shared.sample(batch(engine, 3), SPEC, range(3)) for _ in range(3)])
    assert max(sizes) <= 4
