"""What the right side of an editing tab shows while a run goes on."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import service as events
from app.tabs.common import caption_html, made_html, settings_line, status_html, warn
from editors.request import EditRequest, EditResult, Progress


@dataclass(frozen=True)
class Candidate:
    """Widgets of one candidate."""

    box: gr.Group
    text: gr.Textbox
    caption: gr.HTML
    use: gr.Button


@dataclass(frozen=True)
class Panel:
    """The widgets a run may change."""

    run: gr.Button
    stop: gr.Button
    status: gr.HTML
    ids: gr.State
    candidates: list[Candidate]

    def outputs(self) -> list[Any]:
        found: list[Any] = [self.run, self.stop, self.status, self.ids]
        for c in self.candidates:
            found += [c.box, c.text, c.caption, c.use]
        return found


class Pace:
    """How long the steps take, and so what is left."""

    def __init__(self) -> None:
        self._first_step_at = 0.0

    def line(self, event: Progress) -> str:
        """Where the run stands, in words."""
        now = time.monotonic()
        self._first_step_at = self._first_step_at or now
        left = ""
        if 1 < event.step < event.steps:
            seconds = (now - self._first_step_at) / (event.step - 1) * (event.steps - event.step)
            left = f", about {seconds:.0f} s left" if seconds >= 1.5 else ""
        return f"Step {event.step} of {event.steps}, t = {event.t:.2f}{left}"


class RunView:
    """What the right side shows while one run goes on."""

    def __init__(self, panel: Panel, request: EditRequest) -> None:
        self.panel, self.request = panel, request
        self.done = False
        self.failed = ""
        self.step: Progress | None = None
        self.results: dict[int, EditResult] = {}
        self.ids: list[str | None] = [None] * request.count
        self.pace = Pace()

    def begin(self) -> dict[Any, Any]:
        """Empty boxes, as many as candidates were asked for."""
        panel = self.panel
        updates: dict[Any, Any] = {
            panel.run: gr.update(interactive=False),
            panel.stop: gr.update(value="Stop", interactive=True),
            panel.status: status_html("Starting…", kind="busy"),
            panel.ids: [],
        }
        for i, c in enumerate(panel.candidates):
            updates[c.box] = gr.update(visible=i < self.request.count)
            updates[c.text] = gr.update(value="", elem_classes="elf-noisy")
            updates[c.caption] = ""
            updates[c.use] = gr.update(interactive=False)
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
                    updates[self.panel.status] = status_html(ahead, kind="busy")
                case events.Loading(model, backend):
                    line = f"Loading {model} ({backend})…"
                    updates[self.panel.status] = status_html(line, kind="busy")
                case events.Warned(message):
                    warn(message)
                case events.Failed(message):
                    self.failed = message
                    warn(message)
                case events.Done(stopped):
                    updates |= self._end(stopped)
        return updates

    def _progress(self, event: Progress) -> dict[Any, Any]:
        self.step = event
        line = self.pace.line(event)
        updates: dict[Any, Any] = {
            self.panel.status: status_html(line, event.step, event.steps, "busy")
        }
        for c, text in zip(self.panel.candidates, event.texts, strict=False):
            updates[c.text] = text
        return updates

    def _finished(self, result: EditResult, id: str | None) -> dict[Any, Any]:
        place = self._place(result)
        self.results[place] = result
        self.ids[place] = id
        c = self.panel.candidates[place]
        first = self._first_lines(result, place)
        made = [
            f"seed {result.seed}, sample {result.index}, {result.seconds:.1f} s, "
            f"{result.model} on {result.backend}",
            settings_line(result.settings),
        ]
        return {
            c.text: gr.update(value=result.text, elem_classes=""),
            c.caption: caption_html(first, list(result.warnings)) + made_html(made),
            c.use: gr.update(interactive=True),
            self.panel.ids: list(self.ids),
        }

    def _place(self, result: EditResult) -> int:
        place = result.index - self.request.first
        if place in self.results or not 0 <= place < self.request.count:
            # A replaced candidate carries a later sample number; it takes a place left empty.
            place = next(i for i in range(self.request.count) if i not in self.results)
        return place

    def _first_lines(self, result: EditResult, place: int) -> list[str]:
        return []

    def _end(self, stopped: bool) -> dict[Any, Any]:
        self.done = True
        panel = self.panel
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
            panel.status: status_html(line, kind=kind),
            panel.run: gr.update(interactive=True),
            panel.stop: gr.update(value="Stop", interactive=False),
        }
        drawn = self.step is not None and bool(self.step.texts)
        for place, c in enumerate(panel.candidates[: self.request.count]):
            if place in self.results:
                continue
            if stopped and drawn:
                updates[c.caption] = caption_html(["unfinished: the run was stopped here"], [])
            else:
                updates[c.box] = gr.update(visible=False)
        return updates


def drain(sent: queue.SimpleQueue[events.Event]) -> list[events.Event]:
    """Wait for an event, then take all there are, keeping only the last of the steps: a page
    that draws slower than the model runs shows fewer steps, not older ones."""
    batch = [sent.get()]
    while not sent.empty():
        batch.append(sent.get())
    steps = [e for e in batch if isinstance(e, Progress)]
    return [e for e in batch if not isinstance(e, Progress) or e is steps[-1]]
