"""The History tab in a real Chromium: shown as it was, found by id, restored exactly."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec, to_dict
from tests.app.browser import HOSTILE, MARKS, Site, Visit, finished, out, run, tab, write

pytestmark = MARKS


def test_history_shows_and_restores(visit: Visit, site: Site) -> None:
    page = visit.page
    text = f"Keep this {HOSTILE}"
    write(page, "draft", text)
    page.locator("#draft-seed input, #draft-seed textarea").fill("9007199254740993")
    page.get_by_role("button", name="More settings").first.click()
    page.get_by_label("number input for Steps").first.fill("3")
    page.get_by_label("number input for Steps").first.press("Tab")
    page.get_by_label("ODE (deterministic path)").first.check()
    run(page, "draft")
    finished(page, "draft")
    write(page, "draft", "something newer")
    page.locator("#draft-seed input, #draft-seed textarea").fill("")
    run(page, "draft")
    expect(out(page, "draft", 0)).to_have_value("something newer and so it went, candidate 0.")
    finished(page, "draft")
    page.reload()
    tab(page, "History")
    kept = next(g for g in site.store.list() if g.input == text and g.sample_index == 0)
    # Sorted by a column first: the row clicked must be the row shown.
    head = page.locator('#history-table [role="columnheader"]').filter(has_text="Seed").first
    head.hover()
    head.get_by_label("Open cell menu").click()
    page.get_by_text("Sort ascending").click()
    expect(head).to_have_class(re.compile("sorted"))
    page.locator(f'#history-table [role="gridcell"]:has-text("{kept.id}")').first.click()
    expect(page.locator("#history-input textarea")).to_have_value(text)
    expect(page.locator("#history-output textarea")).to_have_value(kept.output)
    expect(page.locator("#history-detail textarea")).to_have_value(re.compile(kept.model_hash))
    page.locator("#history-restore").click()
    expect(page.locator("#draft-text textarea")).to_be_visible()
    expect(page.locator("#draft-text textarea")).to_have_value(text)
    expect(page.locator("#draft-seed input, #draft-seed textarea")).to_have_value(
        "9007199254740993"
    )
    run(page, "draft")
    finished(page, "draft")
    again = site.store.list(limit=2)[1]
    assert (again.output, again.settings, again.seed) == (kept.output, kept.settings, kept.seed)


def test_history_restores_what_the_sliders_do_not_reach(visit: Visit, site: Site) -> None:
    page = visit.page
    wild = SampleSpec(steps=300, guidance=20.333, gamma=9.5, grid="quantile", seed=5)
    request = EditRequest("draft", "from the command line", count=20, length=37, settings=wild)
    result = EditResult(
        "from the command line and on", 5, 12, "draft", request.text, "starter", "h", "jax",
        {**to_dict(wild), "effective_steps": 300}, 1.0,
    )  # fmt: skip
    id = site.store.add(result, request)
    tab(page, "History")
    box = page.locator("#history-id input, #history-id textarea")
    box.fill(id)
    box.press("Enter")
    expect(page.locator("#history-output textarea")).to_have_value(result.text)
    page.locator("#history-restore").click()
    expect(page.locator("#draft-text textarea")).to_have_value(request.text)
    site.world.pace, before = 0.0, site.world.pace
    run(page, "draft")
    finished(page, "draft")
    site.world.pace = before
    (again,) = site.store.list(limit=1)
    assert again.settings == to_dict(wild)
    assert (again.sample_index, again.request.length, again.backend) == (12, 37, "jax")


def test_history_by_id(visit: Visit, site: Site) -> None:
    page = visit.page
    write(page, "draft", "find me")
    run(page, "draft")
    finished(page, "draft")
    id = site.store.list(limit=1)[0].id
    tab(page, "History")
    box = page.locator("#history-id input, #history-id textarea")
    box.fill("nonsense!")
    box.press("Enter")
    expect(page.get_by_test_id("toast-body")).to_contain_text("no result id")
    box.fill(id[:13])
    box.press("Enter")
    expect(page.locator("#history-output textarea")).to_have_value(re.compile("^find me"))


def test_history_walks_back_through_kept_steps(visit: Visit, site: Site) -> None:
    page = visit.page
    write(page, "draft", "walk")
    page.get_by_role("button", name="More settings").first.click()
    page.get_by_label("Keep the text of every step").first.check()
    run(page, "draft")
    finished(page, "draft")
    (kept,) = site.store.list(limit=1)
    steps = site.store.steps(kept.id)
    assert len(steps) == 6
    tab(page, "History")
    page.locator(f'#history-table [role="gridcell"]:has-text("{kept.id}")').first.click()
    expect(page.locator("#history-output textarea")).to_have_value(kept.output)
    number = page.locator("#history-step input[type=number]")
    number.fill("2")
    number.press("Tab")
    expect(page.locator("#history-output textarea")).to_have_value(steps[1].text)


def test_history_pages_back(visit: Visit, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit.page
    monkeypatch.setattr("app.tabs.history.ROWS", 1)
    result = EditResult("", 5, 0, "draft", "", "starter", "h", "torch", {}, 1.0)
    request = EditRequest("draft")
    for text in ("the older", "the newer"):
        site.store.add(replace(result, text=text), request)
    tab(page, "History")
    table = page.locator("#history-table")
    expect(table).to_contain_text("the newer")
    expect(table).not_to_contain_text("the older")
    page.get_by_role("button", name="Older").click()
    expect(table).to_contain_text("the older")
    page.get_by_role("button", name="Newest").click()
    expect(table).to_contain_text("the newer")
