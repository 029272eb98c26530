"""From what the Write page sends at a click to the request that is run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

from editors.gaps import parse_gaps
from editors.request import EditRequest, Ranges
from editors.sentences import segments
from editors.spans import check_spans, find_words
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

ACTS = ("infill", "rewrite", "draft")
MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Ask:
    """The document and the selection in it, in code points, as they were at the click.

    run     names the click, so that its candidates are put into the document it was about
    chosen  the words the person saw selected; they must be what `start` to `stop` says
    parent  history id of the candidate accepted last, "" without one
    """

    run: str
    act: str
    text: str
    start: int
    stop: int
    chosen: str
    parent: str


@dataclass(frozen=True)
class Length:
    """How much to write. `least` to `most` tokens of an infill; 0 lets the model choose.
    `draft` tokens or words of a continuation."""

    least: int = 0
    most: int = 0
    draft: int = 0
    unit: Literal["tokens", "words"] = "tokens"


@dataclass(frozen=True)
class Wishes:
    """What the knobs say besides the sampling settings."""

    count: int = 1
    first: int = 0
    strength: float = 0.5
    keep: tuple[str, ...] = ()
    length: Length = Length()
    live: bool = True
    quality: float | None = None


@dataclass(frozen=True)
class Task:
    """A request, the part of its text that may change, and what to tell beforehand."""

    request: EditRequest
    start: int
    stop: int
    notes: tuple[str, ...] = ()


def read_ask(raw: str) -> Ask:
    """Raises ElfError for anything but a document with a range inside it."""
    try:
        data = json.loads(raw)
    except (TypeError, ValueError) as error:
        raise ElfError("the page sent no document; reload it") from error
    kinds = {"run": str, "act": str, "text": str, "start": int, "stop": int}
    kinds |= {"chosen": str, "parent": str}
    if not isinstance(data, dict) or set(data) != set(kinds):
        raise ElfError("the page sent no document; reload it")
    if any(type(data[name]) is not kind for name, kind in kinds.items()):
        raise ElfError("the page sent no document; reload it")
    ask = Ask(**data)
    if ask.act not in ACTS:
        raise ElfError(f"'{ask.act}' is nothing this page does; it does {', '.join(ACTS)}")
    if len(ask.text) > MOST_CHARACTERS:
        raise ElfError(
            f"the text has {len(ask.text)} characters; this page takes {MOST_CHARACTERS} at most"
        )
    if not 0 <= ask.start <= ask.stop <= len(ask.text):
        raise ElfError(f"the selection {ask.start}:{ask.stop} lies outside the text; select again")
    if ask.text[ask.start : ask.stop] != ask.chosen:
        raise ElfError("the selection is not what was seen selected; select again")
    return ask


def task_of(ask: Ask, wishes: Wishes, settings: SampleSpec) -> Task:
    """The request for a click. Raises ElfError when there is nothing to do it to."""
    request = EditRequest(
        ask.act,
        ask.text,
        count=wishes.count,
        first=wishes.first,
        settings=settings,
        quality=wishes.quality,
        texts_every_step=wishes.live,
        distinct=wishes.count > 1,
    )
    make = {"infill": _infill, "rewrite": _rewrite, "draft": _draft}[ask.act]
    return make(request, ask, wishes)


def _draft(request: EditRequest, ask: Ask, wishes: Wishes) -> Task:
    """Continue from the end of the selection; what follows stays behind it."""
    before = ask.text[: ask.stop]
    length = wishes.length
    request = replace(request, text=before, length=length.draft, unit=length.unit)
    return Task(request, ask.stop, ask.stop)


def _infill(request: EditRequest, ask: Ask, wishes: Wishes) -> Task:
    """Replace the selection; without one fill the marked gaps, or write at the cursor."""
    if ask.start == ask.stop and (places := _gaps(ask.text)):
        return Task(request, places[0][0], places[-1][1])
    length = wishes.length
    spans = check_spans(ask.text, [(ask.start, ask.stop)], empty=True)
    request = replace(request, spans=spans.ranges, least=length.least, length=length.most)
    return Task(request, *spans.ranges[0], spans.warnings)


def _gaps(text: str) -> Ranges:
    try:
        template = parse_gaps(text)
    except ElfError:  # brackets of the text's own; the cursor says where to write
        return ()
    edges = [*template.places, *((e.start, e.stop) for e in template.escapes)]
    return tuple(sorted(edges)) if template.places else ()


def _rewrite(request: EditRequest, ask: Ask, wishes: Wishes) -> Task:
    spans = _sentences(ask)
    locks: list[tuple[int, int]] = []
    notes: list[str] = []
    for words in wishes.keep:
        try:
            locks += find_words(ask.text, words, spans)
        except ElfError:
            notes.append(f"“{words}” is not in the selection, so there was nothing to keep.")
    request = replace(
        request, spans=spans, locks=_apart(locks), strength=wishes.strength, rank="distance"
    )
    return Task(request, spans[0][0], spans[-1][1], tuple(notes))


def _apart(ranges: list[tuple[int, int]]) -> Ranges:
    """The ranges in order; one that lies inside another or overlaps it is joined to it."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return tuple(found)


def _sentences(ask: Ask) -> Ranges:
    """The selection, sentence by sentence when it holds several; without a selection the sentence
    with the cursor."""
    if ask.start < ask.stop:
        (span,) = check_spans(ask.text, [(ask.start, ask.stop)]).ranges
        parts = _worded(ask.text[slice(*span)], span[0])
        return parts if len(parts) > 1 else (span,)
    around = [r for r in _worded(ask.text, 0) if r[0] <= ask.start <= r[1]]
    if not around:
        raise ElfError("select what to rewrite, or put the cursor into a sentence")
    return (around[-1],)


def _worded(text: str, offset: int) -> Ranges:
    """Sentences that hold a word, without the white space around them."""
    found = []
    for s in segments(text):
        start = s.start + len(s.text) - len(s.text.lstrip())
        stop = s.stop - len(s.text) + len(s.text.rstrip())
        if not s.gap and any(c.isalnum() for c in s.text):
            found.append((offset + start, offset + stop))
    return tuple(found)


def in_words(data: Any) -> tuple[str, ...]:
    """Words to keep as typed: "Clara, the old house" is two."""
    return tuple(dict.fromkeys(w for part in str(data or "").split(",") if (w := part.strip())))
