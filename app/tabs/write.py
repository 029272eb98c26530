"""The Write tab: one document, words selected in it, candidates beside it.

The document belongs to the page in the browser (`write.js`), which sends it with its selection at
every click and puts in what is accepted. Here it is checked, run and shown.
"""

from __future__ import annotations

import html
import json
import queue
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from app import service as events
from app.about import Shelf
from app.model_facts import check_task
from app.records import Generation
from app.store import Store
from app.tabs.common import HIDDEN, LATEST, Page, guarded, page_id, status_html
from app.tabs.dials import AUTO, EXACT, RANGE, build_dials, shown, spec_of, wishes_of, with_seed
from app.tabs.history_view import ON_THE_PAGE
from app.tabs.knobs import MOST_CANDIDATES
from app.tabs.presets import Presets
from app.tabs.view import drain
from app.tabs.write_ask import Task, read_ask, task_of
from app.tabs.write_view import WritePanel, WriteView
from elf_engine.errors import ElfError

NAME = "write"
SCRIPT = Path(__file__).with_name("write.js")
TASKS = {"infill": "infill", "rewrite": "infill", "draft": "draft"}
ACTS = (("infill", "Infill"), ("rewrite", "Rewrite"), ("draft", "Continue"))
TOOLS = """
<div id="write-tools" role="toolbar" aria-label="Document">
  <button type="button" class="elf-btn" data-do="undo" disabled>↶ Undo</button>
  <button type="button" class="elf-btn" data-do="redo" disabled>↷ Redo</button>
  <button type="button" class="elf-btn" data-do="copy">Copy</button>
  <span id="write-words">0 words</span>
</div>
"""
BELOW = '<div id="write-hint"></div><div id="write-said" role="status"></div>'
KEYS = (
    ("Ctrl+Enter", "Infill the selection; with none, continue"),
    ("Ctrl+Shift+Enter", "Rewrite the selection, or the sentence at the cursor"),
    ("Esc", "Stop"),
    ("Alt+N, Alt+P", "Next, previous candidate"),
    ("Alt+Enter", "Accept the candidate"),
    ("Alt+X", "Discard it"),
    ("Alt+Z, Alt+Y", "Undo, redo what was accepted"),
    ("Ctrl+Z", "The browser's own undo, letter by letter"),
)
SHORTCUTS = (
    '<details id="write-keys"><summary>Keyboard shortcuts</summary><dl>'
    + "".join(f"<dt><kbd>{keys}</kbd></dt><dd>{does}</dd>" for keys, does in KEYS)
    + "</dl><p>On a Mac: ⌘ for Ctrl, Control+Option for Alt.</p></details>"
)


class WriteTab:
    """Builds the tab and answers its events."""

    # What `restore` puts back beyond the fields that every tab has.
    restores = ON_THE_PAGE | {"spans", "locks", "strength", "least", "unit", "distinct", "rank"}

    def __init__(self, page: Page, store: Store, shelf: Shelf) -> None:
        self.page, self.shelf = page, shelf
        with gr.Tab("Write", id=NAME, elem_id="write-tab"), gr.Row(elem_classes="elf-write"):
            with gr.Column(elem_classes="elf-area-text"):
                self._build_text()
            with gr.Column(elem_classes="elf-area-cards"):
                self._build_cards()
            with gr.Column(elem_classes="elf-area-knobs"):
                self.dials = build_dials(shelf, page.model)
                with gr.Accordion("Presets", open=False, elem_id="write-presets"):
                    self.presets = Presets(store, NAME, self.dials.kept())
                gr.HTML(SHORTCUTS)
        self._wire()

    def _build_text(self) -> None:
        gr.HTML(TOOLS)
        self.text = gr.Textbox(
            "",
            label="Your text",
            placeholder="Write here, or press Continue and see what comes…",
            lines=10,
            max_lines=10,
            elem_id="write-text",
            autofocus=True,
        )
        self.tokens = gr.HTML("", elem_id="write-tokens")
        with gr.Row(elem_id="write-acts"):
            self.acts = {
                act: gr.Button(label, variant="primary", elem_id=f"write-{act}", min_width=90)
                for act, label in ACTS
            }
            self.stop = gr.Button(
                "Stop", variant="stop", interactive=False, elem_id="write-stop", min_width=80
            )
        gr.HTML(BELOW)
        self.ask = gr.Textbox("", visible="hidden", elem_id="write-ask")
        self.inbox = gr.Textbox("", visible="hidden", elem_id="write-inbox")
        self.tick = gr.Button("Count", visible="hidden", elem_id="write-tick")

    def _build_cards(self) -> None:
        said = "Select words and press Infill or Rewrite; candidates appear here."
        self.status = gr.HTML(status_html(said, kind="idle"), elem_id="write-status")
        self.cards = gr.HTML("", elem_id="write-cards")

    def _wire(self) -> None:
        held = self.dials.widgets()
        inputs = [self.ask, self.page.model, self.page.backend, *held.values()]
        d = self.dials
        self.panel = WritePanel(self.acts, self.stop, self.status, self.cards, d.seed, d.drawn)
        for act, button in self.acts.items():
            button.click(
                self._answer,
                inputs,
                self.panel.outputs(),
                js=f"(_, ...rest) => [window.elfWrite.ask('{act}'), ...rest]",
                trigger_mode="once",
                concurrency_limit=None,
                **HIDDEN,
            )
        self.stop.click(self._stop, None, self.stop, queue=False, concurrency_limit=None, **HIDDEN)
        self.inbox.change(None, self.inbox, None, js="(raw) => window.elfWrite.receive(raw)")
        self.tick.click(
            self._count,
            [self.ask, self.page.model],
            self.tokens,
            js="(_, model) => [window.elfWrite.text(), model]",
            queue=False,
            **LATEST,
        )

    def opened(self, blocks: gr.Blocks) -> None:
        """What is done when a page is opened: the script, and this person's presets."""
        blocks.load(None, None, None, js=SCRIPT.read_text("utf-8"))
        blocks.load(self.presets.names, None, self.presets.chosen, **HIDDEN)

    def _answer(self, request: gr.Request, *given: Any) -> Iterator[dict[Any, Any]]:
        sent: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        raw, model, backend, *knobs = given
        values = dict(zip(self.dials.widgets(), knobs, strict=True))
        started = guarded(
            lambda: self._submit(raw, model, backend, values, sent, page_id(request)), None
        )
        if started is None:
            yield {self.status: status_html("Not started: see the message.", kind="bad")}
            return
        job, task, run = started
        page = page_id(request)
        self.page.runs.start(page, NAME, job)
        view = WriteView(self.panel, task, run, self.shelf.about(model).tokenizer.encode)
        try:
            yield view.begin()
            while not view.done:
                if updates := view.show(drain(sent)):
                    yield updates
        finally:
            self.page.runs.end(page, NAME, job)

    def _submit(
        self,
        raw: str,
        model: str,
        backend: str,
        values: Mapping[str, Any],
        sent: queue.SimpleQueue[events.Event],
        owner: str,
    ) -> tuple[events.Job, Task, str]:
        ask = read_ask(raw)
        check_task(self.page.service, model, TASKS[ask.act])
        about = self.shelf.about(model)
        spec = with_seed(values, spec_of(values, about, ask.act))
        wishes = wishes_of(values)
        if about.source(ask.act) != "measured":  # said below the slider, and not at every candidate
            wishes = replace(wishes, quality=None)
        task = task_of(ask, wishes, spec)
        job = self.page.service.submit(
            task.request,
            model,
            backend,
            sent.put,
            owner=owner,
            parent_id=ask.parent or None,
            keep_steps=bool(values["keep_steps"]),
        )
        return job, task, ask.run

    def _stop(self, request: gr.Request) -> Any:
        self.page.runs.stop(page_id(request), NAME)
        return gr.update(value="Stopping…", interactive=False)

    def _count(self, text: str, model: str) -> str:
        try:
            about = self.shelf.about(model)
            found, most = len(about.tokenizer.encode(text)), about.room("infill")
        except ElfError as error:
            return f'<div class="elf-caption">{html.escape(str(error))}</div>'
        over = "" if found <= most else "; it reads what is nearest to where it writes"
        return (
            f'<div class="elf-caption">{found} tokens; {html.escape(model)} sees {most} '
            f"at a time{over}.</div>"
        )

    # --- from other tabs ------------------------------------------------------------------------

    def receive(self, text: str, parent: str | None) -> dict[Any, Any]:
        """Updates that make `text` the document; the one before can be undone to."""
        return {self.inbox: _letter(text, len(text), len(text), parent)}

    def receives(self) -> list[Any]:
        """The widgets `receive` may update."""
        return [self.inbox]

    def restore(self, found: Generation) -> dict[Any, Any]:
        """Updates that put a stored request back: its text, selection and settings."""
        d, request = self.dials, found.request
        fits = request.count <= MOST_CANDIDATES
        start, stop = (len(request.text),) * 2
        if request.spans:
            start, stop = request.spans[0][0], request.spans[-1][1]
        kept = dict.fromkeys(request.text[a:b] for a, b in request.locks)
        return {
            self.page.tabs: gr.update(selected=NAME),
            self.inbox: _letter(request.text, start, stop, found.parent_id),
            d.count: request.count if fits else 1,
            d.first: request.first if fits else found.sample_index,
            d.strength: request.strength,
            d.keep: ", ".join(kept),
            d.seed: str(found.seed),
            d.lock: True,
            **self._lengths(request.editor, request.least, request.length, request.unit),
            **shown(d, found.settings),
        }

    def _lengths(self, editor: str, least: int, length: int, unit: str) -> dict[Any, Any]:
        d = self.dials
        if editor == "draft":
            return {d.draft: str(length or ""), d.unit: unit}
        if editor != "infill" or not length:
            return {d.how: AUTO}
        if least in (0, length):
            return {d.how: EXACT, d.most: length}
        return {d.how: RANGE, d.least: least, d.most: length}

    def restorable(self) -> list[Any]:
        """The widgets `restore` may update."""
        return [self.inbox, *self.dials.widgets().values()]


def _letter(text: str, start: int, stop: int, parent: str | None) -> str:
    """A document on its way to the page; the number makes each one a change."""
    found = {"text": text, "start": start, "stop": stop, "parent": parent or ""}
    return json.dumps(found | {"number": time.time_ns()})
