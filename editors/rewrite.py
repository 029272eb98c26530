"""Rewrite: spans start from their own text mixed with noise, so the answer stays near it.

Every span is an infill row whose free regions hold the span, its locked words known between them;
the flow starts at t = 1 - strength from its latents (ELF.md, "Flow") instead of at 0 from noise.
"""

from __future__ import annotations

import re

from editors.holes import Filler, Filling, Group, Hole, lay_out, seen_note
from editors.pairs import plan_ranges
from editors.plan import Answer, Engine, Plan, room
from editors.request import EditRequest, Ranges
from editors.sentences import segments
from editors.spans import Spans, check_spans, holes_between, joined
from editors.window import CHARACTERS, split_to_fit
from elf_engine.errors import ElfError

# Below it no time of a step is left.
_LEAST_STRENGTH = 1e-4


def plan_rewrite(engine: Engine, request: EditRequest) -> Plan:
    """Rows: [infill] left FREE lock FREE ... right, one per span, or per sentence without spans.

    Raises ElfError for a strength outside 0 to 1, spans or locks that are none, and a span that
    does not fit the model.
    """
    text = request.text
    if not (request.strength == 0 or _LEAST_STRENGTH <= request.strength <= 1):
        raise ElfError(
            f"strength {request.strength} is outside 0 to 1; it is 0 for the same text, or at "
            f"least {_LEAST_STRENGTH}"
        )
    spans = check_spans(text, request.spans)
    locks = check_spans(text, joined(request.locks), what="lock")
    if request.style == "modern":
        if locks.ranges:
            raise ElfError("style modern writes every word anew; leave out the locks or the style")
        return plan_ranges(engine, "modernise", text, spans)
    space = room(engine, "infill")
    ranges = spans.ranges or _sentences(engine, text, space // 2)
    if not ranges and request.strength > 0:
        raise ElfError("there are no words to rewrite; give some, or say by a span what to rewrite")
    _check_locks(ranges, locks.ranges)
    settings = (("strength", request.strength),)
    warnings = (*spans.warnings, *locks.warnings)
    if request.strength == 0:
        return Plan((), lambda _: Answer(), warnings, settings, scored=True)
    fillings = [
        lay_out(engine, _group(engine, text, span, locks.ranges, space), space) for span in ranges
    ]
    warnings += _seen(fillings, spans)
    rows = tuple(filling.row for filling in fillings)
    # Rounded, so that strength 0.9 starts at 0.1 and not just below it.
    t_start = round(1 - request.strength, 9)
    fill, stops = Filler(engine, text, fillings), tuple(filling.stop for filling in fillings)
    return Plan(rows, fill, warnings, settings, t_start, scored=True, stops=stops)


def _check_locks(ranges: Ranges, locks: Ranges) -> None:
    for start, stop in locks:
        if not any(a <= start and stop <= b for a, b in ranges):
            raise ElfError(f"lock {start}:{stop} lies inside none of the spans")


def _sentences(engine: Engine, text: str, limit: int) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for segment in segments(text):
        position = segment.start
        if segment.gap or not re.search(r"\w", segment.text):
            continue
        for piece in split_to_fit(engine.tokenizer, segment.text, limit):
            start = position + len(piece) - len(piece.lstrip())
            ranges.append((start, start + len(piece.strip())))
            position += len(piece)
    return tuple((start, stop) for start, stop in ranges if start < stop)


def _group(engine: Engine, text: str, span: tuple[int, int], locks: Ranges, space: int) -> Group:
    start, stop = span
    parts = holes_between(text, span, locks)
    if not parts:
        raise ElfError(f"all of {start}:{stop} is locked; there is nothing to rewrite")
    holes = [_hole(engine, text, part) for part in parts]
    edges = [(0, parts[0][0]), *zip((b for _, b in parts), (a for a, _ in parts[1:]), strict=False)]
    reach = space * CHARACTERS
    edges[0] = (max(0, parts[0][0] - reach), parts[0][0])
    edges.append((parts[-1][1], parts[-1][1] + reach))
    outside = tuple(text[a:b] for a, b in edges)
    beyond = edges[0][0] + max(0, len(text) - edges[-1][1])
    needed = sum(hole.size for hole in holes)
    needed += sum(len(engine.tokenizer.encode(known)) for known in outside[1:-1])
    if needed > space:
        raise ElfError(
            f"span {start}:{stop} needs {needed} tokens; this model rewrites at most {space} at "
            "once, its locks included, so choose smaller spans"
        )
    return Group(outside, tuple(holes), beyond)


def _hole(engine: Engine, text: str, part: tuple[int, int]) -> Hole:
    start, stop = part
    # The space before a hole belongs to its first piece (see `plan.without_space`).
    lead = " " if text[max(start - 1, 0) : start] == " " else ""
    ids = tuple(engine.tokenizer.encode(lead + text[start:stop]))
    # A little room to grow, ended by EOS as in training.
    size = len(ids) + max(2, len(ids) // 4)
    return Hole(start, stop, size, f"characters {start} to {stop}", origin=ids)


def _seen(fillings: list[Filling], spans: Spans) -> tuple[str, ...]:
    if spans.ranges:
        notes = [note for f in fillings for note in seen_note(f, f.group.holes[0].name)]
        return tuple(notes)
    if any(filling.hidden for filling in fillings):
        return ("the text is longer than the model sees; each sentence was read with its context",)
    return ()
