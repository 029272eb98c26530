"""Laws of a loaded model: the same text whatever the company, no program compiled twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elf_engine.config import LayoutSpec, SampleSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Free, build_row
from elf_engine.pipeline import MAX_ROWS, Engine
from tests.fakes import tiny_model_dir

SPEC = SampleSpec(steps=4, sampler="sde", gamma=1.5, guidance=2.0, condition_guidance=2.0)
TEXT = [40, 50, 60, 70]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model_dir(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module", params=["jax", "torch"])
def engine(request, model):
    return Engine.load(model, backend=request.param)


def row(engine, task="infill", size=4):
    pieces = [TEXT, Free(size), TEXT] if task == "infill" else [TEXT, Free(size)]
    return build_row(engine.config.layout, engine.tokenizer.eos_id, task, pieces)


def final(engine, rows, spec=SPEC, samples=None, **kwargs):
    """The last step of a run."""
    samples = range(len(rows)) if samples is None else samples
    return list(engine.sample(engine.batch(rows), spec, list(samples), **kwargs))[-1]


def latents(engine, step):
    return engine.backend.to_numpy(step.state.z)[: step.rows]


def test_a_row_does_not_depend_on_its_company(engine):
    rows = [row(engine)] * 3
    together = latents(engine, final(engine, rows))
    for i in range(3):
        alone = latents(engine, final(engine, rows[:1], samples=[i]))
        np.testing.assert_allclose(alone[0], together[i], atol=2e-5)
    swapped = latents(engine, final(engine, rows, samples=[2, 1, 0]))
    np.testing.assert_allclose(swapped, together[::-1], atol=2e-5)
    assert np.abs(together[0] - together[1]).max() > 0.1, "samples differ"


def test_a_row_does_not_depend_on_padding(engine):
    short = row(engine)
    long = row(engine, size=30)
    alone = latents(engine, final(engine, [short]))
    beside = latents(engine, final(engine, [short, long]))
    assert beside.shape[1] > alone.shape[1]
    n = len(short)
    np.testing.assert_allclose(beside[0, :n], alone[0, :n], atol=2e-5)


def test_rows_may_differ_in_seed_and_guidance(engine):
    other = replace(SPEC, seed=9, guidance=0.5, gamma=0.3)
    rows = [row(engine)] * 2
    mixed = latents(engine, final(engine, rows, [SPEC, other], [0, 0]))
    for i, spec in enumerate((SPEC, other)):
        alone = latents(engine, final(engine, rows[:1], spec, [0]))
        np.testing.assert_allclose(alone[0], mixed[i], atol=2e-5)


def test_known_positions_keep_their_latents(engine):
    batch = engine.batch([row(engine)])
    step = final(engine, [row(engine)])
    clean = engine.backend.to_numpy(engine.constraint(batch).clean)
    np.testing.assert_array_equal(latents(engine, step)[batch.known], clean[batch.known])


def test_what_lies_in_the_gap_never_reaches_the_encoder(engine):
    layout, eos = engine.config.layout, engine.tokenizer.eos_id
    rows = [
        build_row(layout, eos, "infill", [TEXT, Free(3, answer), TEXT])
        for answer in ((), (99, 100, 101))
    ]
    a, b = (engine.backend.to_numpy(engine.constraint(engine.batch([r])).clean) for r in rows)
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_every_step_is_yielded_and_can_be_read(engine):
    steps = list(engine.sample(engine.batch([row(engine)] * 2), SPEC, [0, 1]))
    assert [s.index for s in steps] == [1, 2, 3, 4]
    assert [s.t for s in steps] == [0.25, 0.5, 0.75, 1.0]
    assert steps[0].ids().shape == (2, 16)
    assert np.isfinite(steps[0].norms()).all()
    assert (steps[0].norms() > 0).all()


def test_confidence_is_the_log_probability_of_the_decoded_ids(engine):
    step = final(engine, [row(engine)] * 3)
    found = step.confidence()
    assert found.shape == step.ids().shape
    logits = engine.backend.compile(lambda net, *arrays: net.logits(*arrays))
    w = engine.backend.asarray(np.full(len(step._w), SPEC.guidance, np.float32))
    values = engine.backend.to_numpy(logits(step.state.z, w, step._constraint.valid))
    values = np.exp(values - values.max(-1, keepdims=True))
    likely = np.log(values.max(-1) / values.sum(-1))
    np.testing.assert_allclose(found, likely[: step.rows], atol=1e-4)


def test_resampling_jumps_count_as_steps(engine):
    spec = replace(SPEC, resample=2)
    steps = list(engine.sample(engine.batch([row(engine)]), spec, [0]))
    assert [s.t for s in steps] == [0.25, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75, 1.0]
    assert {s.steps for s in steps} == {8}
    assert np.isfinite(steps[-1].norms()).all()


def test_closing_the_run_stops_it(engine):
    run = engine.sample(engine.batch([row(engine)]), SPEC, [0])
    next(run)
    run.close()
    with pytest.raises(StopIteration):
        next(run)


def test_an_unconditional_draft_never_runs_the_encoder(tmp_path):
    layout = LayoutSpec(padding="attended", hold="renoise", tasks={"draft": -1, "infill": -1})
    path = tiny_model_dir(tmp_path, encoder=False, layout=layout)
    engine = Engine.load(path, backend="torch")
    free = build_row(layout, 1, "draft", [Free(64)])
    assert final(engine, [free]).ids().shape == (1, 64)
    with pytest.raises(ElfError, match="encoder"):
        final(engine, [build_row(layout, 1, "infill", [TEXT, Free(4)])])


def test_a_model_that_never_saw_a_condition_ends_on_the_known_latents(tmp_path):
    layout = LayoutSpec(padding="attended", hold="renoise", tasks={"infill": -1})
    engine = Engine.load(tiny_model_dir(tmp_path, layout=layout), backend="torch")
    rows = [build_row(layout, 1, "infill", [TEXT, Free(4), TEXT])]
    batch = engine.batch(rows)
    clean = engine.backend.to_numpy(engine.constraint(batch).clean)
    z = latents(engine, final(engine, rows))
    np.testing.assert_allclose(z[batch.known], clean[batch.known], atol=1e-6)


def test_rewriting_from_a_late_start_stays_near_the_original(engine):
    rows = [build_row(engine.config.layout, 1, "draft", [Free(8, tuple(TEXT))])]
    origin = engine.batch(rows).ids
    start = engine.backend.to_numpy(engine.constraint(engine.batch(rows), origin, 0.9).origin)
    z = latents(engine, final(engine, rows, SampleSpec(steps=10), origin=origin, t_start=0.98))
    far = latents(engine, final(engine, rows, SampleSpec(steps=10)))
    n = len(rows[0])
    assert np.abs(z - start)[0, 1:n].mean() < np.abs(far - start)[0, 1:n].mean()


def test_nan_shows_in_the_norm_of_its_row_alone(engine):
    step = final(engine, [row(engine)] * 2)
    x = engine.backend.to_numpy(step.state.x).copy()
    x[1, 0, 0] = np.nan
    broken = replace(step, state=replace(step.state, x=engine.backend.asarray(x)))
    assert np.isfinite(broken.norms()).tolist() == [True, False]


def test_odd_requests_are_refused_in_one_line(engine):
    with pytest.raises(ElfError, match="65 rows"):
        final(engine, [row(engine)] * (MAX_ROWS + 1))
    with pytest.raises(ElfError, match="0"):
        engine.batch([])
    with pytest.raises(ElfError, match="equal steps"):
        final(engine, [row(engine)] * 2, [SPEC, replace(SPEC, steps=5)])
    with pytest.raises(ElfError, match="too many"):
        final(engine, [row(engine, size=200)])
    with pytest.raises(ElfError, match="cannot do 'poem'"):
        row(engine, "poem")


def test_jax_compiles_nothing_anew_for_another_seed_text_or_knob(model):
    import jax

    engine = Engine.load(model, backend="jax")
    final(engine, [row(engine)] * 3).ids()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "compile" in name else None
    )
    try:
        for spec in (
            replace(SPEC, seed=5, guidance=7.0, gamma=0.1, condition_guidance=3.0),
            replace(SPEC, steps=7, grid="logit-normal"),
            replace(SPEC, sampler="ode"),
        ):
            text = [[33, 34], Free(5), [35]]
            other = build_row(engine.config.layout, 1, "infill", text)
            final(engine, [other] * 4, spec).ids()
    finally:
        jax.monitoring.clear_event_listeners()
    assert not compiled


@pytest.mark.parametrize("task", ["draft", "infill", "translate"])
def test_the_backends_give_the_same_latents_and_text(model, task):
    ends = []
    for name in ("jax", "torch"):
        engine = Engine.load(model, backend=name)
        ends.append((latents(engine, step := final(engine, [row(engine, task)] * 2)), step.ids()))
    np.testing.assert_allclose(ends[0][0], ends[1][0], atol=1e-4)
    np.testing.assert_array_equal(ends[0][1], ends[1][1])


def test_bfloat16_stays_near_float32(model):
    for name in ("jax", "torch"):
        wide, narrow = (Engine.load(model, backend=name, dtype=d) for d in ("float32", "bfloat16"))
        rows = [row(wide)]
        a, b = latents(wide, final(wide, rows)), latents(narrow, final(narrow, rows))
        assert b.dtype == np.float32
        assert np.isfinite(b).all()
        assert np.abs(a - b).mean() < 0.1 * np.abs(a).mean()


def test_an_unknown_dtype_is_refused(model):
    for name in ("jax", "torch"):
        with pytest.raises(ElfError, match="float16"):
            Engine.load(model, backend=name, dtype="float16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": True}, "gamma True is no number"),
        ({"guidance": float("nan")}, "guidance nan is outside"),
        ({"seed": -1}, "seed -1 is outside"),
    ],
)
def test_settings_that_are_no_numbers_are_refused(changes, message):
    with pytest.raises(ElfError, match=message):
        SampleSpec(**changes)
