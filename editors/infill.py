"""Infill: write into the gaps of a text. Everything outside the gaps comes back byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editors.gaps import Gap, Template, parse_gaps
from editors.plan import (
    Answer,
    Engine,
    Plan,
    Regions,
    answer_after,
    broken_bytes,
    check_text,
    decode_after,
    room,
    without_space,
)
from editors.request import EditRequest
from editors.window import Seen, left_context, right_context, share, tokens_up_to
from elf_engine.errors import ElfError
from elf_engine.layout import Free, Piece, Row, build_row, cut_at_eos
from elf_engine.tokens import Tokenizer

# Tokens offered to a gap whose length the model chooses.
_AUTO = 10


@dataclass(frozen=True)
class _Group:
    """Gaps `first` to `last` (inclusive), filled in one row."""

    first: int
    last: int
    row: Row
    before: tuple[tuple[int, ...], ...]
    hidden: int


def plan_infill(engine: Engine, request: EditRequest) -> Plan:
    """Row: [infill] left FREE middle FREE ... right; several rows when the gaps lie too far apart.

    Raises ElfError when the text has no gap, or one larger than the model's row.
    """
    check_text(request.text)
    template = parse_gaps(request.text)
    space = room(engine, "infill")
    if not template.gaps:
        raise ElfError("the text has no gap; mark one with [[n]], [[min-max]] or [[]]")
    sizes = tuple(_size(gap, space) for gap in template.gaps)
    runs = _runs(engine.tokenizer, template, sizes, space)
    groups = tuple(_group(engine, template, sizes, run, space) for run in runs)

    def assemble(rows: Sequence[Regions]) -> Answer:
        answers: list[str] = []
        notes: list[str] = []
        for group, regions in zip(groups, rows, strict=True):
            for k, region in enumerate(regions):
                index = group.first + k
                ids = cut_at_eos(region, engine.tokenizer.eos_id)
                text = decode_after(engine.tokenizer, group.before[k], ids)
                after = template.outside[index + 1]
                answers.append(fit_in(template.outside[index], text, after))
                notes += _notes(index + 1, template.gaps[index], len(ids))
                notes += broken_bytes(text, f"gap {index + 1}")
        return Answer(template.splice(answers), tuple(notes))

    return Plan(tuple(g.row for g in groups), assemble, _warnings(template, groups))


def _size(gap: Gap, space: int) -> int:
    if gap.high > space:
        raise ElfError(f"the gap {gap.mark} is too large; this model writes at most {space} tokens")
    return gap.high or min(_AUTO, max(1, space // 2))


def _runs(
    tokenizer: Tokenizer, template: Template, sizes: Sequence[int], space: int
) -> list[tuple[int, int]]:
    """Neighbouring gaps that fit one row together with some context, as (first, last)."""
    context = min(32, space // 4)
    runs: list[tuple[int, int]] = []
    first, used = 0, sizes[0]
    for k in range(1, len(sizes)):
        middle = tokens_up_to(tokenizer, without_space(template.outside[k]), space)
        if used + middle + sizes[k] + context > space:
            runs.append((first, k - 1))
            first, used = k, sizes[k]
        else:
            used += middle + sizes[k]
    return [*runs, (first, len(sizes) - 1)]


def _group(
    engine: Engine, template: Template, sizes: Sequence[int], run: tuple[int, int], space: int
) -> _Group:
    tokenizer = engine.tokenizer
    first, last = run
    middles = [
        tuple(tokenizer.encode(without_space(text)))
        for text in template.outside[first + 1 : last + 1]
    ]
    left_text, right_text = without_space(template.outside[first]), template.outside[last + 1]
    if last + 1 < len(sizes):
        right_text = without_space(right_text)
    left, right = context(
        tokenizer,
        left_text,
        right_text,
        space - sum(sizes[first : last + 1]) - sum(len(m) for m in middles),
    )
    before = (left.ids, *middles)
    pieces: list[Piece] = []
    for known, size in zip(before, sizes[first : last + 1], strict=True):
        pieces += [known, Free(size)]
    row = build_row(engine.config.layout, tokenizer.eos_id, "infill", [*pieces, right.ids])
    shown = [without_space(text) for text in template.outside]
    hidden = sum(map(len, shown)) - left.characters - right.characters
    hidden -= sum(map(len, shown[first + 1 : last + 1]))
    return _Group(first, last, row, before, hidden)


def context(tokenizer: Tokenizer, left: str, right: str, budget: int) -> tuple[Seen, Seen]:
    """What the model sees of the text on both sides of a gap, in `budget` tokens together."""
    for_left, for_right = share(
        budget, tokens_up_to(tokenizer, left, budget), tokens_up_to(tokenizer, right, budget)
    )
    return left_context(tokenizer, left, for_left), right_context(tokenizer, right, for_right)


def fit_in(before: str, answer: str, after: str) -> str:
    """The answer with the spaces its neighbours already have taken off."""
    answer = answer_after(before, answer)
    return answer.rstrip(" ") if after[:1].isspace() else answer


def _notes(number: int, gap: Gap, written: int) -> list[str]:
    if written == 0:
        return [f"gap {number} came back empty"]
    if gap.low == gap.high and 0 < written < gap.high:
        return [f"gap {number}: the model ended it after {written} of {gap.high} tokens"]
    if written < gap.low:
        return [f"gap {number}: {written} tokens, fewer than the {gap.low} asked for"]
    return []


def _warnings(template: Template, groups: Sequence[_Group]) -> tuple[str, ...]:
    notes = []
    if len(groups) > 1:
        notes.append(
            f"the gaps do not fit one window; they were filled in {len(groups)} separate ones"
        )
    total = sum(len(text) for text in template.outside)
    for group in groups:
        if group.hidden:
            which = _which(group)
            notes.append(
                f"{which}: the model did not see {group.hidden} of {total} characters of the text; "
                "they are unchanged"
            )
    return tuple(notes)


def _which(group: _Group) -> str:
    if group.first == group.last:
        return f"gap {group.first + 1}"
    return f"gaps {group.first + 1} to {group.last + 1}"
