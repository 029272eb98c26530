"""A comparison as HTML. Every text is escaped; nothing is said by colour alone."""

from __future__ import annotations

import html
from collections.abc import Sequence

from app.comparison import Answer, CompareRun, Comparison, letter
from app.comparison_tally import Count
from app.tabs.common import caption_html, made_html, settings_line, status_html
from app.tabs.diff import diff_html
from editors.request import EditResult

NO_BASE, INPUT_BASE = "nothing", "the input"


def base_choices(comparison: Comparison | None) -> list[str]:
    """What the answers can be held against."""
    answers = comparison.answers if comparison else []
    return [NO_BASE, INPUT_BASE, *(f"answer {letter(i)}" for i in range(len(answers)))]


def comparison_html(comparison: Comparison, base: str) -> str:
    """Columns that stand under each other where there is no room, or a grid with heads."""
    cells = [_answer(comparison, i, base) for i in range(len(comparison.answers))]
    if not comparison.rows:
        return f'<div class="elf-compare">{"".join(cells)}</div>'
    heads = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in comparison.columns)
    lines, wide = [], len(comparison.columns)
    for i, row in enumerate(comparison.rows):
        line = "".join(f"<td>{cell}</td>" for cell in cells[i * wide : (i + 1) * wide])
        lines.append(f'<tr><th scope="row">{html.escape(row)}</th>{line}</tr>')
    return (
        '<div class="elf-grid" tabindex="0" role="region" aria-label="Grid of answers"><table>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _answer(comparison: Comparison, place: int, base: str) -> str:
    answer = comparison.answers[place]
    name = "name hidden" if comparison.hidden else answer.name
    head = f"<h3>Answer {letter(place)}</h3><p>{html.escape(name)}</p>"
    notes = "".join(f'<p class="warn">Note: {html.escape(note)}</p>' for note in answer.notes)
    body = "".join(_candidate(comparison, place, i, base) for i in range(len(answer.results)))
    return (
        f'<section class="elf-answer" aria-label="Answer {letter(place)}">'
        f"{head}{_state(comparison, answer)}{body}{notes}</section>"
    )


def _state(comparison: Comparison, answer: Answer) -> str:
    match answer.state:
        case "ready":
            return ""
        case "failed" if comparison.hidden:
            line = "⚠ This one failed; the message is shown when names are."
        case "failed":
            line = f"⚠ {answer.error}"
        case "waiting":
            line = "Waiting…"
        case "running":
            line = "Running…"
        case "stopped":
            line = "Stopped."
    return f'<p class="elf-state {answer.state}">{html.escape(line)}</p>'


def _candidate(comparison: Comparison, place: int, i: int, base: str) -> str:
    answer = comparison.answers[place]
    result = answer.results[i]
    shown = _text(comparison, place, i, base)
    chosen = comparison.preferred == (place, i)
    said = f"{letter(place)}{f', candidate {i + 1}' if len(answer.results) > 1 else ''}"
    star = '<p class="elf-star">★ preferred</p>' if chosen else ""
    small = "" if comparison.hidden else _caption(result)
    return (
        f'<div class="elf-text" dir="auto">{shown}</div>{star}'
        '<div class="elf-acts">'
        f"{_button('prefer', place, i, '★ Prefer', f'Prefer answer {said}', chosen)}"
        f"{_button('copy', place, i, 'Copy', f'Copy answer {said}')}"
        f"{_button('use', place, i, 'Use in Write', f'Use answer {said} in Write')}"
        f'</div><span class="elf-raw" hidden>{html.escape(result.text)}</span>{small}'
    )


def _button(act: str, place: int, i: int, words: str, said: str, on: bool | None = None) -> str:
    pressed = f' aria-pressed="{str(on).lower()}"' if on is not None else ""
    return (
        f'<button type="button" data-act="{act}" data-answer="{place}" data-candidate="{i}"'
        f' aria-label="{html.escape(said)}"{pressed}>{words}</button>'
    )


def _text(comparison: Comparison, place: int, i: int, base: str) -> str:
    text = comparison.answers[place].results[i].text
    against = None
    if base == INPUT_BASE:
        against = comparison.request.text
    elif base.startswith("answer ") and base != f"answer {letter(place)}":
        at = ord(base[-1]) - ord("A")
        answers = comparison.answers
        if 0 <= at < len(answers) and answers[at].results:
            against = answers[at].results[0].text
    shown = html.escape(text) if against is None else diff_html(against, text)
    return shown or "<em>empty</em>"


def _caption(result: EditResult) -> str:
    line = f"seed {result.seed}, sample {result.index}, {result.seconds:.1f} s"
    lines = [line, settings_line(result.settings)]
    lines += [f"{name.replace('_', ' ')} {value:g}" for name, value in result.scores.items()]
    return caption_html([], list(result.warnings)) + made_html(lines)


def counts_html(counts: Sequence[Count]) -> str:
    """The counts of preferences as a table; empty without any."""
    if not counts:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{html.escape(c.setting)}</th><td>{c.preferred}</td>'
        f"<td>{c.blind}</td><td>{c.compared}</td></tr>"
        for c in counts
    )
    return (
        '<table class="elf-counts"><caption>Preferred in this session, by setting</caption>'
        "<thead><tr><th scope=col>Setting</th><th scope=col>Preferred</th>"
        "<th scope=col>of these, blind</th><th scope=col>Comparisons</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def progress_html(run: CompareRun) -> str:
    """How far all the answers are."""
    answers = run.comparison.answers
    states = [a.state for a in answers]
    ready, failed = states.count("ready"), states.count("failed")
    told = f"{ready} of {len(states)} answers ready{f', {failed} failed' if failed else ''}"
    if run.over:
        if "stopped" in states:
            return status_html(f"Stopped: {told}.", kind="idle")
        return status_html(f"Done: {told}.", kind="bad" if failed == len(states) else "good")
    made, total, left = run.progress()
    now = next((i for i, a in enumerate(answers) if a.state == "running"), None)
    place = f", now answer {letter(now)}" if now is not None else ", waiting"
    eta = f", about {left:.0f} s left" if left >= 1.5 else ""
    return status_html(f"{told}{place}{eta}", made, total, "busy")


TABLE_JS = """
const copy = async (button) => {
  const raw = button.closest(".elf-answer").querySelectorAll(".elf-raw")[+button.dataset.candidate];
  try {
    await navigator.clipboard.writeText(raw.textContent);
    button.textContent = "Copied";
  } catch { button.textContent = "Not copied: the browser forbids it"; }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
};
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  const { act, answer, candidate } = button.dataset;
  if (act === "copy") copy(button);
  else trigger("click", { act, answer: +answer, candidate: +candidate });
});
"""
