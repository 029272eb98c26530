"""What an editor is asked and what it answers; plain frozen values, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from elf_engine.config import SampleSpec

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class EditRequest:
    """One edit of one text. Ranges are (start, stop) in code points of `text`.

    editor    "draft", "infill", "rewrite", "translate", "modernise", "summarise"
    text      draft: the prefix to continue, may be empty; infill: text with [[...]] gaps, or any
              text when `spans` say where the gaps are; the others: the source
    count     number of candidates; candidate i uses noise sample i, so candidate 0 of count 1
              equals candidate 0 of count 4
    first     noise sample of the first candidate: first 2, count 1 is candidate 2 alone
    length    draft, infill with spans: how much to write, in `unit`; 0 lets the editor choose
    least     infill with spans: fewest tokens, for a range `least` to `length`; 0: just `length`
    unit      what `length` of a draft counts
    strength  rewrite: share of the flow run again, 0 (the same text) to 1 (written anew)
    spans     infill: ranges to replace, (n, n) inserts; the others: ranges to work on, none means
              every sentence
    locks     rewrite: ranges inside the spans that stay as they are
    style     rewrite: "modern" turns archaic English into modern, where the model has that task
    settings  None takes the model's defaults for the task, at `quality` if that is given
    quality   0 (most varied) to 1 (most likely), by the model's calibration; settings win over it
    distinct  replace candidates that repeat another, or miss the length asked for, by further
              noise samples; EditResult.index tells which sample a candidate really is
    rank      order of the results: by sample number, nearest to the original first, or best
              according to the model first
    texts_every_step   decode the candidates after each step (live view, trajectory), slower
    """

    editor: str
    text: str = ""
    count: int = 1
    length: int = 0
    settings: SampleSpec | None = None
    texts_every_step: bool = False
    first: int = 0
    strength: float = 0.5
    spans: Ranges = ()
    locks: Ranges = ()
    least: int = 0
    unit: Literal["tokens", "words"] = "tokens"
    style: Literal["", "modern"] = ""
    quality: float | None = None
    distinct: bool = False
    rank: Literal["sample", "distance", "fit"] = "sample"


@dataclass(frozen=True)
class Progress:
    """State after network step `step` (1-based) of `steps`, which grows when candidates have to be
    replaced.

    texts    of the candidates, if asked for; for a text of very many rows only as rows are done
    settled  for such a text with one candidate: what of the result became known, from its beginning
             on and in order
    """

    step: int
    steps: int
    t: float
    texts: tuple[str, ...] = ()
    settled: str = ""


@dataclass(frozen=True)
class Change:
    """Characters `start` to `stop` of the input, which are `before`, became `after`."""

    start: int
    stop: int
    before: str
    after: str


@dataclass(frozen=True)
class EditResult:
    """One candidate: the full text with the edit spliced in, and all that reproduces it.

    index       its noise sample: the same request with first=index, count=1 gives it again
    changes     ascending and apart; `editors.splice(input, changes) == text`
    scores      rewrite: "chrf" (0 to 100, likeness of the spans) and "word_edits"; "fit" (mean
                natural log-probability of a written token) when ranked by it
    trajectory  the text after each network step that wrote to this candidate, if asked for
    """

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
    changes: tuple[Change, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
