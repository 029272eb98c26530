"""The knobs of the Write tab: one from varied to likely, the rest folded away and empty until used.

An empty knob is set by the quality slider, per editor, from the model's calibration; a filled one
wins over it.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import gradio as gr

from app.about import About, Shelf
from app.tabs.common import HIDDEN, LATEST, guarded
from app.tabs.knobs import GRIDS, MOST_CANDIDATES, SAMPLERS, number, random_seed, seed_of, whole
from app.tabs.measured import meaning, measured_line, measured_where
from app.tabs.write_ask import Length, Wishes, in_words
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

EDITORS = {"infill": "Infill", "rewrite": "Rewrite", "draft": "Continue"}
AUTO, EXACT, RANGE = "The model chooses", "Exactly", "Between"
_WHOLE = ("steps", "resample")
_REAL = ("gamma", "guidance", "condition_guidance")
_CHOSEN = ("sampler", "grid")
_BY_QUALITY = "as quality says"


@dataclass(frozen=True)
class Dials:
    """Widgets. `meaning` and `told` say what quality and strength amount to; `drawn` is the seed
    that the last run put into the box, so that one typed there can be told from it."""

    quality: gr.Slider
    meaning: gr.HTML
    strength: gr.Slider
    told: gr.HTML
    keep: gr.Textbox
    count: gr.Slider
    how: gr.Radio
    least: gr.Number
    most: gr.Number
    draft: gr.Textbox
    unit: gr.Radio
    steps: gr.Textbox
    sampler: gr.Dropdown
    gamma: gr.Textbox
    guidance: gr.Textbox
    condition_guidance: gr.Textbox
    grid: gr.Dropdown
    resample: gr.Textbox
    seed: gr.Textbox
    lock: gr.Checkbox
    drawn: gr.State
    first: gr.Number
    live: gr.Checkbox
    keep_steps: gr.Checkbox
    reset: gr.Button

    def widgets(self) -> dict[str, Any]:
        """The ones that hold a value, by field name."""
        apart = ("meaning", "told", "reset")
        return {name: w for name, w in vars(self).items() if name not in apart}

    def kept(self) -> dict[str, Any]:
        """The ones a preset holds: all but the seed."""
        apart = ("seed", "lock", "drawn", "first")
        return {name: w for name, w in self.widgets().items() if name not in apart}


# --- from values to settings --------------------------------------------------------------------


def by_hand(values: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that are filled. Raises ElfError for one that is no number."""
    found: dict[str, Any] = {}
    for names, read in ((_WHOLE, whole), (_REAL, number)):
        for name in names:
            if (typed := typed_number(name.replace("_", " "), values[name])) is not None:
                found[name] = read(name.replace("_", " "), typed)
    return found | {name: values[name] for name in _CHOSEN if values[name]}


def typed_number(name: str, text: Any) -> float | None:
    """The number in a text box, None when it is empty. Raises ElfError."""
    text = str(text or "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise ElfError(f"{name} '{text[:40]}' is no number") from error


def spec_of(values: Mapping[str, Any], about: About, editor: str) -> SampleSpec:
    """What an editor runs with, but for the seed. Raises ElfError for what is out of range."""
    at_quality = about.settings(editor, number("quality", values["quality"]))
    return replace(at_quality, **by_hand(values))


def with_seed(values: Mapping[str, Any], spec: SampleSpec) -> SampleSpec:
    """The seed in the box when it is locked or was typed there, a new one otherwise."""
    wanted = values["lock"] or values["seed"] != values["drawn"]
    return replace(spec, seed=seed_of(values["seed"]) if wanted else random_seed())


def wishes_of(values: Mapping[str, Any]) -> Wishes:
    """Everything else the knobs say. Raises ElfError."""
    unit = cast(Literal["tokens", "words"], values["unit"])
    least, most = _length(values)
    draft = whole("length", typed_number("length", values["draft"]) or 0)
    return Wishes(
        count=whole("candidates", values["count"]),
        first=whole("first sample", values["first"]),
        strength=number("strength", values["strength"]),
        keep=in_words(values["keep"]),
        length=Length(least, most, draft, unit),
        live=bool(values["live"] or values["keep_steps"]),
        quality=None if by_hand(values) else number("quality", values["quality"]),
    )


def _length(values: Mapping[str, Any]) -> tuple[int, int]:
    if values["how"] == AUTO:
        return 0, 0
    most = whole("length", values["most"])
    least = most if values["how"] == EXACT else whole("least length", values["least"])
    if not 1 <= least <= most:
        raise ElfError(f"length {least} to {most} tokens is no range; begin with 1 and go up")
    return least, most


# --- in words -----------------------------------------------------------------------------------


def meaning_html(values: Mapping[str, Any], model: str, about: About) -> str:
    """What the quality amounts to, per editor, with what was set by hand. Raises ElfError."""
    quality = number("quality", values["quality"])
    used: dict[str, list[str]] = {}
    own = by_hand(values)
    for editor, title in EDITORS.items():
        line = _used(spec_of(values, about, editor), own)
        # A knob turned by hand leaves the measured points.
        found = "" if own else measured_line(about.measurements(editor), quality)
        used.setdefault(f"{line}; {found}" if found else line, []).append(title)
    lines = "".join(
        f"<div><b>{', '.join(titles)}</b>: {html.escape(line)}</div>"
        for line, titles in used.items()
    )
    where = measured_where(about, "infill", model)
    return (
        f'<div class="elf-caption"><div class="elf-meaning">{meaning(quality)}</div>{lines}'
        f"<div>{html.escape(where)}</div></div>"
    )


def _used(spec: SampleSpec, own: Mapping[str, Any]) -> str:
    names = ["steps", "sampler", *_REAL]
    names = [n for n in names if n != "gamma" or spec.sampler == "sde"]
    names += [n for n in ("grid", "resample") if n in own]
    said = []
    for name in names:
        value = getattr(spec, name)
        shown = value.upper() if name == "sampler" else value
        shown = f"{shown:.4g}" if isinstance(shown, float) else shown
        said.append(f"{name.replace('_', ' ')} {shown}{' (yours)' if name in own else ''}")
    return ", ".join(said)


def told_html(values: Mapping[str, Any], about: About) -> str:
    """What the strength amounts to. Raises ElfError."""
    strength = number("strength", values["strength"])
    spec = spec_of(values, about, "rewrite")
    run = about.effective_steps(spec, strength)
    words = "keeps every word" if strength == 0 else "stays close" if strength < 0.4 else "freer"
    words = "writes it anew" if strength == 1 else words
    return (
        f'<div class="elf-caption">Strength {strength:g} {words}: '
        f"{run} of the {spec.steps} steps are run.</div>"
    )


# --- widgets ------------------------------------------------------------------------------------


def build_dials(shelf: Shelf, model: gr.Dropdown) -> Dials:
    """Lay the knobs out below the text."""
    made: dict[str, Any] = {}
    made["quality"] = gr.Slider(
        0, 1, 0.5, step=0.05, label="Diversity to quality", elem_id="write-quality"
    )
    made["meaning"] = gr.HTML("", elem_id="write-meaning")
    made["strength"] = gr.Slider(
        0, 1, 0.5, step=0.05, label="Strength of a rewrite", elem_id="write-strength"
    )
    made["told"] = gr.HTML("", elem_id="write-told")
    made["keep"] = gr.Textbox(
        "",
        label="Words a rewrite keeps",
        placeholder="Clara, the old house",
        info="Separated by commas.",
        max_lines=1,
        elem_id="write-keep",
    )
    made["count"] = gr.Slider(
        1, MOST_CANDIDATES, 3, step=1, label="Candidates", elem_id="write-count-knob"
    )
    with gr.Accordion("More", open=False, elem_id="write-more"):
        made |= _build_length() | _build_sampling() | _build_seed()
        made["live"] = gr.Checkbox(True, label="Show the text forming, and keep its steps to walk")
        made["keep_steps"] = gr.Checkbox(False, label="Keep the steps in the history too")
        made["reset"] = gr.Button("All as quality says", size="sm", elem_id="write-reset")
    dials = Dials(**made)
    _wire(dials, shelf, model)
    return dials


def _build_length() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["how"] = gr.Radio(
        [AUTO, EXACT, RANGE],
        value=AUTO,
        label="Length of an infill",
        info="In tokens: a short word or a piece of one.",
        elem_id="write-how",
    )
    with gr.Row():
        made["least"] = gr.Number(
            2, label="At least", precision=0, visible=False, elem_id="write-least", min_width=100
        )
        made["most"] = gr.Number(
            6, label="Tokens", precision=0, visible=False, elem_id="write-most", min_width=100
        )
    made["how"].change(
        lambda how: (
            gr.update(visible=how == RANGE),
            gr.update(visible=how != AUTO, label="At most" if how == RANGE else "Tokens"),
        ),
        made["how"],
        [made["least"], made["most"]],
        **HIDDEN,
    )
    with gr.Row():
        made["draft"] = gr.Textbox(
            "",
            label="Length of a continuation",
            placeholder="the model chooses",
            max_lines=1,
            elem_id="write-length",
            min_width=140,
        )
        made["unit"] = gr.Radio(["words", "tokens"], value="words", label="In", min_width=140)
    return made


def _build_sampling() -> dict[str, Any]:
    made: dict[str, Any] = {}

    def knob(name: str, label: str, info: str) -> gr.Textbox:
        # A text box: an empty number box turns to 0.
        return gr.Textbox(
            "",
            label=label,
            info=info,
            placeholder=_BY_QUALITY,
            max_lines=1,
            elem_id=f"write-{name}",
            min_width=140,
        )

    with gr.Row(equal_height=True):
        made["steps"] = knob("steps", "Steps", "1 to 1000. More: better, slower.")
        made["guidance"] = knob("guidance", "Guidance", "0 to 100. More: more fluent.")
    with gr.Row(equal_height=True):
        made["condition_guidance"] = knob(
            "condition_guidance", "Condition guidance", "0 to 100. More: closer to your text."
        )
        made["gamma"] = knob("gamma", "Gamma", "Noise the SDE puts back.")
    with gr.Row(equal_height=True):
        made["sampler"] = gr.Dropdown(
            [("As the model says", ""), *SAMPLERS], value="", label="Sampler", filterable=False
        )
        made["grid"] = gr.Dropdown(
            [("As the model says", ""), *GRIDS], value="", label="Time grid", filterable=False
        )
    made["resample"] = knob("resample", "Resample", "0 to 20. Runs every step again, so often.")
    return made


def _build_seed() -> dict[str, Any]:
    made: dict[str, Any] = {}
    with gr.Row(elem_classes="elf-row"):
        # A text box: a number box would round seeds past 2**53.
        made["seed"] = gr.Textbox(
            "",
            label="Seed",
            info="The same seed and settings give the same text.",
            placeholder="a new one each run",
            max_lines=1,
            elem_id="write-seed",
            scale=3,
            min_width=150,
        )
        dice = gr.Button("⚄ Dice", size="sm", elem_id="write-dice", scale=1, min_width=80)
    made["lock"] = gr.Checkbox(False, label="🔒 Keep this seed", elem_id="write-lock")
    made["first"] = gr.Number(
        0,
        label="First sample",
        info="A higher one gives further candidates of the same seed.",
        precision=0,
        elem_id="write-first",
    )
    both = [made["seed"], made["lock"]]
    dice.click(lambda: (str(random_seed()), True), None, both, **HIDDEN)
    made["drawn"] = gr.State("")
    made["seed"].change(
        lambda text, drawn, lock: lock or (bool(text.strip()) and text != drawn),
        [made["seed"], made["drawn"], made["lock"]],
        made["lock"],
        **HIDDEN,
    )
    return made


def _wire(dials: Dials, shelf: Shelf, model: gr.Dropdown) -> None:
    names = ["quality", "strength", *_WHOLE, *_REAL, *_CHOSEN]
    watched = [getattr(dials, name) for name in names]

    def tell(model: str, *values: Any) -> tuple[Any, Any]:
        by_name = dict(zip(names, values, strict=True))

        def words() -> tuple[str, str]:
            about = shelf.about(model)
            return meaning_html(by_name, model, about), told_html(by_name, about)

        return cast("tuple[Any, Any]", guarded(words, (gr.skip(), gr.skip())))

    gr.on(
        [*(w.change for w in watched), model.change],
        tell,
        [model, *watched],
        [dials.meaning, dials.told],
        **LATEST,
    )
    try:
        defaults = dict(zip(names, (w.value for w in watched), strict=True))
        about = shelf.about(str(model.value))
        dials.meaning.value = meaning_html(defaults, str(model.value), about)
        dials.told.value = told_html(defaults, about)
    except ElfError:  # a model that cannot be read says so when it is run
        pass
    emptied = [getattr(dials, name) for name in (*_WHOLE, *_REAL, *_CHOSEN)]
    dials.reset.click(lambda: [""] * len(emptied), None, emptied, **HIDDEN)


def shown(dials: Dials, settings: Mapping[str, Any]) -> dict[Any, Any]:
    """Updates that put stored settings (fields of SampleSpec) on the knobs; the seed apart."""
    known = {f.name for f in dataclasses.fields(SampleSpec)} - {"seed"}
    return {
        getattr(dials, name): str(value).removesuffix(".0")
        for name, value in settings.items()
        if name in known
    }
