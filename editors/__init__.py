"""Editing text with an ELF model: one request in, progress and results out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from editors.draft import plan_draft
from editors.infill import plan_infill
from editors.plan import Engine, Plan
from editors.request import EditRequest, EditResult, Progress
from editors.rewrite import plan_rewrite
from editors.runner import run_plan
from editors.translate import PAIR_TASKS, plan_pair
from elf_engine.errors import ElfError

__all__ = ["EDITORS", "EditRequest", "EditResult", "Progress", "run"]

MOST_CANDIDATES = 256

EDITORS: dict[str, Callable[[Engine, EditRequest], Plan]] = {
    "draft": plan_draft,
    "infill": plan_infill,
    "rewrite": plan_rewrite,
    **dict.fromkeys(PAIR_TASKS, plan_pair),
}


def run(engine: Engine, request: EditRequest) -> Iterator[Progress | EditResult]:
    """Progress after every network step, then one result per candidate.

    A bad request raises ElfError here, before any step. Closing the iterator stops the work
    between two steps. Candidate i uses noise sample i whatever `count` is.
    """
    if request.editor not in EDITORS:
        raise ElfError(f"editor '{request.editor}' is unknown; use one of {', '.join(EDITORS)}")
    if not 1 <= request.count <= MOST_CANDIDATES:
        raise ElfError(f"count {request.count} is outside 1 to {MOST_CANDIDATES}")
    if request.first < 0:
        raise ElfError(f"first {request.first} is below 0; candidates count from 0")
    spec = request.settings or engine.defaults(request.editor)
    return run_plan(engine, request, EDITORS[request.editor](engine, request), spec)
