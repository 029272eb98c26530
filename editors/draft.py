"""Draft: continue a prefix, or write from nothing. The prefix comes back exactly."""

from __future__ import annotations

from collections.abc import Sequence

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
from editors.window import left_context
from elf_engine.errors import ElfError
from elf_engine.layout import Free, build_row, cut_at_eos

_DEFAULT_LENGTH = 64


def plan_draft(engine: Engine, request: EditRequest) -> Plan:
    """Row: [draft] prefix FREE. Raises ElfError for a length the model cannot write."""
    check_text(request.text)
    tokenizer = engine.tokenizer
    space = room(engine, "draft")
    seen_text = without_space(request.text)
    needed = 1 if seen_text else 0
    if not 0 <= request.length <= space - needed:
        raise ElfError(
            f"length {request.length} is outside what this model can write here: "
            f"1 to {space - needed} tokens, or 0 to let it choose"
        )
    length = request.length or min(_DEFAULT_LENGTH, (space + 1) // 2)
    prefix = left_context(tokenizer, seen_text, space - length)
    warnings: tuple[str, ...] = ()
    if prefix.characters < len(seen_text):
        warnings = (
            f"the model saw the last {prefix.characters} of {len(seen_text)} characters; "
            "more do not fit",
        )
    row = build_row(engine.config.layout, tokenizer.eos_id, "draft", [prefix.ids, Free(length)])

    def assemble(rows: Sequence[Regions]) -> Answer:
        ids = cut_at_eos(rows[0][0], tokenizer.eos_id)
        written = answer_after(request.text, decode_after(tokenizer, prefix.ids, ids))
        notes = [] if written else ["the model wrote nothing; try another seed"]
        notes += broken_bytes(written, "the draft")
        return Answer(request.text + written, tuple(notes))

    return Plan((row,), assemble, warnings, (("length", length),))
