"""The knobs of one editor: their widgets, and the way between widgets and a SampleSpec."""

from __future__ import annotations

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
    live: gr.Checkbox
    keep_steps: gr.Checkbox
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
            seed=seed_of(values[self.seed]),
        )

    def show(self, settings: Mapping[str, Any]) -> dict[Any, Any]:
        """Updates that put stored settings (fields of SampleSpec) on the widgets; seed apart."""
        names = ("steps", "sampler", "gamma", "guidance", "condition_guidance", "grid")
        return {getattr(self, n): gr.update(value=settings[n]) for n in names if n in settings}


def build_knobs(editor: str, defaults: SampleSpec) -> Knobs:
    """Lay out the knobs below the text box; the less used ones fold away."""
    conditional = editor != "draft"
    with gr.Row(equal_height=True):
        count = gr.Slider(1, MOST_CANDIDATES, 2, step=1, label="Candidates", min_width=150)
        length = gr.Slider(
            0,
            LONGEST_DRAFT,
            0,
            step=8,
            label="Tokens (0: fit)",
            min_width=150,
            visible=editor == "draft",
        )
    guidance = gr.Slider(
        0,
        8,
        defaults.guidance,
        step=0.1,
        label="Guidance: diversity to quality",
        info="Low: more varied and wilder. High: more fluent, candidates more alike.",
    )
    condition = gr.Slider(
        0,
        8,
        defaults.condition_guidance,
        step=0.1,
        label="Condition guidance",
        info="Above 1 holds closer to your text, at twice the time.",
        visible=conditional,
    )
    with gr.Row(elem_classes="elf-row"):
        seed = gr.Textbox(
            "",
            label="Seed",
            placeholder="empty: a new one each run",
            max_lines=1,
            scale=4,
            info="The same seed and settings give the same text.",
            min_width=180,
        )
        dice = gr.Button("⚄ Throw dice", size="sm", scale=1, min_width=110)
    with gr.Accordion("More settings", open=False):
        steps = gr.Slider(
            1,
            256,
            defaults.steps,
            step=1,
            label="Steps",
            info="More steps: better text, longer wait.",
        )
        sampler = gr.Radio(SAMPLERS, value=defaults.sampler, label="Sampler")
        gamma = gr.Slider(
            0,
            8,
            defaults.gamma,
            step=0.1,
            label="Gamma",
            info="Noise the SDE puts back per unit of time; the ODE ignores it.",
        )
        grid = gr.Radio(GRIDS, value=defaults.grid, label="Time grid")
        live = gr.Checkbox(True, label="Show the text forming at every step (a little slower)")
        keep = gr.Checkbox(False, label="Keep the text of every step in the history")
        reset = gr.Button("Back to the model's own settings", size="sm")
    dice.click(
        lambda: str(random_seed()), None, seed, show_progress="hidden", api_visibility="private"
    )
    return Knobs(
        count, length, guidance, condition, seed, steps, sampler, gamma, grid, live, keep, reset
    )


def random_seed() -> int:
    return secrets.randbelow(2**32)


def seed_of(text: str | None) -> int:
    """The seed in the box, a random one when it is empty."""
    text = (text or "").strip()
    if not text:
        return random_seed()
    if not text.isdecimal() or int(text) > 2**63 - 1:
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
