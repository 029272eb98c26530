"""Compare: one text, up to four models or settings beside each other, or a grid over two knobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import gradio as gr

from app.comparison import (
    MOST_COLUMNS,
    MOST_ROWS,
    CompareRun,
    Comparison,
    columns_of,
    grid_of,
    place_of,
    stage,
)
from app.comparison_export import FORMATS, Record, counts_records, records
from app.comparison_tally import Tally
from app.tabs.common import HIDDEN, LATEST, Page, guarded, page_id, status_html, warn
from app.tabs.compare_html import (
    NO_BASE,
    TABLE_JS,
    base_choices,
    comparison_html,
    counts_html,
    progress_html,
)
from app.tabs.compare_knobs import (
    GRID_KNOBS,
    OWN,
    QUALITY,
    ColumnKnobs,
    build_column,
    wire_column,
)
from app.tabs.download import download, made
from app.tabs.history_view import account
from app.tabs.knobs import seed_of, whole
from app.tabs.pairs import Target, handed, handed_to
from editors.request import EditRequest
from elf_engine.errors import ElfError

EDITORS = ("translate", "summarise", "modernise", "draft", "infill", "rewrite")
COLUMNS, GRID = "Columns", "Grid over two knobs"
MOST_EACH = 4
NAME = "compare"
# The answers come below the columns' settings, out of sight on most screens.
SHOW_ANSWERS = """
() => { document.getElementById("compare-status")?.scrollIntoView({ block: "start" }); }
"""
_HELP = {
    "draft": "The text is continued; it may be empty.",
    "infill": "Mark each gap with [[2-6]] (2 to 6 tokens), [[4]] or [[]].",
    "rewrite": "Every sentence is said anew.",
    "translate": "German text.",
}


class Prefers(Protocol):
    """Where a preference is kept: `app.store.Store`."""

    def of(self, owner: str | None) -> Prefers: ...

    def prefer(self, id: str, on: bool = True) -> None: ...


@dataclass(eq=False)
class Session:
    """What one page has compared. Shared by its events, so each shows what the others did."""

    tally: Tally = field(default_factory=Tally)
    number: int = 0
    comparison: Comparison | None = None
    base: str = NO_BASE

    def table(self) -> str:
        return comparison_html(self.comparison, self.base) if self.comparison else ""

    def counts(self) -> str:
        hidden = self.comparison is not None and self.comparison.hidden
        return counts_html(self.tally.counts(self.number if hidden else None))


class CompareTab:
    """Builds the tab and answers its events."""

    def __init__(self, page: Page, store: Prefers, write: Target) -> None:
        self.page, self.store, self.write = page, store, write
        with gr.Tab("Compare", id=NAME) as self.tab:
            self._build_input()
            self._build_columns()
            self._build_grid()
            self._build_answers()
        self._wire()

    def _build_input(self) -> None:
        with gr.Row(elem_classes="elf-columns"):
            with gr.Column(scale=6, min_width=320):
                self.text = gr.Textbox(
                    label="Text",
                    info=_HELP["translate"],
                    lines=5,
                    max_lines=24,
                    elem_id="compare-text",
                )
                with gr.Row():
                    self.run = gr.Button(
                        "Compare", variant="primary", elem_id="compare-run", min_width=120
                    )
                    self.stop = gr.Button(
                        "Stop",
                        variant="stop",
                        interactive=False,
                        elem_id="compare-stop",
                        min_width=120,
                    )
            with gr.Column(scale=4, min_width=320):
                with gr.Row():
                    self.editor = gr.Dropdown(
                        [(name.title(), name) for name in EDITORS],
                        value=EDITORS[0],
                        label="Editor",
                        min_width=130,
                        filterable=False,
                        elem_id="compare-editor",
                    )
                    self.seed = gr.Textbox(
                        "",
                        label="Seed for all",
                        placeholder="empty: a new one",
                        max_lines=1,
                        min_width=130,
                        elem_id="compare-seed",
                    )
                self.layout = gr.Radio(
                    [COLUMNS, GRID], value=COLUMNS, label="Layout", elem_id="compare-layout"
                )
                with gr.Row():
                    self.wide = gr.Slider(
                        1, MOST_COLUMNS, MOST_COLUMNS, step=1, label="Columns", min_width=150
                    )
                    self.each = gr.Slider(
                        1, MOST_EACH, 1, step=1, label="Candidates each", min_width=150
                    )
                self.blind = gr.Checkbox(
                    False,
                    label="Blind: shuffle the answers and hide which is which until you reveal it",
                    elem_id="compare-blind",
                )

    def _build_columns(self) -> None:
        with gr.Row(elem_classes="elf-side"):
            self.columns: list[ColumnKnobs] = [
                build_column(self.page, i) for i in range(MOST_COLUMNS)
            ]

    def _build_grid(self) -> None:
        with gr.Row(visible=False) as self.grid:
            gr.HTML("<p>Column A's settings, and in each cell one value of each of these:</p>")
            self.down = gr.Dropdown(GRID_KNOBS, value="steps", label="Rows vary")
            self.down_values = gr.Textbox(
                "8, 32",
                label="Values of the rows",
                info=f"1 to {MOST_ROWS}, with commas",
                elem_id="compare-down",
            )
            self.across = gr.Dropdown(GRID_KNOBS, value="gamma", label="Columns vary")
            self.across_values = gr.Textbox(
                "0, 1",
                label="Values of the columns",
                info=f"1 to {MOST_COLUMNS}, with commas",
                elem_id="compare-across",
            )

    def _build_answers(self) -> None:
        self.session = gr.State(None)
        idle = status_html("Answers appear here, side by side.", kind="idle")
        self.status = gr.HTML(idle, elem_id="compare-status")
        with gr.Row(elem_classes="elf-row"):
            self.base = gr.Dropdown(
                base_choices(None),
                value=NO_BASE,
                label="Mark word differences against",
                filterable=False,
                elem_id="compare-base",
            )
            self.reveal = gr.Button(
                "Reveal the names", size="sm", visible=False, elem_id="compare-reveal"
            )
            self.format = gr.Dropdown(
                list(FORMATS), value="CSV", label="File type", min_width=110, filterable=False
            )
            self.save = gr.Button(
                "Download answers", size="sm", elem_id="compare-save", min_width=120
            )
            self.save_counts = gr.Button(
                "Download counts", size="sm", elem_id="compare-save-counts", min_width=120
            )
        self.table = gr.HTML("", elem_id="compare-table", js_on_load=TABLE_JS)
        self.counts = gr.HTML("", elem_id="compare-counts")
        self.file = gr.JSON(visible=False)

    def _wire(self) -> None:
        shown = [self.table, self.counts, self.base, self.reveal, self.session]
        gr.on(
            [self.run.click, self.text.submit],
            self.answer,
            self._inputs(),
            [self.run, self.stop, self.status, *shown],
            trigger_mode="once",
            concurrency_limit=None,
            **HIDDEN,
        )
        self.stop.click(self._stop, None, self.stop, queue=False, concurrency_limit=None, **HIDDEN)
        self.run.click(None, None, None, js=SHOW_ANSWERS, **HIDDEN)
        self.base.input(self._rebase, [self.session, self.base], self.table, **LATEST)
        self.reveal.click(
            self._reveal, self.session, [self.table, self.counts, self.reveal], **HIDDEN
        )
        targets = handed_to(self.page, self.write)
        self.table.click(self._act, self.session, [self.table, self.counts, *targets], **HIDDEN)
        for button, make in ((self.save, self._answers), (self.save_counts, self._counts)):
            download(button, make, [self.session, self.format], self.file)
        boxes = [self.grid, self.wide, *(c.box for c in self.columns)]
        gr.on(
            [self.layout.input, self.wide.input], self._lay_out, [self.layout, self.wide], boxes,
            **LATEST,
        )  # fmt: skip
        first = self.columns[0]
        self.layout.input(self._grid_base, self.layout, [first.how, first.quality], **HIDDEN)
        strengths = [c.strength for c in self.columns]
        self.editor.input(self._kind, self.editor, [self.text, *strengths], **HIDDEN)
        models = [c.model for c in self.columns]
        self.tab.select(
            lambda: [gr.update(choices=self.page.service.models())] * len(models),
            None,
            models,
            **HIDDEN,
        )
        for column in self.columns:
            wire_column(self.page, column, self.editor)

    def _inputs(self) -> set[Any]:
        own = {self.text, self.editor, self.seed, self.layout, self.wide, self.each, self.blind}
        own |= {self.down, self.down_values, self.across, self.across_values}
        return own.union(*(c.inputs() for c in self.columns)) | {self.session, self.base}

    def answer(self, values: dict[Any, Any], request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Run the comparison and show each answer when it is ready."""
        comparison: Comparison | None = guarded(lambda: self.read(values), None)
        if comparison is None:
            yield {self.status: status_html("Not started: see the message.", kind="bad")}
            return
        session = values[self.session] or Session()
        session.number += 1
        session.comparison = comparison
        choices = base_choices(comparison)
        session.base = values[self.base] if values[self.base] in choices else NO_BASE
        page = page_id(request)
        run = CompareRun(self.page.service, comparison, page)
        self.page.runs.start(page, NAME, run)
        try:
            run.start()
            yield {
                self.run: gr.update(interactive=False),
                self.stop: gr.update(value="Stop", interactive=True),
                self.status: progress_html(run),
                self.table: session.table(),
                self.counts: session.counts(),
                self.base: gr.update(choices=choices, value=session.base),
                self.reveal: gr.update(visible=comparison.blind),
                self.session: session,
            }
            before = stage(comparison)
            while not run.over:
                run.advance()
                updates: dict[Any, Any] = {self.status: progress_html(run)}
                if (now := stage(comparison)) != before:
                    before, updates[self.table] = now, session.table()
                yield updates
            yield {
                self.run: gr.update(interactive=True),
                self.stop: gr.update(value="Stop", interactive=False),
                self.status: progress_html(run),
                self.table: session.table(),
            }
        finally:
            self.page.runs.end(page, NAME, run)

    def read(self, values: Mapping[Any, Any]) -> Comparison:
        """The comparison the widgets say. Raises ElfError."""
        editor = values[self.editor]
        if editor not in EDITORS:
            raise ElfError(f"editor '{editor}' is unknown; choose one of {', '.join(EDITORS)}")
        text = (values[self.text] or "").replace("\r\n", "\n")
        if editor != "draft" and not text.strip():
            raise ElfError(f"there is no text to {editor}; give some")
        each = whole("candidates", values[self.each])
        if not 1 <= each <= MOST_EACH:
            raise ElfError(f"candidates {each} is outside 1 to {MOST_EACH}")
        request = EditRequest(editor, text, count=each, distinct=each > 1)
        seed, blind = seed_of(values[self.seed]), bool(values[self.blind])
        if values[self.layout] == GRID:
            base = self.columns[0].cell(values, editor, seed)
            down = (values[self.down], values[self.down_values] or "")
            across = (values[self.across], values[self.across_values] or "")
            return grid_of(request, base, down, across, blind=blind)
        wide = whole("columns", values[self.wide])
        cells = [c.cell(values, editor, seed) for c in self.columns[:wide]]
        return columns_of(request, cells, blind=blind)

    def _stop(self, request: gr.Request) -> Any:
        self.page.runs.stop(page_id(request), NAME)
        return gr.update(value="Stopping…", interactive=False)

    def _rebase(self, session: Session | None, base: str) -> Any:
        if session is None:
            return gr.skip()
        session.base = base
        return session.table()

    def _reveal(self, session: Session | None) -> Any:
        if session is None or session.comparison is None:
            return [gr.skip()] * 3
        session.comparison.revealed = True
        return session.table(), session.counts(), gr.update(visible=False)

    def _act(
        self, session: Session | None, event: gr.EventData, request: gr.Request
    ) -> dict[Any, Any]:
        """A button in the table. What the page sends is checked against what was shown."""
        data = event._data if isinstance(event._data, dict) else {}
        comparison = session.comparison if session else None
        if session is None or comparison is None:
            return {self.table: gr.skip()}
        place = place_of(comparison, data.get("answer"), data.get("candidate"))
        if place is None:
            return {self.table: gr.skip()}
        if data.get("act") == "use":
            answer, i = comparison.answers[place[0]], place[1]
            text, id = answer.results[i].text, answer.ids[i]
            return handed(self.page, self.write, "write", text, id)
        if data.get("act") == "prefer":
            self._prefer(session, comparison, place, self.store.of(account(request)))
        return {self.table: session.table(), self.counts: session.counts()}

    def _prefer(
        self, session: Session, comparison: Comparison, place: tuple[int, int], store: Prefers
    ) -> None:
        """Prefer a candidate, or take that back; the history keeps which it is."""
        before = comparison.preferred_id()
        again = comparison.preferred == place
        comparison.preferred = None if again else place
        comparison.unseen = comparison.hidden
        session.tally.vote(session.number, comparison)
        for id, on in ((before, False), (comparison.preferred_id(), True)):
            if id is not None:
                try:
                    store.prefer(id, on)
                except ElfError as error:
                    warn(f"The preference is not in the history: {error}")

    def _answers(self, session: Session | None, kind: str) -> dict[str, str] | None:
        def make() -> list[Record]:
            if session is None or session.comparison is None:
                raise ElfError("there is nothing to download yet; compare something first")
            return records(session.comparison)

        return made("comparison", kind, make)

    def _counts(self, session: Session | None, kind: str) -> dict[str, str] | None:
        def make() -> list[Record]:
            tally = session.tally if session else Tally()
            hidden = session is not None and session.comparison and session.comparison.hidden
            return counts_records(tally.counts(session.number if session and hidden else None))

        return made("preferences", kind, make)

    def _lay_out(self, layout: str, wide: float) -> list[Any]:
        grid = layout == GRID
        many = 1 if grid else int(wide)
        boxes = [gr.update(visible=i < many) for i in range(MOST_COLUMNS)]
        return [gr.update(visible=grid), gr.update(visible=not grid), *boxes]

    def _grid_base(self, layout: str) -> list[Any]:
        """A grid varies the model's own settings unless a person chooses others."""
        grid = layout == GRID
        return [gr.update(value=OWN if grid else QUALITY), gr.update(visible=not grid)]

    def _kind(self, editor: str) -> list[Any]:
        strengths = [gr.update(visible=editor == "rewrite")] * MOST_COLUMNS
        return [gr.update(info=_HELP.get(editor, "English text.")), *strengths]
