"""The Write tab in a real Chromium: what a person does to a text, and that nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec, to_dict
from tests.app.browser import HOSTILE, MARKS, Site, Visit, tab, wait_for

pytestmark = MARKS
TEXT = "😀 The very old house. It stands on the hill."


@pytest.fixture(autouse=True)
def _clean(visit: Visit, site: Site) -> Iterator[None]:
    """No draft of an earlier test, and nothing through the gate before it is let through."""
    while site.world.gate.acquire(blocking=False):
        pass
    visit.page.evaluate("() => { sessionStorage.clear(); localStorage.clear(); }")
    box(visit.page).fill("")
    yield
    visit.page.evaluate("() => { sessionStorage.clear(); localStorage.clear(); }")


def box(page: Page) -> Locator:
    return page.locator("#write-text textarea")


def status(page: Page) -> Locator:
    return page.locator("#write-status .elf-status")


def said(page: Page) -> Locator:
    return page.locator("#write-said")


def card(page: Page, i: int) -> Locator:
    return page.locator("#write-cards .elf-card").nth(i)


def press(page: Page, i: int, label: str) -> None:
    card(page, i).get_by_role("button", name=label).click()


def select(page: Page, words: str) -> None:
    box(page).evaluate(
        "(box, words) => { const at = box.value.indexOf(words); box.focus();"
        " box.setSelectionRange(at, at + words.length); }",
        words,
    )


def run(page: Page, act: str) -> None:
    before = card(page, 0)
    old = before.get_attribute("data-run") if before.count() else None
    page.locator(f"#write-{act}").click()
    if old:
        expect(before).not_to_have_attribute("data-run", old)
    expect(status(page)).to_have_text(re.compile("^Done"))


def paste(page: Page, text: str) -> None:
    box(page).evaluate(
        """(box, text) => {
          box.focus(); box.select();
          const data = new DataTransfer();
          data.setData("text/plain", text);
          box.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
          document.execCommand("insertText", false, text);
        }""",
        text,
    )


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
    expect(page.locator("#write-told")).to_contain_text("runs 3 of the 6 steps")
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


def test_knobs_presets_and_seed(visit: Visit, site: Site) -> None:
    page = visit.page
    meaning = page.locator("#write-meaning")
    expect(meaning).to_contain_text("steps 6, sampler SDE, gamma 1, guidance 1.5")
    quality = page.get_by_label("number input for Diversity to quality")
    quality.fill("1")
    quality.press("Tab")
    expect(meaning).to_contain_text("steps 8")
    expect(meaning).to_contain_text("Most likely")
    page.locator("#write-more button").first.click()
    page.locator("#write-steps :is(input, textarea)").fill("300")
    expect(meaning).to_contain_text("steps 300 (yours)")
    page.locator("#write-steps :is(input, textarea)").fill("5")
    expect(meaning).to_contain_text("steps 5 (yours)")
    seed = page.locator("#write-seed input, #write-seed textarea")
    seed.fill("9007199254740993")
    expect(page.get_by_label("Keep this seed")).to_be_checked()
    box(page).fill(TEXT)
    select(page, "very old")
    run(page, "infill")
    first = site.store.list(limit=1)[0]
    assert (first.seed, first.settings["steps"], first.settings["guidance"]) == (2**53 + 1, 5, 2.0)
    page.locator("#write-presets button").first.click()
    page.get_by_label("Save these settings as").fill(f"quick {HOSTILE}")
    page.locator("#write-preset-save").click()
    chosen = page.locator("#write-preset input")
    expect(chosen).to_have_value(f"quick {HOSTILE}")
    page.locator("#write-reset").click()
    expect(meaning).to_contain_text("steps 8")
    page.reload()
    page.locator("#write-presets button").first.click()
    chosen.click()
    page.get_by_role("option", name="quick").click()
    expect(meaning).to_contain_text("steps 5 (yours)")
    expect(quality).to_have_value("1")
    page.locator("#write-preset-delete").click()
    expect(chosen).to_have_value("")
    assert site.store.presets("write") == []
    page.locator("#write-more button").first.click()
    page.locator("#write-steps :is(input, textarea)").fill("5000")
    page.locator("#write-infill").click()
    expect(page.get_by_test_id("toast-body").last).to_contain_text("outside 1 to 1000")


def test_lengths(visit: Visit, site: Site) -> None:
    page = visit.page
    page.locator("#write-more button").first.click()
    page.get_by_label("Between").check()
    page.get_by_label("At least").fill("3")
    page.get_by_label("At most").fill("7")
    page.locator("#write-length :is(input, textarea)").fill("12")
    box(page).fill(TEXT)
    select(page, "very old")
    run(page, "infill")
    request = site.store.list(limit=1)[0].request
    assert (request.least, request.length) == (3, 7)
    run(page, "draft")
    request = site.store.list(limit=1)[0].request
    assert (request.length, request.unit) == (12, "words")
    page.get_by_label("At least").fill("9")
    page.locator("#write-infill").click()
    expect(page.get_by_test_id("toast-body").last).to_contain_text("length 9 to 7")


def test_counters(visit: Visit) -> None:
    page = visit.page
    box(page).fill("word " * 300)
    expect(page.locator("#write-words")).to_have_text("300 words")
    expect(page.locator("#write-tokens")).to_contain_text(
        re.compile(r"30\d tokens; starter sees 127 at a time; it reads what is nearest")
    )


def test_restore_from_the_history(visit: Visit, site: Site) -> None:
    page = visit.page
    wild = SampleSpec(steps=300, guidance=20.333, gamma=9.5, grid="quantile", seed=2**62 + 1)
    text = "A 😀 very\r\nold house."
    request = EditRequest(
        "infill", text, count=20, spans=((2, 8),), least=2, length=5, settings=wild
    )
    result = EditResult(
        text, wild.seed, 12, "infill", text, "starter", "h", "jax",
        {**to_dict(wild), "effective_steps": 300}, 1.0,
    )  # fmt: skip
    id = site.store.add(result, request)
    box(page).fill("what I was writing")
    tab(page, "History")
    found = page.locator("#history-id input, #history-id textarea")
    found.fill(id)
    found.press("Enter")
    expect(page.locator("#history-output textarea")).to_have_value(text.replace("\r\n", "\n"))
    page.locator("#history-restore").click()
    expect(box(page)).to_have_value(text.replace("\r\n", "\n"))
    site.world.pace, before = 0.0, site.world.pace
    run(page, "infill")
    site.world.pace = before
    (again,) = site.store.list(limit=1)
    assert {**again.settings, "effective_steps": 300} == result.settings
    assert (again.input, again.request.spans, again.seed) == (text, ((2, 8),), wild.seed)
    assert (again.sample_index, again.backend) == (12, "jax")
    assert (again.request.least, again.request.length) == (2, 5)
    page.locator("[data-do=undo]").click()
    expect(box(page)).to_have_value("what I was writing")


def test_a_closed_page_frees_its_run(visit: Visit, site: Site) -> None:
    page = visit.page.context.new_page()
    page.goto(site.url)
    box(page).fill("gate left behind")
    page.locator("#write-draft").click()
    site.world.gate.release()
    expect(status(page)).to_have_text(re.compile("Step 1 of 6"))
    page.close()
    assert wait_for(lambda: site.world.closed.count("gate left behind") == 1 or _freed(site))


def _freed(site: Site) -> bool:
    site.world.gate.release()
    return False


def test_two_people_one_stops_and_switches_model(visit: Visit, site: Site) -> None:
    one = visit.page
    two = one.context.browser.new_context().new_page()  # type: ignore[union-attr]
    two.goto(site.url)
    box(one).fill("gate of one")
    one.locator("#write-draft").click()
    site.world.gate.release()
    expect(status(one)).to_have_text(re.compile("Step 1 of 6"))
    box(two).fill("text of two")
    two.locator("#write-draft").click()
    expect(status(two)).to_have_text("Waiting: 1 before you.")
    two.locator("#write-stop").click()
    expect(status(two)).to_contain_text("Stopped")
    two.get_by_label("Model", exact=True).click()
    two.get_by_role("option", name="other").click()
    two.locator("#write-draft").click()
    expect(status(two)).to_have_text("Waiting: 1 before you.")
    expect(status(one)).to_have_text(re.compile("Step 1 of 6"))
    expect(one.get_by_label("Model", exact=True)).to_have_value("starter")
    site.world.gate.release(5)
    expect(status(one)).to_have_text(re.compile("^Done"))
    expect(card(one, 0)).to_contain_text("and so it went, candidate 0.")
    expect(status(two)).to_have_text(re.compile("^Done"))
    models = {g.input: g.model for g in site.store.list(limit=6)}
    assert models == {"gate of one": "starter", "text of two": "other"}
    assert box(one).input_value() == "gate of one"
    two.context.close()


def test_the_named_endpoints(visit: Visit, site: Site) -> None:
    from gradio_client import Client

    client = Client(site.url, verbose=False)
    found = client.predict("Once", 9, {"count": 2, "seed": str(2**62 + 1)}, api_name="/draft")
    assert [c["text"] for c in found] == [f"Once and so it went, candidate {i}." for i in (0, 1)]
    kept = site.store.get(found[1]["id"])
    assert (kept.seed, kept.request.length) == (2**62 + 1, 9)
    (filled,) = client.predict("A big 😀 house", [[2, 7]], None, api_name="/infill")
    assert filled["text"] == "A lovely 0 house"
    (other,) = client.predict(
        "A big house", 0.3, [[2, 5]], None, {"model": "other"}, api_name="/rewrite"
    )
    assert (other["text"], other["model"]) == ("A lovely 0 house", "other")
    for options, message in (({"model": "/etc"}, "not installed"), ({"steps": 3}, "unknown key")):
        with pytest.raises(Exception, match=message):
            client.predict("A", 0, options, api_name="/draft")
    assert json.dumps(found)
