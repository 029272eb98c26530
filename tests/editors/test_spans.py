"""Spans are code points of the text as given; outside them nothing changes, and no character that
is seen as one is cut."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from editors import EditResult, splice
from editors.spans import check_spans, find_words, holes_between, widen
from elf_engine.errors import ElfError
from tests.editors.common import TEXT, attempt, ids, one
from tests.fakes import FakeEngine


def spans_of(text: str) -> st.SearchStrategy[tuple[int, int]]:
    places = st.integers(0, len(text))
    return st.tuples(places, places).map(lambda pair: (min(pair), max(pair)))


TEXT_AND_SPAN = TEXT.flatmap(lambda text: st.tuples(st.just(text), spans_of(text)))


def outside_is_kept(result: EditResult, start: int, stop: int) -> bool:
    text = result.input
    return (
        result.text.startswith(text[:start])
        and result.text.endswith(text[stop:])
        and len(result.text) >= len(text) - (stop - start)
        and splice(text, result.changes) == result.text
    )


@settings(max_examples=1000)
@given(TEXT_AND_SPAN)
def test_infill_changes_its_span_alone(drawn: tuple[str, tuple[int, int]]) -> None:
    text, (start, stop) = drawn
    result = attempt(FakeEngine(), "infill", text, spans=((start, stop),), length=2)
    if isinstance(result, str):
        assert start == stop
        assert "lies inside the character" in result
    else:
        assert outside_is_kept(result, *widen(text, start, stop))


@settings(max_examples=1000)
@given(TEXT_AND_SPAN, st.sampled_from([0.02, 0.5, 1.0]))
def test_rewrite_changes_its_span_alone(
    drawn: tuple[str, tuple[int, int]], strength: float
) -> None:
    text, (start, stop) = drawn
    assume(start < stop)
    result = attempt(FakeEngine(), "rewrite", text, spans=((start, stop),), strength=strength)
    if isinstance(result, str):
        assert "smaller spans" in result
    else:
        assert outside_is_kept(result, *widen(text, start, stop))


@settings(max_examples=1000)
@given(TEXT_AND_SPAN)
def test_widened_spans_are_the_smallest_of_whole_graphemes(
    drawn: tuple[str, tuple[int, int]],
) -> None:
    text, (start, stop) = drawn
    borders = [0, *(m.end() for m in regex.finditer(r"\X", text))]
    low = max(b for b in borders if b <= start)
    high = min(b for b in borders if b >= stop)
    expected = (low, high) if start < stop or start not in borders else (start, stop)
    assert widen(text, start, stop) == expected


@pytest.mark.parametrize(
    ("text", "span", "taken"),
    [
        ("👩‍👩‍👧 x", (0, 1), (0, 5)),
        ("👩‍👩‍👧 x", (3, 7), (0, 7)),
        ("a🇩🇪b", (2, 3), (1, 3)),
        ("e\u0301a", (0, 1), (0, 2)),
        ("a\r\nb", (2, 4), (1, 4)),
        ("👍🏽", (1, 2), (0, 2)),
    ],
)
def test_a_span_that_cuts_a_character_is_widened_and_says_so(
    text: str, span: tuple[int, int], taken: tuple[int, int]
) -> None:
    found = check_spans(text, [span])
    assert found.ranges == (taken,)
    assert f"{taken[0]}:{taken[1]} was taken" in found.warnings[0]
    result = one(FakeEngine(), "rewrite", text, spans=(span,))
    assert found.warnings[0] in result.warnings
    assert outside_is_kept(result, *taken)


def test_a_place_inside_a_character_is_refused() -> None:
    with pytest.raises(ElfError, match="span 1:1 lies inside the character"):
        check_spans("e\u0301", [(1, 1)], empty=True)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 1), (0, 3)], "overlaps"),
        ([(0, 1), (1, 1)], "empty"),
        ([(2, 1)], "2:1 is empty"),
        ([(-1, 1)], "-1:1"),
        ([(0, 9)], "0:9"),
    ],
)
def test_bad_spans_are_refused(spans: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ElfError, match=message):
        check_spans("abc", spans)


def test_a_megabyte_without_a_line_break_is_checked_at_once() -> None:
    text = "house " * 200_000
    assert check_spans(text, [(600_000, 600_005)]).ranges == ((600_000, 600_005),)


@given(TEXT_AND_SPAN, st.data())
def test_locked_text_stays(drawn: tuple[str, tuple[int, int]], data: st.DataObject) -> None:
    text, (start, stop) = drawn
    start, stop = widen(text, start, stop)
    assume(stop - start > 1)
    lock = data.draw(st.tuples(st.integers(start, stop - 1), st.integers(1, 3)))
    a, b = widen(text, lock[0], min(lock[0] + lock[1], stop))
    result = attempt(FakeEngine(), "rewrite", text, spans=((start, stop),), locks=((a, b),))
    if isinstance(result, str):
        assert "locked" in result or "smaller spans" in result
    else:
        assert outside_is_kept(result, start, stop)
        assert all(change.stop <= a or change.start >= b for change in result.changes)


def test_locked_words_are_known_to_the_model() -> None:
    engine = FakeEngine()
    result = one(engine, "rewrite", "A big red house.", spans=((2, 15),), locks=((6, 9),))
    row = engine.calls[0][0]
    assert [row.ids[i] for i in range(*row.free[0])][:1] == ids(" big")
    assert row.ids[row.free[0][1]] == ids(" red")[0]
    assert row.known[row.free[0][1]]
    assert " red" in result.text


def test_locks_that_overlap_are_one() -> None:
    text = "A big red house."
    locks = ((2, 9), (6, 9), (6, 15))
    one_lock = one(FakeEngine(), "rewrite", text, locks=((2, 15),))
    assert one(FakeEngine(), "rewrite", text, locks=locks).text == one_lock.text


def test_what_the_model_did_not_see_is_counted_over_the_whole_text() -> None:
    text = "The old house. " * 4000
    spans = ((30_004, 30_007),)
    notes = [one(FakeEngine(), ed, text, spans=spans).warnings[0] for ed in ("infill", "rewrite")]
    for note in notes:
        before, after, hidden = (
            int(n) for n in re.findall(r"\b([0-9]+) (?:char|after|others)", note)
        )
        assert abs(before + after + hidden + 3 - len(text)) <= 1


def test_parts_between_locks_have_no_white_space_at_their_edges() -> None:
    assert holes_between("a  b c", (0, 6), [(3, 4)]) == [(0, 1), (5, 6)]
    assert holes_between("a b", (0, 3), [(0, 3)]) == []


def test_words_to_lock_are_whole_words() -> None:
    assert find_words("red redder red", "red") == ((0, 3), (11, 14))
    assert find_words("red redder red", "red", [(4, 14)]) == ((11, 14),)
    assert find_words("costs $5.", "$5") == ((6, 8),)
    with pytest.raises(ElfError, match="no 'blue'"):
        find_words("red", "blue")
