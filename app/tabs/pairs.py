"""Translate, Summarise, Modernise: a text in, its candidates side by side, best first."""

from __future__ import annotations

import html
import queue
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gradio as gr

from app import service as events
from app.about import Shelf
from app.model_facts import check_task
from app.records import Generation
from app.tabs.common import HIDDEN, LATEST, Page, guarded, page_id, status_html
from app.tabs.knobs import MOST_CANDIDATES, Knobs, build_knobs, whole
from app.tabs.measured import meaning, measured_line, measured_where
from app.tabs.view import Candidate, Panel, RunView, drain
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

_BY_FIT = ("Best first, by the model's own judgement", "fit")
_BY_SAMPLE = ("As sampled", "sample")
_BY_DISTANCE = ("Nearest to your text first", "distance")


@dataclass(frozen=True)
class PairKind:
    """What differs between the tabs. `name` is the editor and the task."""

    name: str
    title: str
    label: str
    placeholder: str
    help: str


PAIR_KINDS = (
    PairKind(
        "translate",
        "Translate",
        "German text",
        "Das Haus steht auf dem Hügel.",
        "From German into English. A long text is taken sentence by sentence.",
    ),
    PairKind(
        "summarise",
        "Summarise",
        "Text to shorten",
        "Paste a paragraph…",
        "A text longer than the model sees is taken in parts.",
    ),
    PairKind(
        "modernise",
        "Modernise",
        "Archaic English",
        "Thou shalt not steal.",
        "The English of the King James Bible, in modern words.",
    ),
)


class Target(Protocol):
    """A tab that takes a text over."""

    def receive(self, text: str, parent: str | None) -> dict[Any, Any]: ...

    def receives(self) -> list[Any]: ...


def handed(page: Page, target: Target, tab: str, text: str, parent: str | None) -> dict[Any, Any]:
    """Updates that give a text to another tab and show it."""
    return {**target.receive(text, parent), page.tabs: gr.update(selected=tab)}


def handed_to(page: Page, target: Target) -> list[Any]:
    """The widgets `handed` may update."""
    return list(dict.fromkeys([*target.receives(), page.tabs]))


class PairTab:
    """Builds the tab and answers its events."""

    def __init__(self, page: Page, kind: PairKind, shelf: Shelf) -> None:
        self.page, self.kind, self.shelf = page, kind, shelf
        defaults = self._defaults(str(page.model.value))
        with (
            gr.Tab(kind.title, id=kind.name) as self.tab,
            gr.Row(elem_classes="elf-write elf-pair"),
        ):
            with gr.Column(elem_classes="elf-area-text"):
                self._build_text()
            with gr.Column(elem_classes="elf-area-cards"):
                self._build_cards()
            with gr.Column(elem_classes="elf-area-knobs"):
                self._build_knobs(defaults)
        self._wire()

    def _build_text(self) -> None:
        kind = self.kind
        self.text = gr.Textbox(
            label=kind.label,
            placeholder=kind.placeholder,
            info=kind.help,
            lines=7,
            max_lines=24,
            elem_id=f"{kind.name}-text",
        )
        with gr.Row():
            self.run = gr.Button(
                kind.title, variant="primary", elem_id=f"{kind.name}-run", min_width=120
            )
            self.stop = gr.Button(
                "Stop",
                variant="stop",
                interactive=False,
                elem_id=f"{kind.name}-stop",
                min_width=120,
            )

    def _build_knobs(self, defaults: SampleSpec) -> None:
        kind, orders = self.kind, [_BY_FIT, _BY_SAMPLE]
        self.rank = gr.Radio(
            [*orders, _BY_DISTANCE] if kind.name == "modernise" else orders,
            value="fit",
            label="Order of the candidates",
        )
        self.quality = gr.Slider(
            0,
            1,
            0.5,
            step=0.05,
            label="Diversity to quality",
            info="Moves the knobs below.",
            elem_id=f"{kind.name}-quality",
        )
        self.meaning = gr.HTML("", elem_id=f"{kind.name}-meaning")
        self.knobs: Knobs = build_knobs(kind.name, defaults)

    def _build_cards(self) -> None:
        name = self.kind.name
        self.notice = gr.HTML("", elem_id=f"{name}-notice")
        self.status = gr.HTML(
            status_html("Candidates appear here.", kind="idle"), elem_id=f"{name}-status"
        )
        self.parent = gr.State(None)
        self.ids = gr.State([])
        with gr.Row(elem_classes="elf-side"):
            self.candidates = [self._build_candidate(i) for i in range(MOST_CANDIDATES)]
        self.panel = Panel(self.run, self.stop, self.status, self.ids, self.candidates)

    def _build_candidate(self, i: int) -> Candidate:
        name = self.kind.name
        with gr.Column(visible=False, elem_classes="elf-candidate", min_width=250) as box:
            text = gr.Textbox(
                label=f"Candidate {i + 1}",
                lines=3,
                max_lines=30,
                interactive=False,
                autoscroll=False,
                buttons=["copy"],
                elem_id=f"{name}-out-{i}",
            )
            caption = gr.HTML("", elem_id=f"{name}-caption-{i}")
            use = gr.Button("Use in Write", size="sm", interactive=False)
        return Candidate(box, text, caption, use)

    def _wire(self) -> None:
        gr.on(
            [self.run.click, self.text.submit],
            self.answer,
            self._inputs(),
            self.panel.outputs(),
            trigger_mode="once",
            concurrency_limit=None,
            **HIDDEN,
        )
        self.stop.click(self._stop, None, self.stop, queue=False, concurrency_limit=None, **HIDDEN)
        gr.on(
            [self.tab.select, self.page.model.change],
            self._notice,
            self.page.model,
            self.notice,
            **LATEST,
        )
        gr.on(
            [self.knobs.reset.click, self.page.model.input],
            self.reset,
            self.page.model,
            self.resettable(),
            **HIDDEN,
        )
        self.quality.input(
            self._at_quality,
            [self.quality, self.page.model],
            self.resettable(),
            **LATEST,
        )

    def _at_quality(self, quality: float, model: str) -> dict[Any, Any]:
        """Updates that put what a quality means on the knobs, and say so."""

        def found() -> dict[Any, Any]:
            about, name = self.shelf.about(model), self.kind.name
            shown = self.knobs.show(vars(about.settings(name, quality)))
            lines = [measured_line(about.measurements(name), quality)]
            lines.append(measured_where(about, name, model))
            said = "".join(f"<div>{html.escape(line)}</div>" for line in lines if line)
            words = f'<div class="elf-meaning">{meaning(quality)}</div>{said}'
            return {**shown, self.meaning: f'<div class="elf-caption">{words}</div>'}

        return guarded(found, {})

    def _inputs(self) -> set[Any]:
        own = {self.text, self.rank, self.parent, *self.knobs.inputs()}
        return own | {self.page.model, self.page.backend}

    def send_to(self, target: Target, tab: str) -> None:
        """Wire "Use in Write": a candidate goes to `target`, the tab with the id `tab`."""
        for i, c in enumerate(self.candidates):
            c.use.click(
                lambda text, ids, i=i: handed(self.page, target, tab, text, ids[i]),
                [c.text, self.ids],
                handed_to(self.page, target),
                **HIDDEN,
            )

    def reset(self, model: str) -> dict[Any, Any]:
        """Updates that put the model's own settings on the knobs."""
        return {**self.knobs.show(vars(self._defaults(model))), self.meaning: ""}

    def resettable(self) -> list[Any]:
        """The widgets `reset` may update."""
        return [*self.knobs.show(vars(SampleSpec())), self.meaning]

    def restore(self, found: Generation) -> dict[Any, Any]:
        """Updates that put a stored request and its settings back on the widgets."""
        k = self.knobs
        fits = found.request.count <= MOST_CANDIDATES
        return {
            self.text: found.request.text,
            self.parent: None,
            self.rank: found.request.rank,
            k.count: found.request.count if fits else 1,
            k.first: found.request.first if fits else found.sample_index,
            k.seed: str(found.seed),
            **k.show(found.settings),
            self.meaning: "",
        }

    def restorable(self) -> list[Any]:
        """The widgets `restore` may update."""
        k = self.knobs
        return [self.text, self.parent, self.rank, k.count, k.first, k.seed, *self.resettable()]

    def answer(self, values: dict[Any, Any], request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Run the edit and show it: the handler of the run button."""
        sent: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        page, name = page_id(request), self.kind.name
        job = guarded(lambda: self._submit(values, sent, page), None)
        if job is None:
            yield {self.status: status_html("Not started: see the message.", kind="bad")}
            return
        self.page.runs.start(page, name, job)
        view = PairView(self.panel, job.request)
        try:
            yield view.begin()
            while not view.done:
                yield view.show(drain(sent))
        finally:
            self.page.runs.end(page, name, job)

    def _submit(
        self, values: Mapping[Any, Any], sent: queue.SimpleQueue[events.Event], owner: str
    ) -> events.Job:
        k, model = self.knobs, values[self.page.model]
        check_task(self.page.service, model, self.kind.name)
        edit = EditRequest(
            editor=self.kind.name,
            text=(values[self.text] or "").replace("\r\n", "\n"),
            count=whole("candidates", values[k.count]),
            first=whole("first sample", values[k.first]),
            settings=k.spec(values),
            texts_every_step=bool(values[k.live] or values[k.keep_steps]),
            rank=values[self.rank],
        )
        return self.page.service.submit(
            edit,
            model,
            values[self.page.backend],
            sent.put,
            owner=owner,
            parent_id=values[self.parent],
            keep_steps=bool(values[k.keep_steps]),
        )

    def _stop(self, request: gr.Request) -> Any:
        self.page.runs.stop(page_id(request), self.kind.name)
        return gr.update(value="Stopping…", interactive=False)

    def _notice(self, model: str) -> str:
        """Words above the candidates when the chosen model cannot do this, else nothing."""
        try:
            check_task(self.page.service, model, self.kind.name)
        except ElfError as error:
            return status_html(str(error), kind="bad")
        return ""

    def _defaults(self, model: str) -> SampleSpec:
        # Only a starting point of the widgets: a model that cannot be read says so when it is run.
        try:
            return self.page.service.settings_for(self.kind.name, model)
        except ElfError:
            return SampleSpec()


class PairView(RunView):
    """Candidates stand in the order they come, which is the order of rank; steps are told by
    part when the text was split."""

    def _progress(self, event: Progress) -> dict[Any, Any]:
        updates = super()._progress(event)
        spec = self.request.settings
        if spec is not None and event.steps > spec.steps:
            part, parts = (event.step - 1) // spec.steps + 1, event.steps // spec.steps
            line = f"Part {part} of {parts}, step {event.step} of {event.steps}"
            updates[self.panel.status] = status_html(line, event.step, event.steps, "busy")
        return updates

    def _place(self, result: EditResult) -> int:
        return len(self.results)

    def _first_lines(self, result: EditResult, place: int) -> list[str]:
        return rank_lines(self.request.rank, result, place)


def rank_lines(rank: str, result: EditResult, place: int) -> list[str]:
    """What put the candidate in its place, in words."""
    if rank == "fit" and "fit" in result.scores:
        return [f"rank {place + 1}: {result.scores['fit']:.2f} nats a token; nearer 0 is likelier"]
    if "chrf" in result.scores:
        rank = f"rank {place + 1}: " if rank == "distance" else ""
        edits = int(result.scores["word_edits"])
        return [f"{rank}likeness to your text {result.scores['chrf']:.0f} of 100, {edits} words"]
    return []
