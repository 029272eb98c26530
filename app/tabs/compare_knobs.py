"""The settings of the compared columns: widgets, and the way from them to cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from app.service import BACKENDS
from app.tabs.common import HIDDEN, LATEST, Page, caption_html
from app.tabs.knobs import SAMPLERS, SLIDER_ENDS, number, seed_of, whole
from app.tabs.measured import measured_line
from editors.calibration import measurements
from editors.compare import KNOBS, Cell
from editors.models import task_of
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

OWN, QUALITY, HAND = "The model's own", "By quality", "By hand"
QUALITIES = (0.0, 0.35, 0.7, 1.0)
# In the order offered for the sides of a grid.
GRID_KNOBS = [
    *("steps", "gamma", "guidance", "condition_guidance", "quality", "strength", "sampler"),
    *("grid", "resample", "seed", "model", "backend"),
]
assert set(GRID_KNOBS) == set(KNOBS)
_LABELS = {"gamma": "Gamma", "guidance": "Guidance", "condition_guidance": "Condition guidance"}


@dataclass(frozen=True)
class ColumnKnobs:
    """Widgets of one column. An empty seed takes the seed of the comparison."""

    box: gr.Column
    model: gr.Dropdown
    backend: gr.Dropdown
    how: gr.Radio
    quality: gr.Slider
    measured: gr.HTML
    hand: gr.Group
    steps: gr.Slider
    sampler: gr.Radio
    gamma: gr.Slider
    guidance: gr.Slider
    condition_guidance: gr.Slider
    strength: gr.Slider
    seed: gr.Textbox

    def inputs(self) -> set[Any]:
        return {getattr(self, f.name) for f in fields(self)} - {self.box, self.hand, self.measured}

    def cell(self, values: Mapping[Any, Any], editor: str, seed: int) -> Cell:
        """The column as chosen. Raises ElfError for an empty or impossible value."""
        typed = (values[self.seed] or "").strip()
        knobs: dict[str, Any] = {"seed": seed_of(typed) if typed else seed}
        if editor == "rewrite":
            knobs["strength"] = number("strength", values[self.strength])
        how, quality = values[self.how], None
        if how == HAND:
            knobs["steps"] = whole("steps", values[self.steps])
            knobs["sampler"] = values[self.sampler]
            for name in _LABELS:
                knobs[name] = number(name.replace("_", " "), values[getattr(self, name)])
        elif how == QUALITY:
            quality = number("quality", values[self.quality])
        if not values[self.model]:
            raise ElfError("a column has no model; choose one")
        return Cell(values[self.model], values[self.backend], quality, knobs)

    def show(self, spec: SampleSpec) -> dict[Any, Any]:
        """Updates that put settings on the widgets of "By hand"."""
        found: dict[Any, Any] = {self.sampler: spec.sampler}
        for name in ("steps", *_LABELS):
            value = getattr(spec, name)
            most = max(value, SLIDER_ENDS[name])
            found[getattr(self, name)] = gr.update(value=value, maximum=most)
        return found


def build_column(page: Page, place: int) -> ColumnKnobs:
    """Column `place`, from 0. The columns go from varied to likely, so that a first comparison
    without a choice shows a difference."""
    name, spec = f"Column {'ABCD'[place]}", SampleSpec()
    id = f"compare-column-{place}"
    with gr.Column(min_width=230, elem_classes="elf-column", elem_id=id) as box:
        with gr.Row(elem_classes="elf-tight"):
            model = gr.Dropdown(
                page.service.models(),
                value=page.model.value,
                label=f"{name}: model",
                min_width=120,
                scale=3,
            )
            backend = gr.Dropdown(
                [*BACKENDS],
                value=page.backend.value,
                label="Backend",
                filterable=False,
                min_width=90,
                scale=2,
            )
        how = gr.Radio([OWN, QUALITY, HAND], value=QUALITY, label="Settings")
        quality = gr.Slider(
            0, 1, QUALITIES[place], step=0.05, label="Quality", info="0 most varied, 1 most likely"
        )
        measured = gr.HTML("", visible=False)
        with gr.Group(visible=False) as hand:
            steps = gr.Slider(1, SLIDER_ENDS["steps"], spec.steps, step=1, label="Steps")
            sampler = gr.Radio(SAMPLERS, value=spec.sampler, label="Sampler")
            sliders = {
                knob: gr.Slider(0, SLIDER_ENDS[knob], getattr(spec, knob), step=0.05, label=label)
                for knob, label in _LABELS.items()
            }
        strength = gr.Slider(
            0,
            1,
            0.5,
            step=0.05,
            label="Strength",
            info="Rewrite: 0 the same, 1 anew",
            visible=False,
        )
        seed = gr.Textbox("", label="Seed", placeholder="as for all", max_lines=1)
    return ColumnKnobs(
        box, model, backend, how, quality, measured, hand, steps, sampler, **sliders,
        strength=strength, seed=seed,
    )  # fmt: skip


def wire_column(page: Page, column: ColumnKnobs, editor: gr.Dropdown) -> None:
    """Show what the chosen kind of settings needs, starting from the model's own."""

    def told(how: str, model: str, kind: str, quality: float) -> dict[Any, Any]:
        line = ""
        try:
            if how == QUALITY:
                found = measurements(page.service.known(model).path, kind)
                line = measured_line(found, number("quality", quality))
        except ElfError:  # a model that cannot be read says so when it is run
            pass
        return {column.measured: gr.update(value=caption_html([line], []), visible=bool(line))}

    def shown(how: str, model: str, kind: str, quality: float) -> dict[Any, Any]:
        updates: dict[Any, Any] = {
            column.quality: gr.update(visible=how == QUALITY),
            column.hand: gr.update(visible=how == HAND),
            **told(how, model, kind, quality),
        }
        try:
            spec = page.service.settings_for(task_of(kind), model)
        except ElfError:  # a model that cannot be read says so when it is run
            return updates
        return updates | column.show(spec)

    outputs = [column.quality, column.hand, column.measured, *column.show(SampleSpec())]
    chosen = [column.how, column.model, editor, column.quality]
    column.quality.release(told, chosen, column.measured, **LATEST)
    gr.on([column.how.input, column.model.input, editor.input], shown, chosen, outputs, **HIDDEN)
