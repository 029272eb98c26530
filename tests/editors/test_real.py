"""The editors on a real, tiny network: what a fake engine cannot show."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editors import EditResult, edit, settings
from editors.calibration import FILE
from elf_engine import model_dir
from elf_engine.config import LayoutSpec, SampleSpec, to_dict
from elf_engine.pipeline import Engine
from tests.editors.common import attempt, one
from tests.fakes import tiny_config, tiny_model_dir

TASKS = tiny_config().layout.tasks
LONG = replace(tiny_config().network, max_length=256)
EDITORS = ("draft", "infill", "rewrite", "translate", "summarise", "modernise")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout = LayoutSpec(lengths=(32, 64, 128, 256), tasks=TASKS, sep_id=4)
    return tiny_model_dir(tmp_path_factory.mktemp("models"), network=LONG, layout=layout)


@pytest.fixture(scope="module")
def engine(model: Path) -> Engine:
    return Engine.load(model, backend="torch")


def with_layout(model: Path, name: str, **layout: Any) -> Engine:
    """The same weights under another layout."""
    other = shutil.copytree(model, model.parent / name, dirs_exist_ok=True)
    config = model_dir.load_config(other)
    config = replace(config, layout=replace(config.layout, **layout))
    (other / model_dir.CONFIG).write_text(json.dumps(to_dict(config)), "utf-8")
    return Engine.load(other, backend="torch")


@pytest.mark.parametrize(
    ("editor", "text"), [("draft", "A house"), ("infill", "A [[9]] b"), ("rewrite", "A house.")]
)
def test_the_text_does_not_depend_on_padding(model: Path, editor: str, text: str) -> None:
    short, long = (with_layout(model, f"pad{n}", lengths=(n,)) for n in (128, 256))
    spec = SampleSpec(steps=4, seed=0)
    texts = [one(e, editor, text, settings=spec).text for e in (short, long)]
    assert texts[0] == texts[1]


EXTREMES: list[dict[str, Any]] = [
    {"guidance": 0.0},
    {"guidance": 100.0},
    {"condition_guidance": 0.0},
    {"condition_guidance": 100.0},
    {"gamma": 10.0},
    {"gamma": 1000.0},
    {"steps": 1},
    {"sampler": "ode"},
    {"grid": "quantile"},
    {"resample": 3},
    {"seed": 2**63 - 1},
]
TEXTS = ["", " \n\t ", "😀", "Haus", "a" * 300, "A [[]] b", "A [[1]] b", "A [[200]] b"]


def sensible(result: EditResult | str, text: str) -> bool:
    """A result that differs from its text by its changes alone, or one line."""
    if isinstance(result, str):
        return bool(result)
    return all(text[c.start : c.stop] == c.before for c in result.changes)


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("knobs", EXTREMES, ids=str)
def test_extreme_settings(engine: Engine, editor: str, knobs: dict[str, Any]) -> None:
    text = "Ein [[3]] Haus" if editor == "infill" else "Ein Haus"
    spec = replace(SampleSpec(steps=3), **knobs)
    result = attempt(engine, editor, text, settings=spec)
    assert isinstance(result, EditResult)
    assert sensible(result, text)


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:12])
def test_extreme_texts(engine: Engine, editor: str, text: str) -> None:
    assert sensible(attempt(engine, editor, text), text)


@pytest.mark.parametrize("strength", [0.0, 0.02, 1.0])
def test_extreme_strengths(engine: Engine, strength: float) -> None:
    result = one(engine, "rewrite", "Ein Haus.", strength=strength)
    assert result.settings["effective_steps"] == {0.0: 0, 0.02: 1, 1.0: 2}[strength]
    assert strength or (result.text, result.changes) == ("Ein Haus.", ())


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_guidance_100_in_bfloat16_never_decodes_nan(
    model: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.load(model, backend=backend, dtype="bfloat16")
    decoded: list[Any] = []
    decode = engine.decode

    def watched(z: Any, *rest: Any) -> Any:
        decoded.append(engine.backend.to_numpy(z))
        return decode(z, *rest)

    monkeypatch.setattr(engine, "decode", watched)
    spec = SampleSpec(steps=6, guidance=100.0, condition_guidance=100.0)
    result = attempt(engine, "infill", "A [[5]] house", settings=spec)
    assert all(np.isfinite(z).all() for z in decoded)
    assert isinstance(result, EditResult) or "stopped being finite at step" in result


def test_a_model_trained_without_conditions_fills_gaps(model: Path) -> None:
    bare = {"draft": -1, "infill": -1}
    engine = with_layout(
        model, "renoise", tasks=bare, sep_id=-1, hold="renoise", padding="attended", lengths=()
    )
    plain = one(engine, "infill", "A [[9]] house", settings=SampleSpec(steps=5))
    jumps = one(engine, "infill", "A [[9]] house", settings=SampleSpec(steps=5, resample=2))
    for result in (plain, jumps):
        assert result.text.startswith("A ")
        assert result.text.endswith(" house")
    assert (plain.settings["effective_steps"], jumps.settings["effective_steps"]) == (5, 11)
    assert plain.text != jumps.text
    assert "cannot do 'translate'" in str(attempt(engine, "translate", "Haus"))


def test_fit_is_the_models_own_measure(engine: Engine) -> None:
    from tests.editors.common import request

    found = edit(engine, request("infill", "A [[5]] house", count=4, rank="fit"))
    fits = [result.scores["fit"] for result in found]
    assert fits == sorted(fits, reverse=True)
    assert all(fit < 0 for fit in fits)


def test_quality_is_read_from_the_models_calibration(model: Path) -> None:
    engine = with_layout(model, "measured")
    points = [{"quality": 0, "guidance": 1, "steps": 2}, {"quality": 1, "guidance": 3, "steps": 6}]
    table = {"format": 1, "tasks": {"infill": points}}
    assert engine.path is not None
    (engine.path / FILE).write_text(json.dumps(table))
    assert settings(engine, "infill", 0.25).guidance == 1.5
    assert settings(engine, "rewrite", 1.0).steps == 6
    result = one(engine, "infill", "A [[2]]", settings=None, quality=0.5)
    assert (result.settings["guidance"], result.settings["effective_steps"]) == (2.0, 4)
    assert (result.settings["quality"], result.settings["calibration"]) == (0.5, "measured")
    assert not any("built-in" in warning for warning in result.warnings)
    for bad in ("{", "[]", '{"format": 2, "tasks": {}}', '{"format": 1, "tasks": {"draft": []}}'):
        (engine.path / FILE).write_text(bad)
        assert FILE in str(attempt(engine, "infill", "A [[2]]", settings=None, quality=0.5))
