"""Laws of the gap notation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editors.changes import splice
from editors.gaps import Gap, Template, escape, parse_gaps, write_gaps
from editors.request import Change
from elf_engine.errors import ElfError

# Arbitrary Unicode, and the characters of the notation far more often than chance would.
TEXT = st.text() | st.text(alphabet="\\[]0-9 a\r\n")
GAPS = st.builds(Gap) | st.integers(1, 99).flatmap(
    lambda low: st.builds(Gap, st.just(low), st.integers(low, 200))
)


@given(TEXT)
def test_escaped_text_has_no_gap_and_reads_back_to_itself(text: str) -> None:
    assert parse_gaps(escape(text)) == Template((text,), ())


@given(st.lists(st.tuples(TEXT, GAPS), max_size=4), TEXT)
def test_written_gaps_read_back(parts: list[tuple[str, Gap]], end: str) -> None:
    template = Template((*[t for t, _ in parts], end), tuple(g for _, g in parts))
    assert parse_gaps(write_gaps(template)) == template


@given(TEXT)
def test_text_without_brackets_is_untouched(text: str) -> None:
    plain = text.replace("[[", "[ [").replace("[[", "[ [")
    assert parse_gaps(plain) == Template((plain,), ())


@given(st.lists(TEXT, min_size=2, max_size=4), TEXT)
def test_gaps_know_where_they_stand(outside: list[str], answer: str) -> None:
    text = write_gaps(Template(tuple(outside), (Gap(2, 2),) * (len(outside) - 1)))
    found = parse_gaps(text)
    fills = [Change(a, b, text[a:b], answer) for a, b in found.places]
    changes = sorted([*fills, *found.escapes], key=lambda change: change.start)
    assert all(change.before == "[[2]]" for change in fills)
    assert splice(text, changes) == answer.join(outside)


@pytest.mark.parametrize(
    ("text", "outside", "gaps"),
    [
        ("A [[2-6]] house", ("A ", " house"), (Gap(2, 6),)),
        ("[[3]]", ("", ""), (Gap(3, 3),)),
        ("a [[]][[4]] b", ("a ", "", " b"), (Gap(), Gap(4, 4))),
        (r"if \[[ -f x ]]", ("if [[ -f x ]]",), ()),
        (r"\\[[1]]", ("\\", ""), (Gap(1, 1),)),
        (r"C:\dir\[x]", (r"C:\dir\[x]",), ()),
        ("x[[[2]]]", ("x[", "]"), (Gap(2, 2),)),
        ("1-${phone.number} call [[2]] me", ("1-${phone.number} call ", " me"), (Gap(2, 2),)),
    ],
)
def test_notation(text: str, outside: tuple[str, ...], gaps: tuple[Gap, ...]) -> None:
    assert parse_gaps(text) == Template(outside, gaps)


@pytest.mark.parametrize(
    "text", ["[[", "[[x]]", "[[-3]]", "[[2-]]", "[[0]]", "[[5-2]]", "[[ 3 ]]", "a [[b", "[[٣]]"]
)
def test_what_is_no_gap_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ElfError, match=r"\[\[.* at character \d+") as error:
        parse_gaps(text)
    assert "\n" not in str(error.value)


def test_a_marker_with_a_newline_keeps_the_message_on_one_line() -> None:
    with pytest.raises(ElfError) as error:
        parse_gaps("a\n[[\n\r\n]]")
    assert "\n" not in str(error.value)
