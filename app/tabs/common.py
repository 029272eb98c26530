"""What the tabs share: plain words to safe HTML, settings in one line, one person's live runs."""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gradio as gr

from app.service import Service
from elf_engine.errors import ElfError

log = logging.getLogger(__name__)

HIDDEN: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
# For what only shows and sets no control: an event during the answer to the last one is answered
# after it. Gradio drops it otherwise, and the page would show an older state than its controls.
LATEST: dict[str, Any] = {**HIDDEN, "trigger_mode": "always_last"}


def status_html(message: str, step: int = 0, steps: int = 0, kind: str = "plain") -> str:
    """The status line: escaped words and, while steps are made, a bar. `kind` is a CSS class."""
    bar = (
        f'<progress value="{step}" max="{steps}" aria-label="Progress"></progress>' if steps else ""
    )
    words = f"<span>{html.escape(message)}</span>"
    return f'<div class="elf-status {kind}" role="status">{words}{bar}</div>'


def caption_html(lines: list[str], warnings: list[str]) -> str:
    """Small print under a candidate, escaped."""
    parts = [f"<div>{html.escape(line)}</div>" for line in lines]
    parts += [f'<div class="warn">Note: {html.escape(w)}</div>' for w in warnings]
    return f'<div class="elf-caption">{"".join(parts)}</div>'


def made_html(lines: list[str]) -> str:
    """How a candidate was made, folded away."""
    return f"<details><summary>How it was made</summary>{caption_html(lines, [])}</details>"


def warn(message: str) -> None:
    """A notice in the page. Gradio renders notices as HTML, so the words are escaped here."""
    gr.Warning(html.escape(message), duration=8, title="ELF Studio")


def settings_line(settings: Mapping[str, Any]) -> str:
    """The settings as used, in one line."""
    told = {k: v for k, v in settings.items() if k != "seed"}
    if told.get("effective_steps") == told.get("steps"):
        told.pop("effective_steps", None)
    return ", ".join(
        f"{k.replace('_', ' ')} {v:g}" if isinstance(v, float) else f"{k.replace('_', ' ')} {v}"
        for k, v in told.items()
    )


def guarded(fn: Callable[..., Any], fallback: Any) -> Any:
    """`fn()`; when it fails, a notice in the page and `fallback`."""
    try:
        return fn()
    except ElfError as error:
        warn(str(error))
    except Exception as error:
        log.exception("the page failed")
        warn(f"something went wrong inside ELF Studio ({type(error).__name__}); its log says more")
    return fallback


class Stoppable(Protocol):
    """A job of the service, or several that belong together."""

    def cancel(self) -> None: ...


class LiveRuns:
    """The runs now under way, by browser page and tab, so that Stop finds its own and no other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], Stoppable] = {}

    def start(self, page: str, tab: str, job: Stoppable) -> None:
        """Register a run; an earlier one of the same tab is stopped."""
        with self._lock:
            earlier, self._jobs[page, tab] = self._jobs.get((page, tab)), job
        if earlier is not None:
            earlier.cancel()

    def end(self, page: str, tab: str, job: Stoppable) -> None:
        """Forget the run, stopping it if nobody reads it to the end."""
        job.cancel()
        with self._lock:
            if self._jobs.get((page, tab)) is job:
                del self._jobs[page, tab]

    def stop(self, page: str, tab: str | None = None) -> None:
        """Stop the run of one tab, or all of a page that was closed."""
        with self._lock:
            jobs = [j for (p, t), j in self._jobs.items() if p == page and tab in (None, t)]
        for job in jobs:
            job.cancel()


@dataclass(frozen=True)
class Page:
    """What every tab is built with."""

    service: Service
    runs: LiveRuns
    tabs: gr.Tabs
    model: gr.Dropdown
    backend: gr.Dropdown


def page_id(request: gr.Request) -> str:
    """One browser page and whose it is, "page@account"; a reload makes a new one."""
    return f"{request.session_hash or ''}@{getattr(request, 'username', None) or ''}"
