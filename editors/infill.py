"""Infill: write into the gaps of a text. Everything outside the gaps comes back byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

from editors.gaps import Gap, Template, parse_gaps
from editors.holes import Filler, Group, Hole, lay_out, seen_note
from editors.plan import Answer, Engine, Plan, Regions, room, without_space
from editors.request import EditRequest
from editors.spans import check_spans
from editors.window import tokens_up_to
from elf_engine.errors import ElfError
from elf_engine.tokens import Tokenizer

# Tokens offered to a gap whose length the model chooses.
_AUTO = 10


def plan_infill(engine: Engine, request: EditRequest) -> Plan:
    """Row: [infill] left FREE middle FREE ... right; several rows when the gaps lie too far apart.

    Raises ElfError when the text has no gap, or one larger than the model's row.
    """
    space = room(engine, "infill")
    warnings: tuple[str, ...] = ()
    if request.spans:
        spans = check_spans(request.text, request.spans, empty=True)
        template, warnings = _template(engine, request, spans.ranges, space), spans.warnings
    else:
        template = parse_gaps(request.text)
    if not template.gaps:
        raise ElfError("the text has no gap; mark one with [[n]], [[min-max]] or [[]]")
    holes = [
        _hole(number, gap, place, space)
        for number, (gap, place) in enumerate(zip(template.gaps, template.places, strict=True), 1)
    ]
    fillings = [
        lay_out(engine, Group(template.outside[a : b + 2], tuple(holes[a : b + 1])), space)
        for a, b in _runs(engine.tokenizer, template, holes, space)
    ]
    fill = Filler(engine, request.text, fillings)

    def assemble(rows: Sequence[Regions | None]) -> Answer:
        answer = fill(rows)
        changes = sorted((*answer.changes, *template.escapes), key=lambda change: change.start)
        return Answer(tuple(changes), answer.warnings, answer.fits)

    if len(fillings) > 1:
        warnings += (f"the gaps do not fit one window; {len(fillings)} separate ones were used",)
    for filling in fillings:
        inside = filling.group.holes
        last = f" to {inside[-1].name}" if len(inside) > 1 else ""
        warnings += tuple(seen_note(filling, inside[0].name + last))
    return Plan(
        tuple(filling.row for filling in fillings),
        assemble,
        warnings,
        least=tuple(filling.least for filling in fillings),
        stops=tuple(filling.stop for filling in fillings),
    )


def _template(
    engine: Engine, request: EditRequest, spans: Sequence[tuple[int, int]], space: int
) -> Template:
    text = request.text
    if not 0 <= request.least <= max(request.length, 0) <= space:
        raise ElfError(
            f"length {request.least}-{request.length} is no range up to the {space} tokens "
            "this model writes at once"
        )
    gaps, outside, done = [], [], 0
    for start, stop in spans:
        gap = Gap(request.least or request.length, request.length)
        if request.length == 0:
            own = tokens_up_to(engine.tokenizer, text[start:stop], space)
            if own > space:
                raise ElfError(f"span {start}:{stop} is longer than the {space} tokens at a time")
            gap = Gap(0, 0, min(max(_AUTO, own + own // 2), max(1, space // 2, own)))
        gaps.append(gap)
        outside.append(text[done:start])
        done = stop
    return Template((*outside, text[done:]), tuple(gaps), tuple(spans))


def _hole(number: int, gap: Gap, place: tuple[int, int], space: int) -> Hole:
    if gap.high > space:
        raise ElfError(f"the gap {gap.mark} is too large; this model writes at most {space} tokens")
    size = gap.high or gap.room or min(_AUTO, max(1, space // 2))
    return Hole(*place, size, f"gap {number}", gap.low, gap.high)


def _runs(
    tokenizer: Tokenizer, template: Template, holes: Sequence[Hole], space: int
) -> list[tuple[int, int]]:
    """Neighbouring gaps that fit one row together with some context, as (first, last)."""
    context = min(32, space // 4)
    runs: list[tuple[int, int]] = []
    first, used = 0, holes[0].size
    for k in range(1, len(holes)):
        middle = tokens_up_to(tokenizer, without_space(template.outside[k]), space)
        if used + middle + holes[k].size + context > space:
            runs.append((first, k - 1))
            first, used = k, holes[k].size
        else:
            used += middle + holes[k].size
    return [*runs, (first, len(holes) - 1)]
