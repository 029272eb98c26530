"""What the tests of the editors share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from editors import EditRequest, EditResult, edit
from elf_engine.config import LayoutSpec, SampleSpec
from elf_engine.errors import ElfError
from tests.fakes import TINY_VOCAB, WORDS, FakeEngine, tiny_config

# CRLF, tabs, joiner sequences, combining marks, right-to-left, braces: what breaks editors.
ODD = st.sampled_from(
    [
        *("\r\n", "\t", "  ", "👩‍👩‍👧", "🇩🇪", "e\u0301", "שלום", "1-${phone.number}"),
        *("\ufeff", "\0", "▁", "😀", "[[", "\\[[", "]]"),
    ]
)
TEXT = st.lists(st.text(max_size=8) | ODD | st.sampled_from(WORDS), max_size=12).map("".join)


def request(editor: str, text: str = "", **rest: Any) -> EditRequest:
    """A request of two steps."""
    rest.setdefault("settings", SampleSpec(steps=2))
    return EditRequest(editor, text, **rest)


def one(engine: Any, editor: str, text: str = "", **rest: Any) -> EditResult:
    """The only result of a request."""
    (result,) = edit(engine, request(editor, text, **rest))
    return result


def attempt(engine: Any, editor: str, text: str = "", **rest: Any) -> EditResult | str:
    """The only result of a request, or the one line with which it was refused."""
    try:
        return one(engine, editor, text, **rest)
    except ElfError as error:
        message = str(error)
    assert "\n" not in message
    return message


def ids(*words: str) -> list[int]:
    """Token ids of words the fake tokenizer knows."""
    return [TINY_VOCAB + WORDS.index(word) for word in words]


def roomy(**rest: Any) -> FakeEngine:
    """A fake engine that takes long rows."""
    tasks = tiny_config().layout.tasks
    return FakeEngine(tiny_config(layout=LayoutSpec(lengths=(512,), tasks=tasks, sep_id=4)), **rest)
