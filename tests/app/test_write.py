"""Pieces of the Write tab that need no browser."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.about import Shelf
from app.tabs.cards import Card, cards_html, live_html, part, plot_svg, walk
from app.tabs.diff import diff_html
from app.tabs.write_ask import Ask, Length, Wishes, in_words, read_ask, task_of
from editors.request import Change, EditResult
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError

TEXT = "😀 The very old house.\r\nIt stands still. It waits!"
OLD = (6, 14)
SENT: dict[str, Any] = {
    "run": "r1", "act": "infill", "text": TEXT, "start": 6, "stop": 14, "chosen": "very old",
    "parent": "",
}  # fmt: skip
SPEC = SampleSpec(steps=4)


def ask(**changed: Any) -> Ask:
    data = SENT | changed
    if "start" in changed and "chosen" not in changed:
        data["chosen"] = data["text"][data["start"] : data["stop"]]
    return read_ask(json.dumps(data))


def test_what_the_page_sends_is_read_as_it_was() -> None:
    assert ask() == Ask("r1", "infill", TEXT, 6, 14, "very old", "")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": 5}, "not what was seen"),
        ({"chosen": "very new"}, "not what was seen"),
        ({"stop": 999}, "outside the text"),
        ({"start": -1}, "outside the text"),
        ({"start": 14, "stop": 6}, "outside the text"),
        ({"act": "delete"}, "nothing this page does"),
        ({"text": 5}, "reload"),
        ({"start": True}, "reload"),
        ({"start": 6.0}, "reload"),
        ({"more": 1}, "reload"),
        ({"text": "x" * 1_000_001}, "1000000 at most"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ElfError, match=message):
        read_ask(json.dumps(SENT | changed))


@pytest.mark.parametrize("raw", ["", "null", "[]", "{", None, '{"run": "r"}'])
def test_what_is_no_document_is_refused(raw: Any) -> None:
    with pytest.raises(ElfError, match="reload"):
        read_ask(raw)


def test_infill_replaces_the_selection() -> None:
    task = task_of(ask(), Wishes(count=2, length=Length(2, 5)), SPEC)
    request = task.request
    assert (request.text, request.spans, request.least, request.length) == (TEXT, (OLD,), 2, 5)
    assert (task.start, task.stop) == OLD
    assert request.distinct


def test_infill_without_a_selection_fills_gaps_else_writes_at_the_cursor() -> None:
    at = task_of(ask(start=6, stop=6), Wishes(), SPEC)
    assert (at.request.spans, at.start, at.stop) == (((6, 6),), 6, 6)
    gaps = task_of(ask(text=r"A [[2]] b \[[ c [[]].", start=0, stop=0), Wishes(), SPEC)
    assert (gaps.request.spans, gaps.start, gaps.stop) == ((), 2, 20)
    own = task_of(ask(text="see [[Home page]] there", start=3, stop=3), Wishes(), SPEC)
    assert own.request.spans == ((3, 3),)


def test_a_selection_never_cuts_a_character() -> None:
    flag = task_of(ask(text="🇩🇪 home", start=1, stop=6), Wishes(), SPEC)
    assert flag.request.spans == ((0, 6),)
    assert "cuts a character" in flag.notes[0]
    with pytest.raises(ElfError, match="inside the character"):
        task_of(ask(text="🇩🇪 home", start=1, stop=1), Wishes(), SPEC)


def test_continue_goes_on_from_the_cursor_and_leaves_what_follows() -> None:
    task = task_of(ask(act="draft"), Wishes(length=Length(draft=7, unit="words")), SPEC)
    assert task.request.text == TEXT[:14]
    assert (task.request.length, task.request.unit) == (7, "words")
    assert (task.start, task.stop) == (14, 14)


def test_rewrite_takes_the_selection_its_sentences_or_the_one_at_the_cursor() -> None:
    def spans(**where: Any) -> list[str]:
        request = task_of(ask(act="rewrite", **where), Wishes(strength=0.3), SPEC).request
        assert request.strength == 0.3
        return [TEXT[a:b] for a, b in request.spans]

    assert spans() == ["very old"]
    assert spans(start=26, stop=26) == ["It stands still."]
    assert spans(start=0, stop=len(TEXT)) == [
        "😀 The very old house.",
        "It stands still.",
        "It waits!",
    ]
    with pytest.raises(ElfError, match="select what to rewrite"):
        task_of(ask(act="rewrite", text=" \n ", start=1, stop=1), Wishes(), SPEC)


def test_rewrite_keeps_words_and_says_which_it_did_not_find() -> None:
    wishes = Wishes(keep=in_words("It, stands still, It stands,, Clara, It"))
    task = task_of(ask(act="rewrite", start=26, stop=26), wishes, SPEC)
    assert [TEXT[a:b] for a, b in task.request.locks] == ["It stands still"]
    assert task.notes == ("“Clara” is not in the selection, so there was nothing to keep.",)


# --- cards --------------------------------------------------------------------------------------

HOSTILE = "<img src=x onerror=alert(1)> & \"'</li>"


def result(after: str, text: str = TEXT) -> EditResult:
    made = text[:6] + after + text[14:]
    return EditResult(
        made, 7, 0, "infill", text, "m", "h", "torch", {"steps": 4}, 1.0, (HOSTILE,),
        (text[:6] + "··" + text[14:], made), (Change(6, 14, text[6:14], after),),
    )  # fmt: skip


def test_words_on_cards_are_never_html() -> None:
    hostile = TEXT.replace("house", HOSTILE)
    task = task_of(ask(text=hostile), Wishes(), SPEC)
    card = Card(result(HOSTILE, hostile), HOSTILE, HOSTILE)
    for page in (
        cards_html(task, [card], lambda text: [ord(c) for c in text]),
        live_html(task, [card.result.text]),
    ):
        assert "<img" not in page
        assert page.count("</li>") == 1
        assert "&lt;img src=x" in page


def test_a_difference_is_told_by_more_than_colour() -> None:
    assert diff_html("the <old> house", "the new house") == (
        'the <del><span class="elf-said"> removed: </span>&lt;old&gt;</del>'
        '<ins><span class="elf-said"> added: </span>new</ins> house'
    )
    assert diff_html("same & same", "same & same") == "same &amp; same"


def test_the_part_that_may_change_is_found_in_every_text() -> None:
    task = task_of(ask(), Wishes(), SPEC)
    assert part(task, result("big").text) == "big"
    assert part(task, result("").text) == ""
    assert part(task, TEXT) == "very old"


def test_the_walk_counts_tokens() -> None:
    found = walk([[1, 2, 3], [1, 5, 3], [1, 5]])
    assert (found.changed, found.to_final) == ((3, 1, 1), (2, 1, 0))
    assert walk([]).changed == ()
    svg = plot_svg(walk([[1, 2], [4, 2], [4, 2]]))
    assert "Tokens changed per step: 2, 1, 0." in svg
    assert "settled at step 2 of 3" in svg
    assert plot_svg(walk([[], []])), "a text of no tokens has a plot too"


# --- about a model ------------------------------------------------------------------------------


def test_a_model_is_told_about_without_its_weights() -> None:
    def check(name: str) -> None:
        if name != "starter":
            raise ElfError(f"model '{name}' is not installed")

    about = Shelf(check).about("starter")
    assert about.room("infill") == max(about.config.layout.lengths) - 1
    spec = about.settings("rewrite", 0.5)
    assert about.effective_steps(spec, 0) == 0
    assert about.effective_steps(spec, 1) == spec.steps
    half = about.effective_steps(replace(spec, grid="uniform", steps=32), 0.5)
    assert half == 16
    with pytest.raises(ElfError, match="not installed"):
        Shelf(check).about("/etc")
