"""Past results: a list, one of them in full, and the way back into its editor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gradio as gr

from app.records import Generation, StoredStep
from app.store import Store
from app.tabs.common import HIDDEN, Page, guarded, warn
from editors.request import EditRequest

COLUMNS = ["Text", "Editor", "Model", "Seed", "Time (UTC)", "Id"]
ROWS = 100
ALL = "all editors"


class Restores(Protocol):
    """A tab that can take a stored result back."""

    def restore(self, found: Generation) -> dict[Any, Any]: ...

    def restorable(self) -> list[Any]: ...


class HistoryTab:
    """Builds the tab. Rows are found by the id they show, so sorting cannot mislead."""

    def __init__(self, page: Page, store: Store, editors: Mapping[str, Restores]) -> None:
        self.page, self.store, self.editors = page, store, editors
        with gr.Tab("History", id="history") as self.tab, gr.Row(elem_classes="elf-columns"):
            with gr.Column(scale=7, min_width=340):
                self._build_list()
            with gr.Column(scale=5, min_width=340):
                self._build_detail()
        self._wire()

    def _build_list(self) -> None:
        with gr.Row(elem_classes="elf-row"):
            self.editor = gr.Dropdown(
                [ALL, *self.editors], value=ALL, label="Show", scale=2, filterable=False
            )
            self.refresh = gr.Button("Newest", size="sm", scale=1, min_width=80)
            self.older = gr.Button("Older", size="sm", scale=1, min_width=80)
        self.last = gr.State(None)
        self.table = gr.Dataframe(
            [],
            headers=COLUMNS,
            datatype="str",
            type="array",
            interactive=False,
            max_height=560,
            column_count=len(COLUMNS),
            label="Results, newest first; click one to see all of it",
            show_label=True,
            elem_id="history-table",
            buttons=[],
            max_chars=90,
            column_widths=["34%", "9%", "11%", "13%", "17%", "16%"],
        )

    def _build_detail(self) -> None:
        with gr.Row(elem_classes="elf-row"):
            self.id = gr.Textbox(
                "",
                label="Id",
                placeholder="click a row, or type the start of an id",
                max_lines=1,
                scale=4,
                elem_id="history-id",
            )
            self.show = gr.Button("Show", size="sm", scale=1, min_width=80)
        self.input = gr.Textbox(
            "",
            label="Input",
            lines=3,
            max_lines=12,
            interactive=False,
            buttons=["copy"],
            elem_id="history-input",
            elem_classes="elf-plain",
        )
        self.output = gr.Textbox(
            "",
            label="Result",
            lines=5,
            max_lines=20,
            interactive=False,
            buttons=["copy"],
            elem_id="history-output",
            elem_classes="elf-plain",
        )
        self.step = gr.Slider(
            1,
            2,
            1,
            step=1,
            label="Step: the text out of the noise",
            visible=False,
            elem_id="history-step",
        )
        self.restore = gr.Button(
            "Restore settings", variant="primary", interactive=False, elem_id="history-restore"
        )
        self.detail = gr.Textbox(
            "",
            label="All that makes it again",
            lines=8,
            max_lines=24,
            interactive=False,
            buttons=["copy"],
            elem_id="history-detail",
            elem_classes=["elf-mono", "elf-plain"],
        )

    def _wire(self) -> None:
        rows = [self.table, self.last]
        for trigger in (self.tab.select, self.refresh.click, self.editor.input):
            trigger(self._rows, self.editor, rows, **HIDDEN)
        self.older.click(self._rows, [self.editor, self.last], rows, **HIDDEN)
        shown = [self.id, self.input, self.output, self.detail, self.restore, self.step]
        self.table.select(self._select, None, shown, **HIDDEN)
        gr.on([self.show.click, self.id.submit], self._show, self.id, shown, **HIDDEN)
        self.step.input(self._at_step, [self.id, self.step], self.output, **HIDDEN)
        targets = [w for tab in self.editors.values() for w in tab.restorable()]
        self.restore.click(
            self._restore,
            self.id,
            [self.page.tabs, self.page.model, self.page.backend, *targets],
            **HIDDEN,
        )

    def _rows(self, editor: str, before: str | None = None) -> tuple[Any, Any]:
        chosen = None if editor == ALL else editor
        found: Sequence[Generation] | None = guarded(
            lambda: self.store.list(ROWS, before=before, editor=chosen), None
        )
        if found is None or (before is not None and not found):
            if found is not None:
                gr.Info("There is nothing older.", duration=4)
            return gr.skip(), gr.skip()
        return [_row(g) for g in found], found[-1].id if found else None

    def _select(self, event: gr.SelectData) -> Any:
        row = event.row_value or []
        return self._show(str(row[-1]) if row else "")

    def _show(self, id: str) -> Any:
        found: Generation | None = guarded(lambda: self.store.get(id), None)
        if found is None:
            return [gr.skip()] * 6
        steps: Sequence[StoredStep] = guarded(lambda: self.store.steps(found.id), [])
        last = len(steps)
        scrub = gr.update(visible=last > 1, maximum=max(last, 2), value=max(last, 1))
        button = gr.update(interactive=True)
        return found.id, found.input, found.output, _detail(found), button, scrub

    def _at_step(self, id: str, step: float) -> Any:
        steps: Sequence[StoredStep] = guarded(lambda: self.store.steps(id), [])
        return steps[int(step) - 1].text if 1 <= step <= len(steps) else gr.skip()

    def _restore(self, id: str) -> dict[Any, Any]:
        found: Generation | None = guarded(lambda: self.store.get(id), None)
        if found is None:
            return {self.page.tabs: gr.skip()}
        if found.editor not in self.editors:
            warn(f"the page has no tab for '{found.editor}'; use: elf {found.editor}")
            return {self.page.tabs: gr.skip()}
        if beyond := _beyond_the_page(found.request):
            warn(f"made with {', '.join(beyond)}, which this page has no knob for")
        updates = self.editors[found.editor].restore(found)
        updates[self.page.tabs] = gr.update(selected=found.editor)
        updates[self.page.backend] = found.backend
        choice = self.page.service.choice_for(found.model)
        if choice is not None:
            models = self.page.service.models()
            updates[self.page.model] = gr.update(value=choice, choices=models)
        else:
            warn(f"model '{found.model}' is not installed here; the chosen model is kept")
        return updates


ON_THE_PAGE = {"editor", "text", "count", "first", "length", "settings", "texts_every_step"}
ON_THE_PAGE |= {"rank"}
ON_THE_PAGE |= {"quality"}  # already in the settings that were used


def _beyond_the_page(request: EditRequest) -> list[str]:
    """Fields of the request that restoring leaves behind."""
    plain = EditRequest(request.editor)
    names = [f.name for f in dataclasses.fields(request) if f.name not in ON_THE_PAGE]
    return [name for name in names if getattr(request, name) != getattr(plain, name)]


def _row(g: Generation) -> list[str]:
    start = " ".join(g.output.split())
    start = start if len(start) <= 100 else start[:99] + "…"
    when = g.created_utc[:16].replace("T", " ")
    return [start, g.editor, g.model, str(g.seed), when, g.id]


def _detail(g: Generation) -> str:
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
