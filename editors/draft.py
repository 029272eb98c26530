"""Draft: continue a prefix, or write from nothing. The prefix comes back exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from editors.plan import (
    Answer,
    Engine,
    Plan,
    Region,
    Regions,
    answer_after,
    broken_bytes,
    decode_after,
    room,
    without_space,
)
from editors.request import Change, EditRequest
from editors.window import left_context
from elf_engine.errors import ElfError
from elf_engine.layout import Free, build_row, cut_at_eos

_DEFAULT_LENGTH = 64
# Tokens offered for each word asked for; what is too much is cut off.
_TOKENS_A_WORD = 2


def plan_draft(engine: Engine, request: EditRequest) -> Plan:
    """Row: [draft] prefix FREE. Raises ElfError for a length the model cannot write."""
    text, tokenizer = request.text, engine.tokenizer
    space = room(engine, "draft")
    seen_text = without_space(text)
    words = request.length if request.unit == "words" else 0
    size = _size(request, space, 1 if seen_text else 0)
    prefix = left_context(tokenizer, seen_text, space - size)
    warnings: tuple[str, ...] = ()
    if prefix.characters < len(seen_text):
        warnings = (
            f"the model saw the last {prefix.characters} of {len(seen_text)} characters; "
            "more do not fit",
        )
    row = build_row(engine.config.layout, tokenizer.eos_id, "draft", [prefix.ids, Free(size)])

    def assemble(rows: Sequence[Regions | None]) -> Answer:
        region = rows[0][0] if rows[0] is not None else Region(())
        ids = cut_at_eos(region.ids, tokenizer.eos_id)
        written = answer_after(text, decode_after(tokenizer, prefix.ids, ids))
        notes = [] if written else ["the model wrote nothing; try another seed"]
        if words:
            found = len(written.split())
            written = _first_words(written, words)
            notes += [f"{found} words of the {words} asked for"] if found < words else []
        notes += broken_bytes(written, "the draft")
        fits = not notes
        if region.ended is not None:
            notes.append(
                f"the model would have ended after {region.ended} tokens; the others are its "
                "next best"
            )
        change = Change(len(text), len(text), "", written)
        return Answer((change,), tuple(notes), fits)

    settings = (("length", request.length or size), ("unit", "words" if words else "tokens"))
    least = ((size if request.length else 0,),)
    return Plan((row,), assemble, warnings, settings, least=least)


def _size(request: EditRequest, space: int, needed: int) -> int:
    """Tokens of the free region. `needed` are kept for the prefix."""
    most = space - needed
    if request.unit == "words":
        if not 0 <= request.length <= most // _TOKENS_A_WORD:
            raise ElfError(
                f"length {request.length} is outside what this model can write here: "
                f"1 to {most // _TOKENS_A_WORD} words, or 0 to let it choose"
            )
    elif not 0 <= request.length <= most:
        raise ElfError(
            f"length {request.length} is outside what this model can write here: "
            f"1 to {most} tokens, or 0 to let it choose"
        )
    if request.length == 0:
        return min(_DEFAULT_LENGTH, (space + 1) // 2)
    return min(most, request.length * (_TOKENS_A_WORD if request.unit == "words" else 1))


def _first_words(text: str, count: int) -> str:
    match = re.match(rf"\s*(?:\S+\s+){{0,{count - 1}}}\S+", text)
    return match[0] if match else text
