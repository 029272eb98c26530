"""One number for many knobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editors import settings
from editors.calibration import BUILT_IN, FILE, interpolate, measured
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from tests.fakes import FakeEngine, tiny_config

POINTS = [
    {"quality": 0.2, "guidance": 1.0, "steps": 10},
    {"quality": 0.6, "guidance": 2.0, "steps": 21},
    {"quality": 1.0, "guidance": 5.0, "steps": 64},
]


@pytest.mark.parametrize(
    ("quality", "guidance", "steps"),
    [(0, 1, 10), (0.2, 1, 10), (0.4, 1.5, 16), (0.6, 2, 21), (0.8, 3.5, 42), (1, 5, 64)],
)
def test_knobs_lie_between_the_points(quality: float, guidance: float, steps: int) -> None:
    found = interpolate(POINTS, quality)
    assert found == {"guidance": pytest.approx(guidance), "steps": steps}


@pytest.mark.parametrize("task", BUILT_IN)
@given(a=st.floats(0, 1), b=st.floats(0, 1))
def test_more_quality_never_turns_a_built_in_knob_down(task: str, a: float, b: float) -> None:
    low, high = (interpolate(BUILT_IN[task], q) for q in sorted((a, b)))
    assert all(low[name] <= high[name] for name in low)
    SampleSpec(**low)


@pytest.mark.parametrize("quality", [-0.1, 1.01, float("nan")])
def test_quality_out_of_range_is_refused(quality: float) -> None:
    with pytest.raises(ElfError, match="quality"):
        interpolate(POINTS, quality)


def test_defaults_then_quality_then_knobs() -> None:
    own = SampleSpec(steps=5, gamma=0.3, grid="quantile")
    engine = FakeEngine(tiny_config(defaults={"infill": own}))
    assert settings(engine, "infill") == settings(engine, "rewrite") == own
    spec = settings(engine, "rewrite", 1.0, steps=7)
    assert (spec.steps, spec.guidance, spec.gamma, spec.grid) == (7, 3.0, 1.5, "quantile")
    with pytest.raises(ElfError, match="gamma -1"):
        settings(engine, "infill", gamma=-1)


BAD: list[Any] = [
    [],
    {"format": 2, "tasks": {}},
    {"format": 1},
    {"format": 1, "tasks": {"draft": []}},
    {"format": 1, "tasks": {"draft": [3]}},
    {"format": 1, "tasks": {"draft": [{"guidance": 1}]}},
    {"format": 1, "tasks": {"draft": [{"quality": 0, "stepz": 1}]}},
    {"format": 1, "tasks": {"draft": [{"quality": 0, "steps": "1"}]}},
    {"format": 1, "tasks": {"draft": [{"quality": 0, "steps": None}]}},
    {"format": 1, "tasks": {"draft": [{"quality": 1, "steps": 1}, {"quality": 1, "steps": 2}]}},
    {"format": 1, "tasks": {"draft": [{"quality": 0, "steps": 1}, {"quality": 1}]}},
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: json.dumps(data)[:60])
def test_a_bad_file_is_refused_by_name(tmp_path: Path, data: Any) -> None:
    (tmp_path / FILE).write_text(json.dumps(data))
    with pytest.raises(ElfError, match=FILE) as error:
        measured(tmp_path)
    assert "\n" not in str(error.value)


def test_no_file_is_no_calibration(tmp_path: Path) -> None:
    assert measured(tmp_path) is None
    assert measured(None) is None
