"""One editing tab: text and knobs left, candidates clearing out of the noise right."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import service as events
from app.tabs.common import (
    HIDDEN,
    Page,
    caption_html,
    guarded,
    page_id,
    settings_line,
    status_html,
    warn,
)
from app.tabs.knobs import MOST_CANDIDATES, Knobs, build_knobs, whole
from editors.gaps import escape
from editors.request import EditRequest, EditResult, Progress
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


@dataclass(frozen=True)
class Candidate:
    """Widgets of one candidate."""

    box: gr.Group
    text: gr.Textbox
    caption: gr.HTML
    use: gr.Button
    infill: gr.Button


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
        self.status = gr.HTML(status_html("Candidates appear here.", kind="idle"))
        self.parent = gr.State(None)
        self.ids = gr.State([])
        self.candidates = [self._build_candidate(i) for i in range(MOST_CANDIDATES)]

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
        outputs: list[Any] = [self.status, self.run, self.stop, self.ids]
        for c in self.candidates:
            outputs += [c.box, c.text, c.caption, c.use, c.infill]
        gr.on(
            [self.run.click, self.text.submit],
            self.answer,
            {self.text, self.page.model, self.page.backend, self.parent, *self.knobs.inputs()},
            outputs,
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

    def as_input(self, text: str) -> str:
        """Plain text as this editor's input: to infill, "[[" in a text is no gap."""
        return escape(text) if self.kind.name == "infill" else text

    def restore(self, request: EditRequest, settings: Mapping[str, Any]) -> dict[Any, Any]:
        """Updates that put a stored request and its settings back on the widgets."""
        k = self.knobs
        return {
            self.text: request.text,
            self.parent: None,
            k.count: min(request.count, MOST_CANDIDATES),
            k.length: request.length,
            k.seed: str(settings.get("seed", "")),
            **k.show(settings),
        }

    def restorable(self) -> list[Any]:
        """The widgets `restore` may update."""
        k = self.knobs
        return [self.text, self.parent, k.count, k.length, k.seed, *self._shown_knobs()]

    def answer(self, values: dict[Any, Any], request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Run the edit and show it: the handler of the run button, and the named endpoint."""
        sent: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        job = guarded(lambda: self._submit(values, sent, page_id(request)), None)
        if job is None:
            yield {self.status: status_html("Not started: see the message.", kind="bad")}
            return
        page, name = page_id(request), self.kind.name
        self.page.runs.start(page, name, job)
        view = _View(self, job.request)
        try:
            yield view.begin()
            while not view.done:
                yield view.show(_drain(sent))
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


class _View:
    """What the right side shows while one run goes on."""

    def __init__(self, tab: EditorTab, request: EditRequest) -> None:
        self.tab, self.request = tab, request
        self.done = False
        self.failed = ""
        self.step: Progress | None = None
        self.results: dict[int, EditResult] = {}
        self.ids: list[str | None] = [None] * request.count
        self.first_step_at = 0.0

    def begin(self) -> dict[Any, Any]:
        """Empty boxes, as many as candidates were asked for."""
        tab = self.tab
        updates: dict[Any, Any] = {
            tab.run: gr.update(interactive=False),
            tab.stop: gr.update(value="Stop", interactive=True),
            tab.status: status_html("Starting…", kind="busy"),
            tab.ids: [],
        }
        for i, c in enumerate(tab.candidates):
            updates[c.box] = gr.update(visible=i < self.request.count)
            updates[c.text] = gr.update(value="", elem_classes="elf-noisy")
            updates[c.caption] = ""
            updates[c.use] = updates[c.infill] = gr.update(interactive=False)
        return updates

    def show(self, batch: list[events.Event]) -> dict[Any, Any]:
        """Updates for these events; of several steps only the last is drawn."""
        updates: dict[Any, Any] = {}
        for event in batch:
            match event:
                case Progress():
                    updates |= self._progress(event)
                case events.Finished(result, id):
                    updates |= self._finished(result, id)
                case events.Queued(position):
                    ahead = f"Waiting: {position} before you." if position else "Starting…"
                    updates[self.tab.status] = status_html(ahead, kind="busy")
                case events.Loading(model, backend):
                    line = f"Loading {model} ({backend})…"
                    updates[self.tab.status] = status_html(line, kind="busy")
                case events.Warned(message):
                    warn(message)
                case events.Failed(message):
                    self.failed = message
                    warn(message)
                case events.Done(stopped):
                    updates |= self._end(stopped)
        return updates

    def _progress(self, event: Progress) -> dict[Any, Any]:
        self.first_step_at = self.first_step_at or time.monotonic()
        self.step = event
        left = ""
        if event.step > 1 and event.step < event.steps:
            pace = (time.monotonic() - self.first_step_at) / (event.step - 1)
            seconds = pace * (event.steps - event.step)
            left = f", about {seconds:.0f} s left" if seconds >= 1.5 else ""
        line = f"Step {event.step} of {event.steps}, t = {event.t:.2f}{left}"
        updates: dict[Any, Any] = {
            self.tab.status: status_html(line, event.step, event.steps, "busy")
        }
        for c, text in zip(self.tab.candidates, event.texts, strict=False):
            updates[c.text] = text
        return updates

    def _finished(self, result: EditResult, id: str | None) -> dict[Any, Any]:
        place = result.index - self.request.first
        self.results[place] = result
        self.ids[place] = id
        c = self.tab.candidates[place]
        lines = [
            f"seed {result.seed}, sample {result.index}, {result.seconds:.1f} s, "
            f"{result.model} on {result.backend}",
            settings_line(result.settings),
        ]
        return {
            c.text: gr.update(value=result.text, elem_classes=""),
            c.caption: caption_html(lines, list(result.warnings)),
            c.use: gr.update(interactive=True),
            c.infill: gr.update(interactive=True),
            self.tab.ids: list(self.ids),
        }

    def _end(self, stopped: bool) -> dict[Any, Any]:
        self.done = True
        tab = self.tab
        if self.failed:
            line, kind = self.failed, "bad"
        elif stopped:
            where = f" at step {self.step.step} of {self.step.steps}" if self.step else ""
            line, kind = f"Stopped{where}.", "idle"
        else:
            seconds = max((r.seconds for r in self.results.values()), default=0.0)
            many = "1 candidate" if len(self.results) == 1 else f"{len(self.results)} candidates"
            line, kind = f"Done: {many} in {seconds:.1f} s.", "good"
        updates: dict[Any, Any] = {
            tab.status: status_html(line, kind=kind),
            tab.run: gr.update(interactive=True),
            tab.stop: gr.update(value="Stop", interactive=False),
        }
        drawn = self.step is not None and bool(self.step.texts)
        for place, c in enumerate(tab.candidates[: self.request.count]):
            if place in self.results:
                continue
            if stopped and drawn:
                updates[c.caption] = caption_html(["unfinished: the run was stopped here"], [])
            else:
                updates[c.box] = gr.update(visible=False)
        return updates


def _drain(sent: queue.SimpleQueue[events.Event]) -> list[events.Event]:
    """Wait for an event, then take all there are, keeping only the last of the steps: a page
    that draws slower than the model runs shows fewer steps, not older ones."""
    batch = [sent.get()]
    while not sent.empty():
        batch.append(sent.get())
    steps = [e for e in batch if isinstance(e, Progress)]
    return [e for e in batch if not isinstance(e, Progress) or e is steps[-1]]


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
