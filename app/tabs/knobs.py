"""The knobs of one editor: their widgets, and the way between widgets and a SampleSpec."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

MOST_CANDIDATES = 8
LONGEST_DRAFT = 512
SAMPLERS = [("SDE (with fresh noise)", "sde"), ("ODE (deterministic path)", "ode")]
SLIDER_ENDS = {"steps": 256, "gamma": 8, "guidance": 8, "condition_guidance": 8, "resample": 20}
GRIDS = ["uniform", "logit-normal", "quantile"]


@dataclass(frozen=True)
class Knobs:
    """Widgets of one editor. `length` is hidden where the editor has none."""

    count: gr.Slider
    length: gr.Slider
    guidance: gr.Slider
    condition_guidance: gr.Slider
    seed: gr.Textbox
    steps: gr.Slider
    sampler: gr.Radio
    gamma: gr.Slider
    grid: gr.Radio
    resample: gr.Slider
    live: gr.Checkbox
    keep_steps: gr.Checkbox
    first: gr.Number
    reset: gr.Button

    def inputs(self) -> set[gr.components.Component]:
        return {w for name, w in vars(self).items() if name != "reset"}

    def spec(self, values: Mapping[Any, Any]) -> SampleSpec:
        """The settings the widgets say. Raises ElfError for an empty or impossible one."""
        return SampleSpec(
            steps=whole("steps", values[self.steps]),
            sampler=values[self.sampler],
            gamma=number("gamma", values[self.gamma]),
            guidance=number("guidance", values[self.guidance]),
            condition_guidance=number("condition guidance", values[self.condition_guidance]),
            grid=values[self.grid],
            resample=whole("resample", values[self.resample]),
            seed=seed_of(values[self.seed]),
        )

    def show(self, settings: Mapping[str, Any]) -> dict[Any, Any]:
        """Updates that put stored settings (fields of SampleSpec) on the widgets; seed apart."""
        updates: dict[Any, Any] = {}
        for name in SLIDER_ENDS:
            if name in settings:
                slider, value = getattr(self, name), settings[name]
                # The command line goes further than the sliders do; they stretch to what was used.
                updates[slider] = gr.update(value=value, maximum=max(value, SLIDER_ENDS[name]))
        for name in ("sampler", "grid"):
            if name in settings:
                updates[getattr(self, name)] = gr.update(value=settings[name])
        return updates


def build_knobs(editor: str, defaults: SampleSpec) -> Knobs:
    """Lay out the knobs below the text box; the less used ones fold away."""
    draft = editor == "draft"
    with gr.Row(equal_height=True):
        count = gr.Slider(1, MOST_CANDIDATES, 2, step=1, label="Candidates", min_width=150)
        length = gr.Slider(
            0, LONGEST_DRAFT, 0, step=1, label="Tokens (0: fit)", min_width=150, visible=draft
        )
    with gr.Group():
        guidance = _slider(
            "guidance",
            defaults,
            "Guidance",
            "Low: more varied and wilder. High: more fluent, candidates more alike.",
        )
        condition = _slider(
            "condition_guidance",
            defaults,
            "Condition guidance",
            "Above 1 holds closer to your text, at twice the time.",
            visible=not draft,
        )
    return Knobs(
        count=count,
        length=length,
        guidance=guidance,
        condition_guidance=condition,
        seed=_build_seed(editor),
        **_build_more(draft, defaults),
    )


def _build_more(draft: bool, defaults: SampleSpec) -> dict[str, Any]:
    """The folded part, by field of Knobs."""
    more: dict[str, Any] = {}
    with gr.Accordion("More settings", open=False):
        more["steps"] = _slider("steps", defaults, "Steps", "More steps: better text, longer wait.")
        more["sampler"] = gr.Radio(SAMPLERS, value=defaults.sampler, label="Sampler")
        more["gamma"] = _slider(
            "gamma", defaults, "Gamma", "Noise the SDE puts back per unit time; the ODE has none."
        )
        more["grid"] = gr.Radio(GRIDS, value=defaults.grid, label="Time grid")
        more["resample"] = _slider(
            "resample",
            defaults,
            "Resample",
            "Times each step is gone back and run again, to agree better with your text.",
            visible=not draft,
        )
        more["first"] = gr.Number(
            0,
            label="First sample",
            info="Noise number of the first candidate: a higher one gives further candidates.",
            precision=0,
            minimum=0,
        )
        more["live"] = gr.Checkbox(
            True, label="Show the text forming at every step (a little slower)"
        )
        more["keep_steps"] = gr.Checkbox(False, label="Keep the text of every step in the history")
        more["reset"] = gr.Button("Back to the model's own settings", size="sm")
    return more


def _slider(
    name: str, defaults: SampleSpec, label: str, info: str, visible: bool = True
) -> gr.Slider:
    value = getattr(defaults, name)
    whole_numbers = isinstance(value, int)
    return gr.Slider(
        1 if name == "steps" else 0,
        max(SLIDER_ENDS[name], value),
        value,
        step=1 if whole_numbers else 0.05,
        label=label,
        info=info,
        visible=visible,
    )


def _build_seed(editor: str) -> gr.Textbox:
    with gr.Row(elem_classes="elf-row"):
        # A text box: a number box would round seeds past 2**53.
        seed = gr.Textbox(
            "",
            label="Seed",
            info="The same seed and settings give the same text.",
            placeholder="empty: a new one each run",
            max_lines=1,
            elem_id=f"{editor}-seed",
            scale=4,
            min_width=180,
        )
        dice = gr.Button(
            "⚄ Throw dice", size="sm", elem_id=f"{editor}-dice", scale=1, min_width=110
        )
    dice.click(
        lambda: str(random_seed()), None, seed, show_progress="hidden", api_visibility="private"
    )
    return seed


def random_seed() -> int:
    return secrets.randbelow(2**32)


def seed_of(text: str | None) -> int:
    """The seed in the box, a random one when it is empty."""
    text = (text or "").strip()
    if not text:
        return random_seed()
    if not re.fullmatch(r"\d{1,19}", text) or int(text) > 2**63 - 1:
        raise ElfError(f"seed '{text[:40]}' is no whole number from 0 to 2**63 - 1")
    return int(text)


def number(name: str, value: Any) -> float:
    if not isinstance(value, int | float):
        raise ElfError(f"{name} is empty; give a number")
    return float(value)


def whole(name: str, value: Any) -> int:
    found = number(name, value)
    if not found.is_integer():
        raise ElfError(f"{name} {found:g} is no whole number")
    return int(found)
