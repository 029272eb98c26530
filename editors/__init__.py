"""Editing text with an ELF model: one request in, progress and results out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from editors import calibration
from editors.calibration import settings
from editors.changes import show_changes, splice, word_diff
from editors.draft import plan_draft
from editors.infill import plan_infill
from editors.models import choose_model, task_of
from editors.pairs import PAIR_TASKS, plan_pair
from editors.plan import Engine, Plan, check_text
from editors.request import Change, EditRequest, EditResult, Progress
from editors.rewrite import plan_rewrite
from editors.runner import run_plan
from editors.spans import find_words
from elf_engine.config import from_dict
from elf_engine.errors import ElfError

__all__ = [
    "EDITORS",
    "Change",
    "EditRequest",
    "EditResult",
    "Progress",
    "check",
    "choose_model",
    "edit",
    "find_words",
    "run",
    "settings",
    "show_changes",
    "splice",
    "task_of",
    "word_diff",
]

MOST_CANDIDATES = 256

EDITORS: dict[str, Callable[[Engine, EditRequest], Plan]] = {
    "draft": plan_draft,
    "infill": plan_infill,
    "rewrite": plan_rewrite,
    **dict.fromkeys(PAIR_TASKS, plan_pair),
}
# Fields that only some editors know; elsewhere they would be ignored without a word.
_ONLY = {
    "spans": ("infill", "rewrite", *PAIR_TASKS),
    "locks": ("rewrite",),
    "style": ("rewrite",),
    "length": ("draft", "infill"),
    "least": ("infill",),
}


def run(engine: Engine, request: EditRequest) -> Iterator[Progress | EditResult]:
    """Progress after every network step, then one result per candidate.

    A bad request raises ElfError here, before any step. Closing the iterator stops the work
    between two steps. Candidate i uses noise sample i whatever `count` is.
    """
    check(request)
    check_text(request.text)
    plan = EDITORS[request.editor](engine, request)
    kind = "modernise" if request.style == "modern" else request.editor
    at_quality = settings(engine, kind, request.quality)
    noted: dict[str, Any] = {}
    if request.quality is not None:
        table = calibration.source(engine, kind)
        noted = {"quality": request.quality, "calibration": table}
        if table == "built in":
            note = f"quality {request.quality} is by the built-in table; the model has no own one"
            plan = replace(plan, warnings=(*plan.warnings, note))
    return run_plan(engine, request, plan, request.settings or at_quality, noted)


def edit(engine: Engine, request: EditRequest) -> list[EditResult]:
    """The results of `run` alone."""
    return [item for item in run(engine, request) if isinstance(item, EditResult)]


def check(request: EditRequest) -> None:
    """Raises ElfError for what is wrong with a request whatever the model and the text are."""
    # Callers of the HTTP interface send any type; a wrong one that ran could not be read back.
    from_dict(EditRequest, asdict(request), "request")
    if request.editor not in EDITORS:
        raise ElfError(f"editor '{request.editor}' is unknown; use one of {', '.join(EDITORS)}")
    if not 1 <= request.count <= MOST_CANDIDATES:
        raise ElfError(f"count {request.count} is outside 1 to {MOST_CANDIDATES}")
    if request.first < 0:
        raise ElfError(f"first {request.first} is below 0; candidates count from 0")
    for name, known_by in _ONLY.items():
        if getattr(request, name) and request.editor not in known_by:
            raise ElfError(f"{request.editor} takes no {name}; {', '.join(known_by)} can have it")
    if request.rank == "distance" and request.editor not in ("rewrite", "modernise"):
        raise ElfError(f"{request.editor} has no distance to rank by; rewrite does")
    if request.unit == "words" and request.editor != "draft":
        raise ElfError("only a draft is as many words long as asked; use tokens")
