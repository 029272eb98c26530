"""The page in a real Chromium: what a person does, and what they see."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.app.browser import (
    HOSTILE,
    MARKS,
    Site,
    Visit,
    finished,
    out,
    run,
    status,
    tab,
    wait_for,
    write,
)

pytestmark = MARKS


def test_draft_forms_before_the_eyes(visit: Visit, site: Site) -> None:
    page = visit.page
    write(page, "draft", "gate of the garden")
    run(page, "draft")
    for step in (1, 2, 3):
        site.world.gate.release()
        expect(status(page, "draft")).to_have_text(re.compile(rf"Step {step} of 6, t = 0\.\d\d"))
        bar = page.locator("#draft-status progress")
        assert (bar.get_attribute("value"), bar.get_attribute("max")) == (str(step), "6")
    expect(out(page, "draft", 0)).to_have_value(re.compile(r"^gate of the garden.*·+$"))
    expect(out(page, "draft", 1)).to_have_value(re.compile("·+$"))
    expect(page.locator("#draft-run")).to_be_disabled()
    site.world.gate.release(3)
    finished(page, "draft")
    expect(out(page, "draft", 0)).to_have_value("gate of the garden and so it went, candidate 0.")
    expect(out(page, "draft", 1)).to_have_value("gate of the garden and so it went, candidate 1.")
    expect(out(page, "draft", 2)).to_have_count(0)
    caption = page.locator("#draft-caption-1")
    expect(caption).to_contain_text(re.compile(r"seed \d+, sample 1, \d+\.\d s, starter on torch"))
    expect(caption).to_contain_text("steps 6, sampler sde, gamma 1, guidance 3")
    newest, older = site.store.list(limit=2)
    assert (older.output, newest.output) == tuple(
        f"gate of the garden and so it went, candidate {i}." for i in (0, 1)
    )


def test_stop_really_stops(visit: Visit, site: Site) -> None:
    page = visit.page
    before = site.store.count()
    write(page, "draft", "gate to stop")
    run(page, "draft")
    for _ in range(2):
        site.world.gate.release()
    expect(status(page, "draft")).to_have_text(re.compile("Step 2 of 6"))
    page.locator("#draft-stop").click()
    expect(page.locator("#draft-stop")).to_have_text("Stopping…")
    site.world.gate.release()  # the step under way ends, no other begins
    expect(status(page, "draft")).to_have_text("Stopped at step 3 of 6.")
    assert max(step for text, step in site.world.steps_made if text == "gate to stop") == 3
    expect(page.locator("#draft-caption-0")).to_contain_text("unfinished")
    expect(page.locator("#draft-stop")).to_be_disabled()
    expect(page.locator("#draft-run")).to_be_enabled()
    assert site.store.count() == before
    write(page, "draft", "again")
    run(page, "draft")
    finished(page, "draft")


def test_infill_with_a_gap_made_from_the_selection(visit: Visit, site: Site) -> None:
    page = visit.page
    tab(page, "Infill")
    write(page, "infill", "A 🏠 very old house on the hill.")
    page.locator("#infill-text textarea").evaluate(
        "box => { const at = box.value.indexOf('very'); box.focus();"
        " box.setSelectionRange(at, at + 'very old '.length); }"
    )
    page.locator("#infill-gap").click()
    box = page.locator("#infill-text textarea")
    expect(box).to_have_value("A 🏠 [[2-6]] house on the hill.")
    run(page, "infill")
    finished(page, "infill")
    expect(out(page, "infill", 0)).to_have_value(re.compile(r"^A 🏠 \[\[2-6\]\] house"))
    assert site.store.list(limit=1)[0].input == "A 🏠 [[2-6]] house on the hill."


def test_translate(visit: Visit, site: Site) -> None:
    page = visit.page
    tab(page, "Translate")
    write(page, "translate", "Das Haus")
    run(page, "translate")
    finished(page, "translate")
    (found,) = site.store.list(limit=1)
    assert (found.editor, found.settings["sampler"]) == ("translate", "ode")
    assert found.settings["condition_guidance"] == 1.5


def test_bad_input_is_a_message(visit: Visit) -> None:
    page = visit.page
    tab(page, "Infill")
    write(page, "infill", f"no gap {HOSTILE}")
    run(page, "infill")
    line = status(page, "infill")
    expect(line).to_contain_text(f"no gap in 'no gap {HOSTILE}'; mark one with [[2-6]]")
    expect(page.get_by_test_id("toast-body")).to_contain_text("<img src=x onerror=")
    assert page.locator("img[src=x]").count() == 0
    expect(page.locator("#infill-run")).to_be_enabled()
    expect(page.get_by_text("Traceback")).to_have_count(0)


def test_a_defect_shows_no_insides(visit: Visit, caplog: pytest.LogCaptureFixture) -> None:
    page = visit.page
    write(page, "draft", "boom")
    run(page, "draft")
    expect(status(page, "draft")).to_contain_text("something went wrong inside ELF Studio")
    expect(page.get_by_text("secret inner detail")).to_have_count(0)
    expect(page.locator("#draft-run")).to_be_enabled()
    assert "secret inner detail" in caplog.text


def test_a_wrong_seed_is_a_message_and_the_dice_give_a_right_one(visit: Visit) -> None:
    page = visit.page
    seed = page.locator("#draft-seed input, #draft-seed textarea")
    seed.fill("seven")
    run(page, "draft")
    expect(page.get_by_test_id("toast-body")).to_contain_text("seed 'seven' is no whole number")
    page.locator("#draft-dice").click()
    expect(seed).to_have_value(re.compile(r"^\d+$"))
    write(page, "draft", "dice")
    run(page, "draft")
    finished(page, "draft")
    expect(page.locator("#draft-caption-0")).to_contain_text(f"seed {seed.input_value()},")


def test_a_candidate_becomes_input(visit: Visit, site: Site) -> None:
    page = visit.page
    write(page, "draft", "One [[2]] step")
    run(page, "draft")
    finished(page, "draft")
    first = page.locator("#draft-out-0 textarea").input_value()
    page.get_by_role("button", name="Use as input").first.click()
    expect(page.locator("#draft-text textarea")).to_have_value(first)
    page.get_by_role("button", name="Edit in Infill").first.click()
    expect(page.locator("#infill-text textarea")).to_have_value(first.replace("[[", r"\[["))
    parent = next(g for g in site.store.list() if g.output == first)
    tab(page, "Draft")
    run(page, "draft")
    expect(out(page, "draft", 0)).to_have_value(re.compile("candidate 0. and so it went"))
    finished(page, "draft")
    assert site.store.list(limit=1)[0].parent_id == parent.id


def test_a_closed_page_frees_its_run(context: BrowserContext, site: Site) -> None:
    page = context.new_page()
    page.goto(site.url)
    write(page, "draft", "gate left behind")
    run(page, "draft")
    site.world.gate.release()
    expect(status(page, "draft")).to_have_text(re.compile("Step 1 of 6"))
    page.close()
    (left,) = site.service.running()
    assert wait_for(left._stop.is_set)
    site.world.gate.release()
    assert wait_for(lambda: "gate left behind" in site.world.closed)
    assert max(s for text, s in site.world.steps_made if text == "gate left behind") <= 2


def test_one_page_does_not_touch_another(context: BrowserContext, site: Site) -> None:
    pages = []
    for text in ("gate of the first", "the second"):
        page = context.new_page()
        page.goto(site.url)
        write(page, "draft", text)
        run(page, "draft")
        expect(page.locator("#draft-stop")).to_be_enabled()
        pages.append(page)
    first, second = pages
    expect(status(second, "draft")).to_have_text("Waiting: 1 before you.")
    second.locator("#draft-stop").click()
    expect(status(second, "draft")).to_have_text("Stopped.")
    site.world.gate.release(6)
    finished(first, "draft")
    for page in pages:
        page.close()


def test_a_history_that_cannot_be_written_still_gives_the_text(
    visit: Visit, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    monkeypatch.setattr(site.store, "_engine", None)
    monkeypatch.setattr(site.store, "_path", Path(site.store.where) / "not a folder" / "x.db")
    write(page, "draft", "precious")
    run(page, "draft")
    finished(page, "draft")
    expect(out(page, "draft", 0)).to_have_value("precious and so it went, candidate 0.")
    expect(page.get_by_test_id("toast-body").first).to_contain_text("not in the history")


def test_answers_only_to_its_own_name(site: Site) -> None:
    for path in ("", "config", "gradio_api/info"):
        request = urllib.request.Request(site.url + path, headers={"Host": "elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=20)
    with urllib.request.urlopen(site.url.replace("127.0.0.1", "localhost"), timeout=20) as answer:
        assert answer.status == 200


def test_every_control_has_a_name(visit: Visit) -> None:
    page = visit.page
    for name in ("Draft", "Infill", "Translate", "History"):
        tab(page, name)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('input, textarea, button, select')]
                .filter(e => e.offsetParent !== null)
                .filter(e => !(e.labels?.length || e.ariaLabel || e.title || e.innerText?.trim()
                    || e.getAttribute('aria-labelledby')))
                .map(e => e.outerHTML.slice(0, 160))"""
        )
        assert nameless == [], name
