"""The Write tab in a real Chromium: what a person does to a text, and that nothing is lost."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from app.tabs.write import SCRIPT
from tests.app.browser import HOSTILE, MARKS, Site, Visit
from tests.app.writing import TEXT, box, card, paste, press, run, said, select, status

pytestmark = [*MARKS, pytest.mark.usefixtures("fresh")]


def test_infill_accept_swap_undo_redo(visit: Visit, site: Site) -> None:
    page = visit.page
    box(page).fill(TEXT)
    select(page, "very old ")
    expect(page.locator("#write-hint")).to_have_text("Selected: “very old”")
    run(page, "infill")
    (newest,) = site.store.list(limit=1)
    assert newest.request.spans == ((6, 14),), "in code points, without the space at its end"
    expect(card(page, 0).locator("del")).to_contain_text("very old")
    expect(card(page, 0).locator("ins")).to_contain_text("lovely 0")
    assert box(page).input_value() == TEXT, "a run touches no text"
    press(page, 0, "Accept")
    expect(box(page)).to_have_value(TEXT.replace("very old", "lovely 0"))
    press(page, 1, "Accept")
    expect(box(page)).to_have_value(TEXT.replace("very old", "lovely 1"))
    page.locator("[data-do=undo]").click()
    expect(box(page)).to_have_value(TEXT)
    page.locator("[data-do=redo]").click()
    expect(box(page)).to_have_value(TEXT.replace("very old", "lovely 1"))
    expect(page.locator("[data-do=redo]")).to_be_disabled()
    box(page).press("Control+z")
    assert box(page).input_value() != TEXT.replace("very old", "lovely 1"), "the browser's undo"


def test_typing_between_does_not_misplace_a_candidate(visit: Visit, site: Site) -> None:
    page = visit.page
    box(page).fill(TEXT)
    select(page, "house")
    run(page, "infill")
    box(page).fill("😀😀 " + TEXT + " More.")
    press(page, 0, "Accept")
    expect(box(page)).to_have_value("😀😀 " + TEXT.replace("house", "lovely 0") + " More.")
    page.locator("[data-do=undo]").click()
    expect(box(page)).to_have_value("😀😀 " + TEXT + " More.")
    box(page).fill(TEXT.replace("house", "horse"))
    press(page, 1, "Accept")
    expect(said(page)).to_contain_text("were changed since")
    expect(box(page)).to_have_value(TEXT.replace("house", "horse"))


def test_line_ends_of_a_pasted_text_stay(visit: Visit, site: Site) -> None:
    page = visit.page
    text = "One 😀 line.\r\n\r\nAn old house.\r\nEnd."
    paste(page, text)
    select(page, "old")
    run(page, "infill")
    (newest,) = site.store.list(limit=1)
    assert newest.input == text
    assert [text[a:b] for a, b in newest.request.spans] == ["old"]
    press(page, 0, "Accept")
    expect(box(page)).to_have_value(text.replace("\r\n", "\n").replace("old", "lovely 0"))
    assert page.evaluate("window.elfWrite.text()") == text.replace("old", "lovely 0")


def test_rewrite_keeps_words_and_says_its_steps(visit: Visit, site: Site) -> None:
    page = visit.page
    box(page).fill(TEXT)
    number = page.get_by_label("number input for Strength of a rewrite")
    number.fill("0.35")
    number.press("Tab")
    expect(page.locator("#write-told")).to_contain_text("3 of the 6 steps are run")
    page.get_by_label("Words a rewrite keeps").fill("stands, Clara")
    select(page, "It stands on the hill.")
    page.keyboard.press("Control+Shift+Enter")
    expect(page.get_by_test_id("toast-body")).to_contain_text("“Clara” is not in the selection")
    expect(status(page)).to_have_text(re.compile("^Done"))
    request = site.store.list(limit=1)[0].request
    assert (request.editor, request.strength, request.rank) == ("rewrite", 0.35, "distance")
    assert [TEXT[a:b] for a, b in request.locks] == ["stands"]
    assert [TEXT[a:b] for a, b in request.spans] == ["It stands on the hill."]


def test_continue_from_the_cursor_and_on(visit: Visit, site: Site) -> None:
    page = visit.page
    box(page).fill("Once.\n\nThe end.")
    box(page).evaluate("box => { box.focus(); box.setSelectionRange(5, 5); }")
    page.keyboard.press("Control+Enter")
    expect(status(page)).to_have_text(re.compile("^Done"))
    page.keyboard.press("Alt+n")
    expect(card(page, 1)).to_have_class(re.compile("current"))
    page.keyboard.press("Alt+x")
    expect(card(page, 1)).to_be_hidden()
    page.keyboard.press("Alt+Enter")
    text = "Once. and so it went, candidate 2."
    expect(box(page)).to_have_value(f"{text}\n\nThe end.")
    assert box(page).evaluate("box => box.selectionStart") == len(text)
    parent = site.store.list(limit=1)[0].id
    page.keyboard.press("Alt+z")
    expect(box(page)).to_have_value("Once.\n\nThe end.")
    page.keyboard.press("Alt+y")
    run(page, "draft")
    assert site.store.list(limit=1)[0].parent_id == parent, "edited from the one accepted"


def test_what_is_written_before_the_script_is_there_stays(visit: Visit) -> None:
    page = visit.page
    box(page).fill(TEXT)
    page.wait_for_function("text => localStorage.getItem('elf-write')?.includes(text)", arg=TEXT)
    # As on a slow connection: words in the box, a draft in the store, and now comes the script.
    box(page).evaluate("box => { box.value = 'Written early'; }")
    page.evaluate(SCRIPT.read_text("utf-8"))
    expect(page.locator("#write-words")).to_have_text("2 words")
    expect(box(page)).to_have_value("Written early")


def test_nothing_is_lost_on_reload(visit: Visit, site: Site) -> None:
    page = visit.page
    box(page).fill(TEXT)
    select(page, "house")
    run(page, "infill")
    press(page, 0, "Accept")
    changed = TEXT.replace("house", "lovely 0")
    expect(box(page)).to_have_value(changed)
    box(page).press("End")
    page.keyboard.type("!")
    page.reload()
    expect(box(page)).to_have_value(changed + "!")
    expect(page.locator("#write-words")).to_have_text("11 words")
    page.locator("[data-do=undo]").click()
    page.locator("[data-do=undo]").click()
    expect(box(page)).to_have_value(TEXT)
    box(page).fill("")
    page.reload()
    box(page).wait_for()
    assert box(page).input_value() == "", "what was emptied does not come back"


def test_stop_midway_and_failure_keep_the_text(
    visit: Visit, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    page = visit.page
    box(page).fill("gate to the garden")
    select(page, "garden")
    page.locator("#write-infill").click()
    for _ in range(2):
        site.world.gate.release()
    expect(status(page)).to_have_text(re.compile("Step 2 of 6"))
    expect(page.locator("#write-cards .elf-noisy").first).to_contain_text("·")
    expect(page.locator("#write-rewrite")).to_be_disabled()
    page.keyboard.press("Escape")
    site.world.gate.release()
    expect(status(page)).to_contain_text("Stopped at step 3 of 6. Your text is as it was.")
    expect(box(page)).to_have_value("gate to the garden")
    box(page).fill("boom goes the house")
    select(page, "house")
    page.locator("#write-infill").click()
    expect(status(page)).to_contain_text("something went wrong inside ELF Studio")
    expect(page.get_by_text("secret inner detail")).to_have_count(0)
    expect(box(page)).to_have_value("boom goes the house")
    expect(page.locator("#write-infill")).to_be_enabled()
    box(page).fill("no words here")
    page.evaluate("window.elfWrite.ask = () => JSON.stringify({run: '1'})")
    page.locator("#write-infill").click()
    expect(page.get_by_test_id("toast-body").last).to_contain_text("reload it")
    expect(box(page)).to_have_value("no words here")


def test_hostile_text_is_text(visit: Visit, site: Site) -> None:
    page = visit.page
    box(page).fill(f"{HOSTILE} house {HOSTILE}")
    select(page, "house")
    page.get_by_label("Words a rewrite keeps").fill(HOSTILE)
    run(page, "rewrite")
    expect(card(page, 0)).to_contain_text("<img src=x onerror=")
    press(page, 0, "Accept")
    expect(box(page)).to_have_value(f"{HOSTILE} lovely 0 {HOSTILE}")
    assert page.locator("img[src=x]").count() == 0


def test_the_way_out_of_the_noise(visit: Visit) -> None:
    page = visit.page
    box(page).fill(TEXT)
    select(page, "very old")
    run(page, "infill")
    card(page, 0).locator(".elf-noise summary").click()
    then, range_ = card(page, 0).locator(".elf-then"), card(page, 0).locator("input[type=range]")
    expect(then).to_have_text("lovely 0")
    range_.focus()
    page.keyboard.press("Home")
    expect(then).to_have_text("l·······")
    expect(card(page, 0).locator("output")).to_contain_text("1 of 6:")
    page.keyboard.press("ArrowRight")
    expect(then).to_have_text("lo······")
    page.keyboard.press("End")
    expect(then).to_have_text("lovely 0")
    plot = card(page, 0).get_by_role("img")
    expect(plot).to_have_attribute("aria-label", re.compile(r"Tokens changed per step: \d+, "))
