"""What the Write tab shows while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import service as events
from app.tabs.cards import Card, cards_html, live_html
from app.tabs.common import status_html, warn
from app.tabs.view import Pace
from app.tabs.write_ask import Task
from editors.request import Progress


@dataclass(frozen=True)
class WritePanel:
    """The widgets a run may change."""

    acts: Mapping[str, gr.Button]
    stop: gr.Button
    status: gr.HTML
    cards: gr.HTML
    seed: gr.Textbox
    drawn: gr.State

    def outputs(self) -> list[Any]:
        return [*self.acts.values(), self.stop, self.status, self.cards, self.seed, self.drawn]


class WriteView:
    """One run: its events in, updates of the panel out."""

    def __init__(
        self,
        panel: WritePanel,
        task: Task,
        run: str,
        tokens: Callable[[str], Sequence[int]],
    ) -> None:
        self.panel, self.task, self.run, self.tokens = panel, task, run, tokens
        self.done = False
        self.failed = ""
        self.pace = Pace()
        self.step: Progress | None = None
        self.cards: list[Card] = []

    def begin(self) -> dict[Any, Any]:
        """No candidates yet; Stop can be pressed."""
        panel = self.panel
        for note in self.task.notes:
            warn(note)
        assert self.task.request.settings is not None
        seed = str(self.task.request.settings.seed)
        return {
            **{button: gr.update(interactive=False) for button in panel.acts.values()},
            panel.stop: gr.update(value="Stop", interactive=True),
            panel.status: status_html("Starting…", kind="busy"),
            panel.cards: "",
            panel.seed: seed,
            panel.drawn: seed,
        }

    def show(self, batch: list[events.Event]) -> dict[Any, Any]:
        """Updates for these events; of several steps only the last is drawn."""
        updates: dict[Any, Any] = {}
        for event in batch:
            match event:
                case Progress():
                    updates |= self._progress(event)
                case events.Finished(result, id):
                    self.cards.append(Card(result, self.run, id))
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
        if event.texts:
            updates[self.panel.cards] = live_html(self.task, event.texts)
        return updates

    def _end(self, stopped: bool) -> dict[Any, Any]:
        self.done = True
        panel = self.panel
        if self.failed:
            line, kind = f"{self.failed} Your text is as it was.", "bad"
        elif stopped:
            where = f" at step {self.step.step} of {self.step.steps}" if self.step else ""
            line, kind = f"Stopped{where}. Your text is as it was.", "idle"
        else:
            seconds = max((card.result.seconds for card in self.cards), default=0.0)
            many = "1 candidate" if len(self.cards) == 1 else f"{len(self.cards)} candidates"
            line, kind = f"Done: {many} in {seconds:.1f} s. Accept one to put it in.", "good"
        updates: dict[Any, Any] = {
            **{button: gr.update(interactive=True) for button in panel.acts.values()},
            panel.status: status_html(line, kind=kind),
            panel.stop: gr.update(value="Stop", interactive=False),
        }
        if self.cards or not stopped:
            updates[panel.cards] = cards_html(self.task, self.cards, self.tokens)
        return updates
