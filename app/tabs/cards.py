"""Candidates beside the text: what changes, word by word, and how it came out of the noise."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.tabs.common import caption_html, made_html, settings_line
from app.tabs.diff import diff_html
from app.tabs.write_ask import Task
from editors.request import EditResult

# Characters of the text shown on either side of what changes.
_AROUND = 80
_PLOT = (300, 84)


@dataclass(frozen=True)
class Card:
    """One finished candidate. `run` names the click it answers, `id` its place in the history."""

    result: EditResult
    run: str
    id: str | None


def live_html(task: Task, texts: Sequence[str]) -> str:
    """Candidates while they form; they cannot be taken yet."""
    cards = []
    for number, text in enumerate(texts, 1):
        inside = html.escape(part(task, text)) if text else "…"
        left, right = _around(task)
        words = f'{left}<span class="elf-noisy">{inside}</span>{right}'
        cards.append(f'<li class="elf-card"><h3>Candidate {number}</h3>{_text(words)}</li>')
    return f'<ol class="elf-cards">{"".join(cards)}</ol>'


def cards_html(task: Task, cards: Sequence[Card], tokens: Callable[[str], Sequence[int]]) -> str:
    """Finished candidates, each with what is needed to put it into the document."""
    items = [_card(task, card, number, tokens) for number, card in enumerate(cards, 1)]
    return f'<ol class="elf-cards">{"".join(items)}</ol>'


def part(task: Task, text: str) -> str:
    """What stands in `text` where the request's text has the part that may change."""
    return text[task.start : len(text) - (len(task.request.text) - task.stop)]


def _card(task: Task, card: Card, number: int, tokens: Callable[[str], Sequence[int]]) -> str:
    result = card.result
    before = task.request.text[task.start : task.stop]
    left, right = _around(task)
    words = left + diff_html(before, part(task, result.text)) + right
    changes = [[c.start, c.stop, c.before, c.after] for c in result.changes]
    data = html.escape(json.dumps(changes), quote=True)
    scored = result.scores.get("word_edits")
    edits = "" if scored is None else f", {scored:g} words changed"
    lines = [
        f"seed {result.seed}, sample {result.index}, {result.seconds:.1f} s, "
        f"{result.model} on {result.backend}{edits}",
        settings_line(result.settings),
    ]
    same = '<p class="elf-caption">The same words as before.</p>' if not changes else ""
    steps = [part(task, text) for text in result.trajectory]
    return (
        f'<li class="elf-card" tabindex="-1" data-run="{html.escape(card.run, quote=True)}" '
        f'data-id="{html.escape(card.id or "", quote=True)}" data-changes="{data}">'
        f'<h3>Candidate {number}<span class="elf-mark"></span></h3>{_text(words)}{same}'
        f'<div class="elf-do">{_button("accept", "Accept", number)}'
        f"{_button('discard', 'Discard', number)}{_button('next', 'Next', number)}</div>"
        f"{_noise(steps, number, tokens)}"
        f"{made_html(lines)}{caption_html([], list(result.warnings))}</li>"
    )


def _text(words: str) -> str:
    return f'<p class="elf-words">{words}</p>'


def _button(do: str, label: str, number: int) -> str:
    return (
        f'<button type="button" class="elf-btn" data-do="{do}" '
        f'aria-label="{label} candidate {number}">{label}</button>'
        if do != "next"
        else f'<button type="button" class="elf-btn" data-do="{do}" '
        f'aria-label="Next candidate after {number}">{label}</button>'
    )


def _around(task: Task) -> tuple[str, str]:
    """The text on either side, escaped and dimmed."""
    text = task.request.text
    left = text[max(0, task.start - _AROUND) : task.start]
    right = text[task.stop : task.stop + _AROUND]
    dots = ("…" if task.start > _AROUND else "", " …" if len(text) - task.stop > _AROUND else "")
    return (
        f'<span class="elf-around">{dots[0]}{html.escape(left)}</span>',
        f'<span class="elf-around">{html.escape(right.rstrip())}{dots[1]}</span>',
    )


# --- the text out of the noise ------------------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """For each step, how many tokens changed since the step before, and how many differ from the
    last; the first step has no step before and counts as changed whole."""

    changed: tuple[int, ...]
    to_final: tuple[int, ...]


def walk(steps: Sequence[Sequence[int]]) -> Walk:
    """Of token ids after each step, place by place: a flow decodes its places, so a word that
    moved is a change."""
    pairs = zip([(), *steps[:-1]], steps, strict=True) if steps else ()
    changed = tuple(_differ(a, b) for a, b in pairs)
    return Walk(changed, tuple(_differ(step, steps[-1]) for step in steps))


def _differ(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))


def _noise(steps: Sequence[str], number: int, tokens: Callable[[str], Sequence[int]]) -> str:
    """A slider over the steps, the text there, and the plot; nothing without kept steps."""
    if len(steps) < 2:
        return ""
    found = walk([tokens(step) for step in steps])
    told = [
        {"text": text, "changed": c, "left": d}
        for text, c, d in zip(steps, found.changed, found.to_final, strict=True)
    ]
    data = html.escape(json.dumps(told), quote=True)
    last = len(steps)
    return (
        f'<details class="elf-noise" data-steps="{data}"><summary>Out of the noise</summary>'
        f'<label>Step <output>{last} of {last}</output><input type="range" min="1" max="{last}" '
        f'value="{last}" step="1" aria-label="Step of candidate {number}"></label>'
        f'<p class="elf-then">{html.escape(steps[-1])}</p>{plot_svg(found)}</details>'
    )


def plot_svg(found: Walk) -> str:
    """Both counts over the steps: bars for what changed, a dashed line for what is left."""
    width, height = _PLOT
    top = max(*found.changed, *found.to_final, 1)
    many = len(found.changed)
    room = width / many

    def y(value: int) -> float:
        return round(height - 2 - (height - 8) * value / top, 1)

    bars = "".join(
        f'<rect x="{round(i * room + room * 0.15, 1)}" width="{round(room * 0.7, 1)}" '
        f'y="{y(c)}" height="{round(height - 2 - y(c), 1)}"/>'
        for i, c in enumerate(found.changed)
    )
    line = " ".join(f"{round((i + 0.5) * room, 1)},{y(d)}" for i, d in enumerate(found.to_final))
    settled = next(i for i, d in enumerate(found.to_final, 1) if d == 0)
    said = (
        f"Tokens changed per step: {', '.join(map(str, found.changed))}. Tokens that differ from "
        f"the final text: {', '.join(map(str, found.to_final))}. First like the final text at "
        f"step {settled}."
    )
    return (
        f'<figure class="elf-plot"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{said}" preserveAspectRatio="none"><g class="bars">{bars}</g>'
        f'<polyline points="{line}"/><line class="here" x1="{width}" x2="{width}" y1="0" '
        f'y2="{height}"/></svg><figcaption><span class="bar-key"></span> tokens changed in the '
        f'step <span class="line-key"></span> tokens unlike the final text (most: {top}; settled '
        f"at step {settled} of {many})</figcaption></figure>"
    )
