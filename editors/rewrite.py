"""Rewrite: spans start from their own text mixed with noise, so the answer stays near it.

Every span is an infill row whose free region holds the span; the flow starts at t = 1 - strength
from its latents (ELF.md, "Flow") instead of at 0 from noise. Text outside the spans stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from editors.infill import context, fit_in
from editors.plan import (
    Answer,
    Engine,
    Plan,
    Regions,
    broken_bytes,
    check_text,
    decode_after,
    room,
    without_space,
)
from editors.request import EditRequest
from editors.sentences import segments
from editors.window import CHARACTERS, split_to_fit
from elf_engine.errors import ElfError
from elf_engine.layout import Free, Piece, Row, build_row, cut_at_eos


@dataclass(frozen=True)
class _Span:
    """Characters `start` to `stop`, the row that rewrites them, and the ids in front of them."""

    start: int
    stop: int
    row: Row
    before: tuple[int, ...]


def plan_rewrite(engine: Engine, request: EditRequest) -> Plan:
    """Rows: [infill] left FREE right, one per span, or per sentence when no span is given.

    Raises ElfError for a strength outside 0 to 1, or a span that is empty, overlaps another, lies
    outside the text or does not fit the model.
    """
    text = request.text
    check_text(text)
    if not 0 <= request.strength <= 1:
        raise ElfError(f"strength {request.strength} is outside 0 to 1")
    space = room(engine, "infill")
    ranges = _checked(request.spans, text) or _sentences(engine, text, space // 2)
    if not ranges:
        raise ElfError("there is no text to rewrite; give some")
    settings = (("strength", request.strength),)
    if request.strength == 0:
        return Plan((), lambda _: Answer(text), settings=settings)
    spans = [_span(engine, text, start, stop, space) for start, stop in ranges]

    def assemble(rows: Sequence[Regions]) -> Answer:
        out, notes, done = [], [], 0
        for span, regions in zip(spans, rows, strict=True):
            ids = cut_at_eos(regions[0], engine.tokenizer.eos_id)
            answer = decode_after(engine.tokenizer, span.before, ids)
            near = text[max(span.start - 1, 0) : span.start], text[span.stop : span.stop + 1]
            out += [text[done : span.start], fit_in(near[0], answer, near[1])]
            done = span.stop
            if not answer.strip():
                notes.append(f"characters {span.start} to {span.stop} came back empty")
            notes += broken_bytes(answer, f"characters {span.start} to {span.stop}")
        return Answer("".join(out) + text[done:], tuple(notes))

    rows = tuple(span.row for span in spans)
    return Plan(rows, assemble, settings=settings, t_start=1 - request.strength)


def _checked(spans: Sequence[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    done = 0
    for start, stop in sorted(spans):
        if not done <= start < stop <= len(text):
            raise ElfError(
                f"span {start}:{stop} is empty, overlaps another or lies outside the text's "
                f"{len(text)} characters"
            )
        done = stop
    return sorted(spans)


def _sentences(engine: Engine, text: str, limit: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    position = 0
    for segment in segments(text):
        wanted = not segment.gap and re.search(r"\w", segment.text)
        for piece in split_to_fit(engine.tokenizer, segment.text, limit) if wanted else ():
            start = position + len(piece) - len(piece.lstrip())
            ranges.append((start, start + len(piece.strip())))
            position += len(piece)
        position += 0 if wanted else len(segment.text)
    return [(start, stop) for start, stop in ranges if start < stop]


def _span(engine: Engine, text: str, start: int, stop: int, space: int) -> _Span:
    tokenizer = engine.tokenizer
    reach = space * CHARACTERS
    left_text = without_space(text[max(0, start - reach) : start])
    # The space before a span belongs to its first piece (see `plan.without_space`).
    lead = " " if text[max(start - 1, 0) : start] == " " else ""
    ids = tokenizer.encode(lead + text[start:stop])
    # A little room to grow, ended by EOS as in training.
    size = len(ids) + max(2, len(ids) // 4)
    if size > space:
        raise ElfError(
            f"span {start}:{stop} has {len(ids)} tokens; this model rewrites at most "
            f"{space * 4 // 5} at once, so choose smaller spans"
        )
    left, right = context(tokenizer, left_text, text[stop : stop + reach], space - size)
    pieces: list[Piece] = [left.ids, Free(size, tuple(ids)), right.ids]
    row = build_row(engine.config.layout, tokenizer.eos_id, "infill", pieces)
    return _Span(start, stop, row, left.ids)
