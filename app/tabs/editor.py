"""One editing tab: text and knobs left, candidates clearing out of the noise right."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import service as events
from app.records import Generation
from app.tabs.common import (
    HIDDEN,
    Page,
    guarded,
    page_id,
    status_html,
)
from app.tabs.knobs import MOST_CANDIDATES, Knobs, build_knobs, whole
from app.tabs.view import Candidate, Panel, RunView, drain
from editors.gaps import escape
from editors.request import EditRequest
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError


@dataclass(frozen=True)
class EditorKind:
    """What differs between the tabs."""

    name: str
    title: str
    button: str
    label: str
    placeholder: str
    help: str
    example: str = ""


class EditorTab:
    """Builds the tab and answers its events."""

    def __init__(self, page: Page, kind: EditorKind) -> None:
        self.page, self.kind = page, kind
        defaults = self._defaults(str(page.model.value))
        with gr.Tab(kind.title, id=kind.name), gr.Row(elem_classes="elf-columns"):
            with gr.Column(scale=5, min_width=340):
                self._build_left(defaults)
            with gr.Column(scale=6, min_width=340):
                self._build_right()
        self._wire()

    def _build_left(self, defaults: SampleSpec) -> None:
        kind = self.kind
        self.text = gr.Textbox(
            kind.example,
            label=kind.label,
            placeholder=kind.placeholder,
            info=kind.help,
            lines=7,
            max_lines=24,
            elem_id=f"{kind.name}-text",
            autofocus=kind.name == "draft",
        )
        if kind.name == "infill":
            self._build_gap_button()
        with gr.Row():
            self.run = gr.Button(kind.button, variant="primary", elem_id=f"{kind.name}-run")
            self.stop = gr.Button(
                "Stop", variant="stop", interactive=False, elem_id=f"{kind.name}-stop"
            )
        self.knobs: Knobs = build_knobs(kind.name, defaults)

    def _build_gap_button(self) -> None:
        gap = gr.Button("Turn the selection into a gap", size="sm", elem_id="infill-gap")
        gap.click(None, self.text, self.text, js=GAP_JS, **HIDDEN)

    def _build_right(self) -> None:
        self.status = gr.HTML(
            status_html("Candidates appear here.", kind="idle"), elem_id=f"{self.kind.name}-status"
        )
        self.parent = gr.State(None)
        self.ids = gr.State([])
        self.candidates = [self._build_candidate(i) for i in range(MOST_CANDIDATES)]
        self.panel = Panel(self.run, self.stop, self.status, self.ids, self.candidates)

    def _build_candidate(self, i: int) -> Candidate:
        with gr.Group(visible=False, elem_classes="elf-candidate") as box:
            text = gr.Textbox(
                label=f"Candidate {i + 1}",
                lines=2,
                max_lines=20,
                interactive=False,
                autoscroll=False,
                buttons=["copy"],
                elem_id=f"{self.kind.name}-out-{i}",
            )
            with gr.Row(elem_classes="elf-under"):
                caption = gr.HTML("", elem_id=f"{self.kind.name}-caption-{i}")
                use = gr.Button(
                    "Use as input",
                    size="sm",
                    min_width=110,
                    scale=0,
                    visible=self.kind.name != "translate",
                    interactive=False,
                )
                infill = gr.Button(
                    "Edit in Infill",
                    size="sm",
                    min_width=110,
                    scale=0,
                    visible=self.kind.name != "infill",
                    interactive=False,
                )
        return Candidate(box, text, caption, use, infill)

    def _wire(self) -> None:
        gr.on(
            [self.run.click, self.text.submit],
            self.answer,
            {self.text, self.page.model, self.page.backend, self.parent, *self.knobs.inputs()},
            self.panel.outputs(),
            show_progress="hidden",
            trigger_mode="once",
            concurrency_limit=None,
            api_name=self.kind.name,
        )
        self.stop.click(self._stop, None, self.stop, queue=False, concurrency_limit=None, **HIDDEN)
        self.knobs.reset.click(
            lambda model: self.knobs.show(vars(self._defaults(model))),
            self.page.model,
            self._shown_knobs(),
            **HIDDEN,
        )
        self.page.model.input(
            lambda model: self.knobs.show(vars(self._defaults(model))),
            self.page.model,
            self._shown_knobs(),
            **HIDDEN,
        )
        for i, c in enumerate(self.candidates):
            c.use.click(
                lambda text, ids, i=i: (self.as_input(text), ids[i]),
                [c.text, self.ids],
                [self.text, self.parent],
                **HIDDEN,
            )

    def send_to(self, other: EditorTab) -> None:
        """Wire "Edit in Infill": a candidate becomes the input of the `other` tab."""
        for i, c in enumerate(self.candidates):
            c.infill.click(
                lambda text, ids, i=i: (
                    other.as_input(text),
                    ids[i],
                    gr.update(selected=other.kind.name),
                ),
                [c.text, self.ids],
                [other.text, other.parent, self.page.tabs],
                **HIDDEN,
            )

    def receive(self, text: str, parent: str | None) -> dict[Any, Any]:
        """Updates that take over a text of another tab and show this one."""
        tabs = gr.update(selected=self.kind.name)
        return {self.text: self.as_input(text), self.parent: parent, self.page.tabs: tabs}

    def receives(self) -> list[Any]:
        """The widgets `receive` updates."""
        return [self.text, self.parent, self.page.tabs]

    def as_input(self, text: str) -> str:
        """Plain text as this editor's input: to infill, "[[" in a text is no gap."""
        return escape(text) if self.kind.name == "infill" else text

    def restore(self, found: Generation) -> dict[Any, Any]:
        """Updates that put a stored request and its settings back on the widgets."""
        k = self.knobs
        fits = found.request.count <= MOST_CANDIDATES
        return {
            self.text: found.request.text,
            self.parent: None,
            k.count: found.request.count if fits else 1,
            k.first: found.request.first if fits else found.sample_index,
            k.length: found.request.length,
            k.seed: str(found.seed),
            **k.show(found.settings),
        }

    def restorable(self) -> list[Any]:
        """The widgets `restore` may update."""
        k = self.knobs
        return [self.text, self.parent, k.count, k.first, k.length, k.seed, *self._shown_knobs()]

    def answer(self, values: dict[Any, Any], request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Run the edit and show it: the handler of the run button, and the named endpoint."""
        sent: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        job = guarded(lambda: self._submit(values, sent, page_id(request)), None)
        if job is None:
            yield {self.status: status_html("Not started: see the message.", kind="bad")}
            return
        page, name = page_id(request), self.kind.name
        self.page.runs.start(page, name, job)
        view = RunView(self.panel, job.request)
        try:
            yield view.begin()
            while not view.done:
                yield view.show(drain(sent))
        finally:
            self.page.runs.end(page, name, job)

    def _submit(
        self, values: dict[Any, Any], sent: queue.SimpleQueue[events.Event], owner: str
    ) -> events.Job:
        k = self.knobs
        edit = EditRequest(
            editor=self.kind.name,
            text=(values[self.text] or "").replace("\r\n", "\n"),
            count=whole("candidates", values[k.count]),
            first=whole("first sample", values[k.first]),
            length=whole("length", values[k.length]) if self.kind.name == "draft" else 0,
            settings=k.spec(values),
            texts_every_step=bool(values[k.live] or values[k.keep_steps]),
        )
        return self.page.service.submit(
            edit,
            values[self.page.model],
            values[self.page.backend],
            sent.put,
            owner=owner,
            parent_id=values[self.parent],
            keep_steps=bool(values[k.keep_steps]),
        )

    def _stop(self, request: gr.Request) -> Any:
        self.page.runs.stop(page_id(request), self.kind.name)
        return gr.update(value="Stopping…", interactive=False)

    def _defaults(self, model: str) -> SampleSpec:
        # Only a starting point of the widgets: a model that cannot be read says so when it is run.
        try:
            return self.page.service.settings_for(self.kind.name, model)
        except ElfError:
            return SampleSpec()

    def _shown_knobs(self) -> list[Any]:
        return list(self.knobs.show(vars(SampleSpec())))


GAP_JS = r"""
(text) => {
  const box = document.querySelector("#infill-text textarea");
  if (!box) return text;
  const value = box.value;
  let from = box.selectionStart, to = box.selectionEnd;
  while (from < to && /\s/.test(value[from])) from += 1;
  while (to > from && /\s/.test(value[to - 1])) to -= 1;
  const words = value.slice(from, to).split(/\s+/).filter(Boolean).length;
  const gap = words ? `[[${words}-${3 * words}]]` : "[[]]";
  const changed = value.slice(0, from) + gap + value.slice(to);
  setTimeout(() => {
    box.focus();
    box.setSelectionRange(from + gap.length, from + gap.length);
  }, 60);
  return changed;
}
"""
