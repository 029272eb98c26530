"""What an editor is asked and what it answers; plain frozen values, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elf_engine.config import SampleSpec


@dataclass(frozen=True)
class EditRequest:
    """One edit of one text.

    editor    "draft", "infill", "rewrite", "translate", "modernise", "summarise"
    text      draft: the prefix to continue, may be empty; infill: text with [[...]] gaps;
              the others: the source
    count     number of candidates; candidate i uses noise sample i, so candidate 0 of count 1
              equals candidate 0 of count 4
    first     noise sample of the first candidate: first 2, count 1 is candidate 2 alone
    length    draft: tokens to write; 0 lets the editor choose
    strength  rewrite: share of the flow run again, 0 (the same text) to 1 (written anew)
    spans     rewrite: (start, stop) code-point ranges to rewrite; none means every sentence
    settings  None takes the model's defaults for the task
    texts_every_step   decode the candidates after each step (live view), slower
    """

    editor: str
    text: str = ""
    count: int = 1
    length: int = 0
    settings: SampleSpec | None = None
    texts_every_step: bool = False
    first: int = 0
    strength: float = 0.5
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Progress:
    """State after network step `step` (1-based) of `steps`. `texts` is empty unless asked for."""

    step: int
    steps: int
    t: float
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class EditResult:
    """One candidate: the full text with the edit spliced in, and all that reproduces it."""

    text: str
    seed: int
    index: int
    editor: str
    input: str
    model: str
    model_hash: str
    backend: str
    settings: dict[str, Any]
    seconds: float
    warnings: tuple[str, ...] = ()
    trajectory: tuple[str, ...] = field(default=())
