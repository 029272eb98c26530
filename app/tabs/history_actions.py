"""What can be done with the result that the History tab shows."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import gradio as gr

from app import service as events
from app.records import Generation
from app.store import Store
from app.tabs.common import HIDDEN, LATEST, Page, guarded, page_id, status_html, warn
from app.tabs.history_view import (
    ON_THE_PAGE,
    Restorable,
    account,
    beyond_the_page,
    differences,
    verdict_html,
)
from app.tabs.knobs import random_seed
from app.tabs.view import drain
from app.verify import check_model, compare, precision, request_again
from editors.request import EditResult, Progress
from elf_engine.errors import ElfError


class Actions:
    """The buttons under a result, and what they answer."""

    def __init__(self, page: Page, store: Store) -> None:
        self.page, self.store = page, store
        with gr.Row(elem_classes="elf-row"):
            self.restore = _button("Restore settings", "history-restore", variant="primary")
            self.remix = _button("Remix (new seed)", "history-remix")
        with gr.Row(elem_classes="elf-row"):
            self.star = _button("☆ Star", "history-star")
            self.delete = _button("Delete", "history-delete")
        with gr.Row(elem_classes="elf-row"):
            self.verify = _button("Run again and compare", "history-verify")
            self.stop = _button("Stop", "history-stop", variant="stop")
        self.verdict = gr.HTML("", elem_id="history-verdict")
        with gr.Row(elem_classes="elf-row"):
            self.tags = gr.Textbox(
                "",
                label="Tags",
                placeholder="separated by commas",
                max_lines=1,
                scale=4,
                min_width=180,
                elem_id="history-tags",
            )
            self.save = _button("Save tags", "history-save-tags", scale=1)
        with gr.Row(elem_classes="elf-row"):
            self.other = gr.Textbox(
                "",
                label="Compare with",
                placeholder="an id; empty: what it was edited from",
                max_lines=1,
                scale=4,
                min_width=180,
                elem_id="history-other",
            )
            self.keep = _button("Use this one", "history-remember", scale=1)
            self.differ = _button("Differences", "history-diff", scale=1)
        self.compared = gr.HTML("", elem_id="history-compared")

    def shown(self) -> list[Any]:
        """What `show` updates, in its order."""
        buttons = [self.restore, self.remix, self.star, self.delete, self.verify, self.save]
        return [*buttons, self.keep, self.differ, self.tags, self.verdict, self.compared]

    def show(self, found: Generation) -> list[Any]:
        """The buttons as they are for this result."""
        on = gr.update(interactive=True)
        star = gr.update(value="★ Starred" if found.starred else "☆ Star", interactive=True)
        undo = "Undo delete" if found.deleted_utc else "Delete"
        delete = gr.update(value=undo, interactive=True)
        said = ""
        if found.deleted_utc:
            said = status_html("This result is deleted; Undo delete brings it back.", kind="idle")
        return [on, on, star, delete, on, on, on, on, ", ".join(found.tags), said, ""]

    def wire(self, id: gr.Textbox) -> list[Any]:
        """Connect the buttons; the events after which a result or the list has changed."""
        self.verify.click(
            self._verify,
            id,
            [self.verify, self.stop, self.verdict],
            concurrency_limit=None,
            trigger_mode="once",
            **HIDDEN,
        )
        self.stop.click(self._stop, None, self.stop, queue=False, **HIDDEN)
        self.keep.click(lambda id: id, id, self.other, **HIDDEN)
        gr.on(
            [self.differ.click, self.other.submit],
            self._differences,
            [id, self.other],
            self.compared,
            **LATEST,
        )
        return [
            self.star.click(self._star, id, None, **HIDDEN),
            self.delete.click(self._delete, id, None, **HIDDEN),
            gr.on([self.save.click, self.tags.submit], self._tag, [id, self.tags], None, **HIDDEN),
        ]

    def _star(self, id: str, request: gr.Request) -> None:
        store = self.store.of(account(request))
        guarded(lambda: store.star(id, not store.get(id).starred), None)

    def _delete(self, id: str, request: gr.Request) -> None:
        store = self.store.of(account(request))

        def change() -> None:
            if store.get(id).deleted_utc:
                store.undelete(id)
                gr.Info("It is back.", duration=4)
            else:
                store.delete(id)
                gr.Info("Deleted. Undo delete brings it back.", duration=6)

        guarded(change, None)

    def _tag(self, id: str, given: str, request: gr.Request) -> None:
        store = self.store.of(account(request))

        def change() -> None:
            wanted = [tag for tag in (given or "").split(",") if tag.strip()]
            store.set_tags(id, *wanted)

        guarded(change, None)

    def _differences(self, id: str, other: str, request: gr.Request) -> Any:
        store = self.store.of(account(request))

        def shown() -> str:
            found = store.get(id)
            with_id = (other or "").strip() or found.parent_id
            if with_id is None:
                raise ElfError("it was not edited from another result; give the id of one")
            return differences(store.get(with_id), found)

        return guarded(shown, gr.skip())

    # --- run again ----------------------------------------------------------------------------

    def _verify(self, id: str, request: gr.Request) -> Iterator[Any]:
        store = self.store.of(account(request))
        sent: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        found: Generation | None = guarded(lambda: store.get(id), None)
        job = None if found is None else guarded(lambda: self._again(found, sent, request), None)
        if found is None or job is None:
            yield gr.skip(), gr.skip(), status_html("Not started: see the message.", kind="bad")
            return
        page = page_id(request)
        self.page.runs.start(page, "history", job)
        busy, idle = gr.update(interactive=False), gr.update(interactive=True)
        words = status_html("Starting…", kind="busy")
        try:
            yield busy, idle, words
            done = False
            while not done:
                batch = drain(sent)
                done = any(isinstance(event, events.Done) for event in batch)
                words = _said(found, batch, words)
                yield (idle, busy, words) if done else (gr.skip(), gr.skip(), words)
        finally:
            self.page.runs.end(page, "history", job)

    def _again(
        self, found: Generation, sent: queue.SimpleQueue[events.Event], request: gr.Request
    ) -> events.Job:
        service = self.page.service
        if precision(found) != "float32":
            raise ElfError(f"made in {precision(found)}; use: elf history verify {found.id}")
        model = service.choice_for(found.model)
        if model is None:
            raise ElfError(f"model '{found.model}' is not installed here")
        again = request_again(found)
        return service.rerun(again, model, found.backend, sent.put, owner=page_id(request))

    def _stop(self, request: gr.Request) -> Any:
        self.page.runs.stop(page_id(request), "history")
        return gr.update(interactive=False)


def restore(
    page: Page, editors: Mapping[str, Restorable], found: Generation, remix: bool
) -> dict[Any, Any]:
    """Updates that put a result back into its tab, to `remix` with another seed."""
    if found.editor not in editors:
        warn(f"the page has no tab for '{found.editor}'; use: elf {found.editor}")
        return {page.tabs: gr.skip()}
    tab = editors[found.editor]
    if beyond := beyond_the_page(found.request, getattr(tab, "restores", ON_THE_PAGE)):
        warn(f"made with {', '.join(beyond)}, which this page has no knob for")
    updates = tab.restore(_remixed(found) if remix else found)
    updates.setdefault(page.tabs, gr.update(selected=found.editor))
    updates[page.backend] = found.backend
    choice = page.service.choice_for(found.model)
    if choice is not None:
        updates[page.model] = gr.update(value=choice, choices=page.service.models())
    else:
        warn(f"model '{found.model}' is not installed here; the chosen model is kept")
    return updates


def _remixed(found: Generation) -> Generation:
    """The same with a new seed, wherever a tab may look for it."""
    seed = random_seed()
    spec = found.request.settings
    request = replace(
        found.request, first=0, settings=None if spec is None else replace(spec, seed=seed)
    )
    settings = found.settings | {"seed": seed}
    return replace(found, seed=seed, sample_index=0, request=request, settings=settings)


def _said(found: Generation, batch: list[events.Event], before: str) -> str:
    """The status after these events."""
    words = before
    for event in batch:
        match event:
            case Progress(step, steps):
                words = status_html(f"Running again: step {step} of {steps}", step, steps, "busy")
            case events.Queued(position) if position:
                words = status_html(f"Waiting: {position} before you.", kind="busy")
            case events.Loading(model, backend):
                words = status_html(f"Loading {model} ({backend})…", kind="busy")
            case events.Finished(result, _):
                words = _verdict(found, result)
            case events.Failed(message):
                words = status_html(message, kind="bad")
            case events.Done(stopped) if stopped:
                words = status_html("Stopped; nothing is known.", kind="idle")
    return words


def _verdict(found: Generation, result: EditResult) -> str:
    try:
        check_model(found, result.model_hash)
    except ElfError as error:
        return status_html(str(error), kind="bad")
    return verdict_html(found, compare(found, result.text), result.text)


def _button(label: str, elem_id: str, variant: Any = "secondary", scale: int = 2) -> gr.Button:
    return gr.Button(
        label,
        size="sm",
        variant=variant,
        interactive=False,
        min_width=100,
        scale=scale,
        elem_id=elem_id,
    )
