"""The editors for programs: a named endpoint each, such as `/draft` and `/translate`."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from app import service as events
from app.about import Shelf
from app.model_facts import check_task
from app.service import Service
from app.tabs.common import LiveRuns, page_id
from app.tabs.knobs import seed_of
from editors.models import task_of
from editors.request import EditRequest, EditResult, Progress
from elf_engine.config import from_dict
from elf_engine.errors import ElfError

Answer = list[dict[str, Any]]
_LOOKS_EVERY = 0.5  # seconds, for a caller that has gone


@dataclass(frozen=True)
class Options:
    """What every endpoint takes as a mapping. `model` and `backend` "" are the page's first;
    `seed` "" draws one; it is text, since JSON readers round numbers past 2**53."""

    count: int = 1
    quality: float = 0.5
    seed: str = ""
    model: str = ""
    backend: str = ""


class Endpoints:
    """Registers the endpoints. `default` holds the options of a call that names none. A call
    whose caller has gone is stopped."""

    def __init__(
        self, blocks: gr.Blocks, service: Service, shelf: Shelf, runs: LiveRuns, default: Options
    ) -> None:
        self.blocks, self.runs = blocks, runs
        self.service, self.shelf, self.default = service, shelf, default
        pairs = (self.translate, self.summarise, self.modernise)
        for fn in (self.draft, self.infill, self.rewrite, *pairs):
            gr.api(fn, api_name=fn.__name__, concurrency_limit=None)

    def draft(
        self, request: gr.Request, text: str, length: int = 0, options: dict[str, Any] | None = None
    ) -> Answer:
        """Continue `text` by `length` tokens, 0: as the model likes."""
        edit = EditRequest("draft", text, length=length)
        return self._answer(lambda: edit, options, request)

    def infill(
        self,
        request: gr.Request,
        text: str,
        spans: list[list[int]] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Answer:
        """Fill the gaps `[[2-6]]` of `text`, or replace its ranges `spans` (code points)."""
        return self._answer(
            lambda: EditRequest("infill", text, spans=_ranges(spans)), options, request
        )

    def rewrite(
        self,
        request: gr.Request,
        text: str,
        strength: float = 0.5,
        spans: list[list[int]] | None = None,
        locks: list[list[int]] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Answer:
        """Rewrite the ranges `spans` of `text`, or each sentence; the ranges `locks` stay."""

        def edit() -> EditRequest:
            where, kept = _ranges(spans), _ranges(locks)
            return EditRequest("rewrite", text, strength=strength, spans=where, locks=kept)

        return self._answer(edit, options, request)

    def translate(
        self, request: gr.Request, text: str, options: dict[str, Any] | None = None
    ) -> Answer:
        """German `text` in English, sentence by sentence."""
        return self._answer(lambda: EditRequest("translate", text), options, request)

    def summarise(
        self, request: gr.Request, text: str, options: dict[str, Any] | None = None
    ) -> Answer:
        """What `text` says, shorter."""
        return self._answer(lambda: EditRequest("summarise", text), options, request)

    def modernise(
        self, request: gr.Request, text: str, options: dict[str, Any] | None = None
    ) -> Answer:
        """Archaic English `text` in modern words."""
        return self._answer(lambda: EditRequest("modernise", text), options, request)

    def _answer(
        self,
        make: Callable[[], EditRequest],
        options: dict[str, Any] | None,
        request: gr.Request,
    ) -> Answer:
        """The candidates: text, changes, seed, sample, id in the history, settings, warnings."""
        try:
            given = from_dict(Options, options or {}, "options")
            named = {name: getattr(given, name) for name in options or {}}
            chosen = replace(self.default, **named)
            return self._run(make(), chosen, request)
        except ElfError as error:  # goes to the caller as it is; nothing of a defect does
            raise gr.Error(str(error), print_exception=False) from error

    def _run(self, edit: EditRequest, options: Options, request: gr.Request) -> Answer:
        check_task(self.service, options.model, task_of(edit.editor))
        spec = self.shelf.about(options.model).settings(edit.editor, options.quality)
        edit = replace(
            edit,
            count=options.count,
            quality=options.quality,
            settings=replace(spec, seed=seed_of(options.seed)),
        )
        sent: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        page = page_id(request)
        job = self.service.submit(edit, options.model, options.backend, sent.put, owner=page)
        call = f"call {id(job)}"
        self.runs.start(page, call, job)
        try:
            return self._read(sent, lambda: self._gone(request.session_hash))
        finally:
            self.runs.end(page, call, job)

    def _read(self, sent: queue.SimpleQueue[events.Event], gone: Callable[[], bool]) -> Answer:
        found: Answer = []
        while True:
            try:
                event = sent.get(timeout=_LOOKS_EVERY)
            except queue.Empty:
                if gone():
                    return found
                continue
            match event:
                case Progress() if gone():
                    return found
                case events.Finished(result, id):
                    found.append(_told(result, id))
                case events.Failed(message):
                    raise ElfError(message)
                case events.Done(_):
                    return found

    def _gone(self, session: str | None) -> bool:
        """Whether nobody waits for the answer any more. Gradio does not tell its functions; its
        queue marks the calls of a session whose connection has ended."""
        calls = [e for worker in self.blocks._queue.active_jobs for e in worker or ()]
        mine = [call for call in calls if call.session_hash == session]
        return bool(mine) and not any(call.alive for call in mine)


def _told(result: EditResult, id: str | None) -> dict[str, Any]:
    return {
        "text": result.text,
        "changes": [[c.start, c.stop, c.before, c.after] for c in result.changes],
        "seed": str(result.seed),
        "sample": result.index,
        "id": id,
        "model": result.model,
        "settings": {k: v for k, v in result.settings.items() if k != "seed"},
        "warnings": list(result.warnings),
    }


def _ranges(spans: list[list[int]] | None) -> tuple[tuple[int, int], ...]:
    """Raises ElfError unless all are pairs of whole numbers."""
    try:
        return from_dict(EditRequest, {"editor": "", "spans": spans or []}, "request").spans
    except ElfError as error:
        raise ElfError("ranges are pairs [start, stop] of code points") from error
