"""Translate, summarise, modernise: a source in, another text out, from pair rows.

A text longer than one row is cut into sentences, each its own row, and put together again with
the very white space that stood between them. Nothing is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from editors.plan import Answer, Engine, Plan, Regions, broken_bytes, check_text, room
from editors.request import EditRequest
from editors.sentences import Segment, segments, unwrap
from editors.window import split_to_fit, tokens_up_to
from elf_engine.errors import ElfError
from elf_engine.layout import Free, Row, build_row, cut_at_eos, pair_pieces

PAIR_TASKS = ("translate", "modernise", "summarise")
# The smallest share of a row kept for the answer when the model sets no limit on the source.
_ANSWER_SHARE = {"translate": 0.6, "modernise": 0.6, "summarise": 0.2}
# A summary needs its whole text; the others were trained on sentence pairs.
_WHOLE = ("summarise",)


@dataclass(frozen=True)
class _Part:
    """A stretch of the output: text kept as it is, or (`row` >= 0) the answer of that row."""

    text: str
    row: int = -1


def plan_pair(engine: Engine, request: EditRequest) -> Plan:
    """Rows: [task] source [sep] FREE, one per sentence (summarise: as few as hold the text).

    Raises ElfError when the model lacks the task or there is nothing to work on.
    """
    task = request.editor
    check_text(request.text)
    limit = _source_limit(engine, task)
    if not request.text.strip():
        raise ElfError(f"there is no text to {task}; give some")
    parts: list[_Part] = []
    rows: list[Row] = []
    split = False
    for segment in _units(engine, task, request.text, limit):
        if segment.gap or not re.search(r"\w", segment.text):
            parts.append(_Part(segment.text))
            continue
        pieces = split_to_fit(engine.tokenizer, unwrap(segment.text), limit)
        split = split or len(pieces) > 1
        for k, piece in enumerate(pieces):
            parts += [_Part(" ")] if k else []
            parts.append(_Part(segment.text, len(rows)))
            rows.append(_row(engine, task, piece.strip()))
    return Plan(tuple(rows), _Assembler(engine, parts), _warnings(task, len(rows), split, limit))


def _source_limit(engine: Engine, task: str) -> int:
    layout = engine.config.layout
    space = room(engine, task) - (layout.sep_id >= 0)
    most = layout.max_source or int(space * (1 - _ANSWER_SHARE[task]))
    return max(1, min(most, space - 1))


def _units(engine: Engine, task: str, text: str, limit: int) -> list[Segment]:
    found = segments(text)
    if task not in _WHOLE:
        return found
    units: list[Segment] = []
    for segment in found:
        last = units[-1].text + segment.text if units else ""
        if last and tokens_up_to(engine.tokenizer, last.strip(), limit) <= limit:
            units[-1] = Segment(last, units[-1].gap and segment.gap)
        else:
            units.append(segment)
    return [s for unit in units for s in _trimmed(unit)]


def _trimmed(unit: Segment) -> list[Segment]:
    body = unit.text.strip()
    start = unit.text.find(body)
    around = ((unit.text[:start], True), (body, False), (unit.text[start + len(body) :], True))
    return [Segment(text, gap) for text, gap in around if text]


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


class _Assembler:
    """Puts answers and kept text together."""

    def __init__(self, engine: Engine, parts: Sequence[_Part]) -> None:
        self._engine = engine
        self._parts = parts

    def __call__(self, rows: Sequence[Regions]) -> Answer:
        eos = self._engine.tokenizer.eos_id
        out: list[str] = []
        notes: list[str] = []
        for part in self._parts:
            if part.row < 0:
                out.append(part.text)
                continue
            region = rows[part.row][0]
            ids = cut_at_eos(region, eos)
            answer = self._engine.tokenizer.decode(ids).strip()
            out.append(answer)
            about = _quote(part.text)
            if not answer:
                notes.append(f"the answer to '{about}' came back empty")
            elif len(ids) == len(region):
                notes.append(f"the answer to '{about}' fills its {len(ids)} tokens; it may go on")
            notes += broken_bytes(answer, f"the answer to '{about}'")
        return Answer("".join(out), tuple(notes))


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
