"""Splitting never loses a character; where it splits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editors.sentences import segments, unwrap
from editors.window import left_context, right_context, share, split_to_fit
from tests.fakes import WordTokenizer

TEXT = st.text() | st.text(alphabet="aB. !?\n\r\t-1")
# Abbreviations and initials next to what takes several bytes: the library's own weak spot.
PARTS = [
    "z.",
    "B.",
    " ",
    "Dr. ",
    "A. ",
    "é",
    "\u2003",
    "😀",
    "„",
    "“",
    "1. ",
    "...",
    "\u0301",
    "!",
    "中",
]
TOKENIZER = WordTokenizer()


@pytest.mark.parametrize("language", ["de", "en"])
@settings(max_examples=500)
@given(TEXT | st.lists(st.sampled_from(PARTS)).map("".join))
def test_segments_join_to_the_text(language: str, text: str) -> None:
    found = segments(text, language)
    assert "".join(s.text for s in found) == text
    assert all(text[s.start : s.stop] == s.text for s in found)
    assert all(s.text.isspace() if s.gap else s.text == s.text.strip() for s in found)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Eins. Zwei! Drei?", ["Eins.", "Zwei!", "Drei?"]),
        ("Am 3. Mai kam Dr. Weiß z. B. hierher.", ["Am 3. Mai kam Dr. Weiß z. B. hierher."]),
        ("Er sagte: „Nein.“ Dann ging er.", ["Er sagte: „Nein.“", "Dann ging er."]),
        ("Titel\n\nEin Satz.", ["Titel", "Ein Satz."]),
        ("- eins\n- zwei", ["- eins", "- zwei"]),
        ("Was ist das?!\r\nNichts", ["Was ist das?!", "Nichts"]),
        ("kein Verb\nenthält, sagt man.", ["kein Verb\nenthält, sagt man."]),
        (
            "Diese Zeile ist so lang, dass sie umbrochen\nWurde, und das war alles.",
            ["Diese Zeile ist so lang, dass sie umbrochen\nWurde, und das war alles."],
        ),
        (
            "Er hat fünf Zeilen und mehr als einen\nSatz, und niemand weiß, warum er so\n"
            "aussieht wie er aussieht. Haus\n\nEnde",
            [
                "Er hat fünf Zeilen und mehr als einen\nSatz, und niemand weiß, warum er so\n"
                "aussieht wie er aussieht.",
                "Haus",
                "Ende",
            ],
        ),
        ("Sah ein Knab\nRöslein auf der Heiden", ["Sah ein Knab", "Röslein auf der Heiden"]),
        ("3.14 ist kein Satzende", ["3.14 ist kein Satzende"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert [s.text for s in segments(text, "de") if not s.gap] == sentences


def test_unwrap_makes_one_line() -> None:
    assert unwrap("kein Verb\r\n  enthält") == "kein Verb enthält"


@given(TEXT, st.integers(0, 30))
def test_windows_fit_their_budget_and_touch_the_gap(text: str, budget: int) -> None:
    left, right = left_context(TOKENIZER, text, budget), right_context(TOKENIZER, text, budget)
    assert len(left.ids) <= budget
    assert len(right.ids) <= budget
    assert TOKENIZER.decode(left.ids) == text[len(text) - left.characters :]
    assert TOKENIZER.decode(right.ids) == text[: right.characters]
    if len(TOKENIZER.encode(text)) <= budget:
        assert left.characters == right.characters == len(text)


def test_windows_prefer_sentences() -> None:
    text = "The old house. The big red hill is on the house. A house."
    assert text[len(text) - left_context(TOKENIZER, text, 16).characters :].startswith("The big")
    assert text[: right_context(TOKENIZER, text, 5).characters] == "The old house."


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_share_wastes_nothing(total: int, left: int, right: int) -> None:
    a, b = share(total, left, right)
    assert a <= left
    assert b <= right
    assert a + b == min(total, left + right)


@given(TEXT, st.integers(4, 20))
def test_split_pieces_fit_and_join(text: str, limit: int) -> None:
    pieces = split_to_fit(TOKENIZER, text, limit)
    assert "".join(pieces) == text
    assert all(len(TOKENIZER.encode(piece)) <= limit for piece in pieces)
