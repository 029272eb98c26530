"""What the History tab shows: rows, details, differences and verdicts. No widgets."""

from __future__ import annotations

import dataclasses
import datetime
import html
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import gradio as gr

from app.records import Generation
from app.tabs.diff import diff_html
from app.verify import Verdict
from editors.request import EditRequest

COLUMNS = ["Text", "Marks", "Editor", "Model", "Time (UTC)", "Id"]
WHEN = ("any time", "today", "yesterday", "last 7 days")
ON_THE_PAGE = {"editor", "text", "count", "first", "length", "settings", "texts_every_step"}
ON_THE_PAGE |= {"quality"}  # already in the settings that were used


class Restorable(Protocol):
    """A tab that takes a stored result back.

    `restore` gives updates of widgets among `restorable()`; it may put the page's tabs among them,
    else the tab whose id is the editor's name is opened. A tab that has knobs for more fields of
    EditRequest than ON_THE_PAGE names them in an attribute `restores`.
    """

    def restore(self, found: Generation) -> dict[Any, Any]: ...

    def restorable(self) -> list[Any]: ...


def account(request: gr.Request) -> str:
    """Whose history it is: the account's name, "" where there are no accounts."""
    return str(getattr(request, "username", None) or "")


def today() -> datetime.date:
    """In UTC, as the times of the history are."""
    return datetime.datetime.now(datetime.UTC).date()


def days_of(when: str, now: datetime.date) -> tuple[str, str]:
    """First and last day of a choice of WHEN, "" without a limit."""
    back = {"today": (0, 0), "yesterday": (1, 1), "last 7 days": (6, 0)}.get(when)
    if back is None:
        return "", ""
    first, last = (now - datetime.timedelta(days=days) for days in back)
    return first.isoformat(), last.isoformat()


def row(g: Generation) -> list[str]:
    """A result as cells under COLUMNS; the id comes last."""
    when = g.created_utc[:16].replace("T", " ")
    marks = ["★"] * g.starred + ["✓"] * g.preferred + [f"#{tag}" for tag in g.tags]
    return [start(g.output, 100), " ".join(marks), g.editor, g.model, when, g.id]


def start(text: str, most: int) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: 8 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def chain(found: Generation, above: Sequence[Generation], below: Sequence[Generation]) -> Any:
    """The radio buttons of what the result was edited from and what was edited from it."""
    line = [
        *((f"{i}. {start(g.output, 60) or '(empty)'}", g.id) for i, g in enumerate(above, 1)),
        (f"{len(above) + 1}. {start(found.output, 60) or '(empty)'} (this one)", found.id),
        *((f"edited from this: {start(g.output, 60) or '(empty)'}", g.id) for g in below),
    ]
    return gr.update(choices=line, value=found.id, visible=len(line) > 1)


def differences(before: Generation, after: Generation) -> str:
    """Two results as one text, and the settings in which they differ; escaped."""
    named = html.escape(f"From {before.id} to {after.id}")
    if before.output == after.output:
        words = "<p>The texts are the same.</p>"
    else:
        words = f'<div class="elf-diff">{diff_html(before.output, after.output)}</div>'
    old, new = _facts(before), _facts(after)
    lines = [
        f"{name.replace('_', ' ')}: {old.get(name, '—')} → {new.get(name, '—')}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    shown = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f'<section class="elf-compared"><h3>{named}</h3>{words}<ul>{shown}</ul></section>'


def verdict_html(found: Generation, verdict: Verdict, text: str) -> str:
    """Whether the result could be made again, in words; escaped."""
    if verdict.identical:
        words = f"Identical: made again on {found.backend}, every character is the same."
        return f'<div class="elf-status good" role="status"><span>{html.escape(words)}</span></div>'
    words = "Different: the text did not come out the same again."
    changed = f"<p>{html.escape(verdict.changed)}</p>" if verdict.changed else ""
    diff = f'<div class="elf-diff">{diff_html(found.output, text)}</div>'
    return (
        f'<div class="elf-status bad" role="status"><span>{html.escape(words)}</span></div>'
        f"{changed}{diff}"
    )


def beyond_the_page(request: EditRequest, known: Collection[str] = ON_THE_PAGE) -> list[str]:
    """Fields of the request that restoring leaves behind."""
    plain = EditRequest(request.editor)
    names = [f.name for f in dataclasses.fields(request) if f.name not in known]
    return [name for name in names if getattr(request, name) != getattr(plain, name)]


def detail(g: Generation) -> str:
    """Everything but the texts, as JSON."""
    return json.dumps(
        {
            "id": g.id,
            "edited from": g.parent_id,
            "time": g.created_utc,
            "editor": g.editor,
            "model": g.model,
            "model_hash": g.model_hash,
            "backend": g.backend,
            "seed": g.seed,
            "sample": g.sample_index,
            "candidates asked for": g.request.count,
            "length asked for": g.request.length,
            "settings": g.settings,
            "seconds": round(g.seconds, 3),
            "warnings": list(g.warnings),
            "versions": g.versions,
        },
        indent=2,
        ensure_ascii=False,
    )


def _facts(g: Generation) -> Mapping[str, Any]:
    made: dict[str, Any] = {"editor": g.editor, "model": g.model, "model hash": g.model_hash[:12]}
    made |= {"backend": g.backend, "seed": g.seed, "sample": g.sample_index}
    return made | {name: value for name, value in g.settings.items() if name != "seed"}
