"""Translate, summarise, modernise: a source in, another text out, from pair rows.

A text longer than one row is cut into sentences, each its own row; the white space between them
is not touched. Nothing is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from editors.plan import Answer, Engine, Plan, Regions, broken_bytes, room
from editors.request import Change, EditRequest, Ranges
from editors.sentences import Segment, segments, unwrap
from editors.spans import Spans, check_spans
from editors.window import split_to_fit, tokens_up_to
from elf_engine.errors import ElfError
from elf_engine.layout import Free, Row, build_row, cut_at_eos, pair_pieces

PAIR_TASKS = ("translate", "modernise", "summarise")
# The smallest share of a row kept for the answer when the model sets no limit on the source.
_ANSWER_SHARE = {"translate": 0.6, "modernise": 0.6, "summarise": 0.2}
# A summary needs its whole text; the others were trained on sentence pairs.
_WHOLE = ("summarise",)
_LANGUAGE = {"translate": "de"}


@dataclass(frozen=True)
class _Unit:
    """Characters `start` to `stop`, answered by rows `first` to `last` (not included)."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def stops(self) -> tuple[int, ...]:
        """Up to where the text is settled once each of the rows is done (see `Plan`)."""
        return (*[self.start] * (self.last - self.first - 1), self.stop)


def plan_pair(engine: Engine, request: EditRequest) -> Plan:
    """Rows: [task] source [sep] FREE, one per sentence (summarise: as few as hold the text)."""
    spans = check_spans(request.text, request.spans)
    return plan_ranges(engine, request.editor, request.text, spans)


def plan_ranges(engine: Engine, task: str, text: str, spans: Spans) -> Plan:
    """The plan of a pair task on these ranges of a text, on all of it when there are none.

    Raises ElfError when the model lacks the task or there is nothing to work on.
    """
    limit = _source_limit(engine, task)
    ranges = spans.ranges or ((0, len(text)),)
    if not any(text[a:b].strip() for a, b in ranges):
        raise ElfError(f"there is no text to {task}; give some")
    units: list[_Unit] = []
    rows: list[Row] = []
    split = False
    for segment in _segments(engine, task, text, ranges, limit):
        pieces = split_to_fit(engine.tokenizer, unwrap(segment.text), limit)
        split = split or len(pieces) > 1
        units.append(_Unit(segment.start, segment.stop, len(rows), len(rows) + len(pieces)))
        rows += [_row(engine, task, piece.strip()) for piece in pieces]
    warnings = (*spans.warnings, *_warnings(task, len(rows), split, limit))
    stops = tuple(stop for unit in units for stop in unit.stops)
    assemble = _Assembler(engine, text, units)
    return Plan(tuple(rows), assemble, warnings, scored=task == "modernise", stops=stops)


def _source_limit(engine: Engine, task: str) -> int:
    layout = engine.config.layout
    space = room(engine, task) - (layout.sep_id >= 0)
    most = layout.max_source or int(space * (1 - _ANSWER_SHARE[task]))
    return max(1, min(most, space - 1))


def _segments(engine: Engine, task: str, text: str, ranges: Ranges, limit: int) -> list[Segment]:
    """What goes through the model: sentences, or as many as fit for a task that needs the whole.
    Nothing without a letter or digit does."""
    found: list[Segment] = []
    for start, stop in ranges:
        parts = segments(text[start:stop], _LANGUAGE.get(task, "en"))
        parts = [p for p in parts if not p.gap and re.search(r"\w", p.text)]
        moved = [Segment(start + p.start, start + p.stop, p.text) for p in parts]
        found += _joined(engine, text, moved, limit) if task in _WHOLE else moved
    return found


def _joined(engine: Engine, text: str, parts: Sequence[Segment], limit: int) -> list[Segment]:
    units: list[Segment] = []
    for part in parts:
        if units:
            both = text[units[-1].start : part.stop]
            if tokens_up_to(engine.tokenizer, both, limit) <= limit:
                units[-1] = Segment(units[-1].start, part.stop, both)
                continue
        units.append(part)
    return units


def _row(engine: Engine, task: str, source: str) -> Row:
    """Room for the answer follows the length of the source, as in training; models that attend to
    padding were trained with all the rest of the row."""
    layout, eos = engine.config.layout, engine.tokenizer.eos_id
    ids = engine.tokenizer.encode(source)
    around = len(build_row(layout, eos, task, pair_pieces(layout, ids, Free(1)))) - 1
    most = engine.max_tokens - around
    wanted = len(ids) // 3 + 12 if task in _WHOLE else len(ids) + len(ids) // 2 + 8
    size = most if layout.padding == "attended" else min(wanted, most)
    return build_row(layout, eos, task, pair_pieces(layout, ids, Free(size)))


@dataclass(frozen=True)
class _Assembler:
    """`Plan.assemble` of the units."""

    engine: Engine
    text: str
    units: Sequence[_Unit]

    def __call__(self, rows: Sequence[Regions | None]) -> Answer:
        changes: list[Change] = []
        notes: list[str] = []
        for unit in self.units:
            source = self.text[unit.start : unit.stop]
            about = f"the answer to '{_quote(source)}'"
            answers = []
            for regions in rows[unit.first : unit.last]:
                if regions is None:
                    break
                ids = cut_at_eos(regions[0].ids, self.engine.tokenizer.eos_id)
                answers.append(self.engine.tokenizer.decode(ids).strip())
                if not answers[-1]:
                    notes.append(f"{about} came back empty")
                elif len(ids) == len(regions[0].ids):
                    notes.append(f"{about} fills its {len(ids)} tokens; it may go on")
            else:
                answer = " ".join(filter(None, answers))
                changes.append(Change(unit.start, unit.stop, source, answer))
                notes += broken_bytes(answer, about)
        return Answer(tuple(changes), tuple(notes))


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 30 else line[:29] + "…"


def _warnings(task: str, rows: int, split: bool, limit: int) -> tuple[str, ...]:
    notes = []
    if split:
        notes.append(f"a sentence of more than {limit} tokens was cut in pieces that fit the model")
    if task in _WHOLE and rows > 1:
        notes.append(f"the text does not fit the model; it was taken in {rows} parts")
    return tuple(notes)
