"""Pieces of the page that need no browser."""

from __future__ import annotations

import dataclasses
import gc
import warnings
from collections.abc import Iterator
from datetime import date

import gradio as gr
import pytest

from app.tabs.common import caption_html, settings_line, status_html
from app.tabs.history_view import beyond_the_page, days_of
from app.tabs.knobs import SLIDER_ENDS, Knobs, build_knobs, number, seed_of, whole
from app.tabs.measured import measured_line
from editors.request import EditRequest
from elf_engine.config import SampleSpec, to_dict
from elf_engine.errors import ElfError

HOSTILE = "<img src=x onerror=alert(1)> & <script>"


@pytest.fixture
def made() -> Iterator[Knobs]:
    with warnings.catch_warnings():
        # A page that is never served leaves its event loops to the garbage collector.
        warnings.simplefilter("ignore")
        with gr.Blocks(analytics_enabled=False) as blocks:
            yield build_knobs("infill", SampleSpec())
        blocks.close(verbose=False)
        del blocks
        gc.collect()


def test_every_setting_has_a_knob_that_is_read_and_restored(made: Knobs) -> None:
    names = {f.name for f in dataclasses.fields(SampleSpec)}
    spec = SampleSpec(5, "ode", 0.5, 2.0, 3.0, "quantile", 8, 2)
    assert all(getattr(spec, n) != getattr(SampleSpec(), n) for n in names), "change every one"
    values = {getattr(made, name): value for name, value in to_dict(spec).items()}
    values[made.seed] = str(spec.seed)
    assert made.spec(values) == spec
    restored = set(made.show(to_dict(spec))) | {made.seed}
    assert restored == {getattr(made, name) for name in names}


def test_the_sliders_stretch_to_a_restored_value(made: Knobs) -> None:
    updates = made.show(to_dict(SampleSpec(steps=999, guidance=40.0)))
    assert updates[made.steps]["maximum"] == updates[made.steps]["value"] == 999
    assert updates[made.guidance]["maximum"] == 40.0
    assert updates[made.gamma]["maximum"] == SLIDER_ENDS["gamma"]


def test_a_seed_is_exact_and_an_empty_one_is_new() -> None:
    assert seed_of(" 9223372036854775807 ") == 2**63 - 1
    assert seed_of("") != seed_of(None)
    for bad in ("-1", "1.5", "seven", "9223372036854775808", "٣x", "²"):
        with pytest.raises(ElfError, match="no whole number"):
            seed_of(bad)


def test_empty_numbers_are_named() -> None:
    with pytest.raises(ElfError, match="gamma is empty"):
        number("gamma", None)
    with pytest.raises(ElfError, match=r"steps 2\.5 is no whole number"):
        whole("steps", 2.5)


def test_the_measured_point_nearest_to_the_slider_is_told() -> None:
    points = [
        {"quality": 0.0, "ppl:ngram": 81.234, "distinct_2": 0.913, "seconds": 1.25},
        {"quality": 1.0, "chrf": 40.26, "distinct_2": 0.5, "tokens": 7, "seconds": 3.0},
    ]
    assert measured_line(points, 0.4) == (
        "measured at 0: perplexity 81.2 (ngram), 91 % of word pairs differ, 1.2 s a sample"
    )
    assert measured_line(points, 0.6) == (
        "measured at 1: chrF 40.3, 50 % of word pairs differ, 3 s a sample"
    )
    assert measured_line([], 0.6) == ""


def test_days_of_the_history() -> None:
    now = date(2027, 1, 1)
    assert days_of("yesterday", now) == ("2026-12-31", "2026-12-31")
    assert days_of("last 7 days", now) == ("2026-12-26", "2027-01-01")
    assert days_of("today", now) == ("2027-01-01", "2027-01-01")
    assert days_of("any time", now) == ("", "")


def test_words_never_become_html() -> None:
    for words in (status_html(HOSTILE), caption_html([HOSTILE], [HOSTILE])):
        assert "<img" not in words
        assert "<script" not in words
        assert "&lt;img src=x onerror=alert(1)&gt; &amp; &lt;script&gt;" in words


def test_settings_in_one_line() -> None:
    spec = to_dict(SampleSpec(steps=8, guidance=1.25)) | {"effective_steps": 8}
    assert settings_line(spec) == (
        "steps 8, sampler sde, gamma 1, guidance 1.25, condition guidance 1, grid uniform, "
        "resample 0"
    )
    assert "effective steps 5" in settings_line({"steps": 8, "effective_steps": 5})


def test_what_restoring_leaves_behind_is_named() -> None:
    assert beyond_the_page(EditRequest("draft", "x", count=3, first=1, length=9)) == []
    assert beyond_the_page(EditRequest("infill", "abc", spans=((0, 1),), strength=0.7)) == [
        "strength",
        "spans",
    ]
