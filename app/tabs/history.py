"""Past results: found, read, compared, marked, made again, and the way back into their tabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from app.records import Filter, Generation, StoredStep
from app.store import Store
from app.tabs import history_files, history_view
from app.tabs.common import HIDDEN, LATEST, Page, guarded
from app.tabs.history_actions import Actions, restore
from app.tabs.history_files import Files
from app.tabs.history_view import COLUMNS, WHEN, Restorable, account, chain, days_of, today

ROWS = 100
ALL = "all"


class HistoryTab:
    """Builds the tab. Rows are found by the id they show, so sorting cannot mislead.

    `editors` maps the name of an editor to the tab that takes its results back (`Restorable`); one
    tab may stand for several.
    """

    def __init__(self, page: Page, store: Store, editors: Mapping[str, Restorable]) -> None:
        self.page, self.store, self.editors = page, store, editors
        with gr.Tab("History", id="history") as self.tab, gr.Row(elem_classes="elf-columns"):
            with gr.Column(scale=7, min_width=320):
                self._build_search()
                self._build_list()
                self.files = Files()
            with gr.Column(scale=5, min_width=320):
                self._build_detail()
        self._wire_list()
        self._wire_detail()
        self._wire_files()

    # --- what is there ------------------------------------------------------------------------

    def _build_search(self) -> None:
        with gr.Row(elem_classes="elf-row"):
            self.text = gr.Textbox(
                "",
                label="Search",
                placeholder='words in the input or the result, "in this order"',
                max_lines=1,
                scale=5,
                min_width=200,
                elem_id="history-search",
            )
            self.when = gr.Dropdown(
                list(WHEN),
                value=WHEN[0],
                label="When",
                filterable=False,
                scale=2,
                min_width=120,
                elem_id="history-when",
            )
            self.find = gr.Button("Find", size="sm", scale=1, min_width=80, elem_id="history-find")
        with gr.Accordion("Filters", open=False, elem_id="history-filters"):
            with gr.Row(elem_classes="elf-row"):
                self.editor = _choice("Editor", "history-editor", [*self.editors])
                self.model = _choice("Model", "history-model")
                self.tag = _choice("Tag", "history-tag")
            with gr.Row(elem_classes="elf-row"):
                self.since = _day("From (UTC)", "history-since")
                self.until = _day("Until (UTC)", "history-until")
            with gr.Row(elem_classes="elf-row"):
                self.starred = gr.Checkbox(label="Starred", elem_id="history-starred")
                self.preferred = gr.Checkbox(label="Preferred", elem_id="history-preferred")
                self.deleted = gr.Checkbox(label="Deleted ones", elem_id="history-deleted")

    def _build_list(self) -> None:
        with gr.Row(elem_classes="elf-row"):
            self.refresh = gr.Button("Newest", size="sm", min_width=80, elem_id="history-newest")
            self.older = gr.Button("Older", size="sm", min_width=80, elem_id="history-older")
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
            column_widths=["35%", "9%", "13%", "11%", "22%", "10%"],
        )

    def _build_detail(self) -> None:
        with gr.Row(elem_classes="elf-row"):
            self.id = gr.Textbox(
                "",
                label="Id",
                placeholder="click a row, or type the start of an id",
                max_lines=1,
                scale=4,
                min_width=200,
                elem_id="history-id",
            )
            self.show = gr.Button("Show", size="sm", scale=1, min_width=80, elem_id="history-show")
        self.input = _text("Input", "history-input", 3, 12)
        self.output = _text("Result", "history-output", 5, 20)
        self.step = gr.Slider(
            1,
            2,
            1,
            step=1,
            label="Step: the text out of the noise",
            visible=False,
            elem_id="history-step",
        )
        self.actions = Actions(self.page, self.store)
        self.chain = gr.Radio(
            [],
            label="Edited from, first one first; choose one to see it",
            visible=False,
            elem_id="history-lineage",
        )
        self.detail = _text("All that makes it again", "history-detail", 8, 24, "elf-mono")

    # --- what it does -------------------------------------------------------------------------

    def _wire_list(self) -> None:
        filters = [self.text, self.editor, self.model, self.tag, self.since, self.until]
        filters += [self.starred, self.preferred, self.deleted]
        self.filters = filters
        rows = [self.table, self.last]
        gr.on(
            [
                *(trigger.submit for trigger in (self.text, self.since, self.until)),
                *(box.input for box in (self.editor, self.model, self.tag)),
                *(box.input for box in (self.starred, self.preferred, self.deleted)),
                self.find.click,
                self.refresh.click,
            ],
            self._newest,
            filters,
            rows,
            **LATEST,
        )
        days = [self.since, self.until]
        self.when.input(lambda when: days_of(when, today()), self.when, days, **LATEST).then(
            self._newest, filters, rows, **LATEST
        )
        chosen = [self.model, self.tag]
        gr.on([self.tab.select, self.refresh.click], self._choices, None, chosen, **LATEST)
        self.tab.select(self._newest, filters, rows, **LATEST)
        self.older.click(self._older, [*filters, self.last], rows, **HIDDEN)

    def _wire_detail(self) -> None:
        actions = self.actions
        shown = [self.id, self.input, self.output, self.detail, self.step, self.chain]
        shown += actions.shown()
        # Not LATEST: Gradio would answer the later click with the row of the earlier one.
        self.table.select(self._select, None, shown, trigger_mode="multiple", **HIDDEN)
        gr.on([self.show.click, self.id.submit], self._show, self.id, shown, **LATEST)
        self.chain.input(self._show, self.chain, shown, **LATEST)
        self.step.input(self._at_step, [self.id, self.step], self.output, **LATEST)
        targets = [w for tab in self.editors.values() for w in tab.restorable()]
        places = [*dict.fromkeys([self.page.tabs, self.page.model, self.page.backend, *targets])]
        for button, remix in ((actions.restore, False), (actions.remix, True)):
            button.click(self._restorer(remix), self.id, places, **HIDDEN)
        for done in actions.wire(self.id):
            done.then(self._show, self.id, shown, **LATEST)
            done.then(self._newest, self.filters, [self.table, self.last], **LATEST)
            done.then(self._choices, None, [self.model, self.tag], **LATEST)

    def _wire_files(self) -> None:
        files = self.files
        files.export.click(
            self._export, [files.kind, *self.filters], [files.text, files.said], **HIDDEN
        ).then(None, files.text, files.text, js=history_files.SAVE_JS, **HIDDEN)
        files.upload.upload(self._import, files.upload, files.said, **HIDDEN).then(
            self._newest, self.filters, [self.table, self.last], **LATEST
        )

    def _newest(self, request: gr.Request, *given: Any) -> tuple[Any, Any]:
        return self._rows(given, None, request)

    def _older(self, request: gr.Request, *given: Any) -> tuple[Any, Any]:
        return self._rows(given[:-1], given[-1], request)

    def _rows(
        self, given: Sequence[Any], before: str | None, request: gr.Request
    ) -> tuple[Any, Any]:
        store = self.store.of(account(request))
        found: Sequence[Generation] | None = guarded(
            lambda: store.list(ROWS, before=before, wanted=_filter(given)), None
        )
        if found is None or (before is not None and not found):
            if found is not None:
                gr.Info("There is nothing older.", duration=4)
            return gr.skip(), gr.skip()
        return [history_view.row(g) for g in found], found[-1].id if found else None

    def _choices(self, request: gr.Request) -> Any:
        store = self.store.of(account(request))
        models: Sequence[str] = guarded(store.models, [])
        tags: Mapping[str, int] = guarded(store.tags, {})
        named = [(f"{tag} ({number})", tag) for tag, number in tags.items()]
        return gr.update(choices=[ALL, *models]), gr.update(choices=[(ALL, ALL), *named])

    def _select(self, event: gr.SelectData, request: gr.Request) -> Any:
        row = event.row_value or []
        return self._show(str(row[-1]) if row else "", request)

    def _show(self, id: str, request: gr.Request) -> Any:
        store = self.store.of(account(request))
        found: Generation | None = guarded(lambda: store.get(id or ""), None)
        if found is None:
            return [gr.skip()] * (6 + len(self.actions.shown()))
        steps: Sequence[StoredStep] = guarded(lambda: store.steps(found.id), [])
        last = len(steps)
        scrub = gr.update(visible=last > 1, maximum=max(last, 2), value=max(last, 1))
        family = guarded(lambda: (store.ancestors(found.id), store.children(found.id)), ((), ()))
        texts = (found.id, found.input, found.output, history_view.detail(found))
        return [*texts, scrub, chain(found, *family), *self.actions.show(found)]

    def _at_step(self, id: str, step: float, request: gr.Request) -> Any:
        store = self.store.of(account(request))
        steps: Sequence[StoredStep] = guarded(lambda: store.steps(id), [])
        return steps[int(step) - 1].text if 1 <= step <= len(steps) else gr.skip()

    def _restorer(self, remix: bool) -> Any:
        def handle(id: str, request: gr.Request) -> dict[Any, Any]:
            store = self.store.of(account(request))
            found: Generation | None = guarded(lambda: store.get(id), None)
            if found is None:
                return {self.page.tabs: gr.skip()}
            return restore(self.page, self.editors, found, remix)

        return handle

    def _export(self, request: gr.Request, kind: str, *given: Any) -> tuple[Any, Any]:
        store = self.store.of(account(request))
        return guarded(
            lambda: history_files.exported(store, _filter(given), kind), (gr.skip(), gr.skip())
        )

    def _import(self, data: bytes | None, request: gr.Request) -> Any:
        store = self.store.of(account(request))
        return guarded(lambda: history_files.imported(store, data), gr.skip())


def _filter(given: Sequence[Any]) -> Filter:
    text, editor, model, tag, since, until, starred, preferred, deleted = given
    editor, model, tag = ("" if name in (None, ALL) else name for name in (editor, model, tag))
    return Filter(
        text=text or "",
        editor=editor,
        model=model,
        tag=tag,
        since=since or "",
        until=until or "",
        starred=bool(starred),
        preferred=bool(preferred),
        deleted=bool(deleted),
    )


def _choice(label: str, elem_id: str, choices: Sequence[str] = ()) -> gr.Dropdown:
    return gr.Dropdown(
        [ALL, *choices], value=ALL, label=label, min_width=140, filterable=False, elem_id=elem_id
    )


def _day(label: str, elem_id: str) -> gr.Textbox:
    return gr.Textbox(
        "", label=label, placeholder="2026-11-30", max_lines=1, min_width=140, elem_id=elem_id
    )


def _text(label: str, elem_id: str, lines: int, most: int, *classes: str) -> gr.Textbox:
    return gr.Textbox(
        "",
        label=label,
        lines=lines,
        max_lines=most,
        interactive=False,
        buttons=["copy"],
        elem_id=elem_id,
        elem_classes=["elf-plain", *classes],
    )
