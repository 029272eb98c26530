"""Translate, Summarise and Modernise in a real Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

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


def places(page: Page, name: str) -> list[dict[str, float]]:
    """Where the first two candidates are, at one moment."""
    ids = [f"#{name}-out-{i}" for i in (0, 1)]
    script = "ids => ids.map(id => document.querySelector(id).getBoundingClientRect().toJSON())"
    found: list[dict[str, float]] = page.evaluate(script, ids)
    return found


@pytest.mark.parametrize("name", ["translate", "summarise", "modernise"])
def test_candidates_stand_side_by_side(visit: Visit, site: Site, name: str) -> None:
    page = visit.page
    tab(page, name.title())
    write(page, name, f"Das Haus {HOSTILE}")
    run(page, name)
    finished(page, name)
    expect(out(page, name, 1)).to_have_value(re.compile("candidate 1.$"))
    left, right = places(page, name)
    assert (left["y"], left["right"] < right["x"]) == (right["y"], True)
    expect(page.locator(f"#{name}-caption-0")).to_contain_text("rank 1: ")
    expect(page.locator(f"#{name}-caption-0")).to_contain_text("Note: it may go on")
    assert site.store.list(limit=1)[0].editor == name
    page.set_viewport_size({"width": 390, "height": 800})
    left, right = places(page, name)
    assert (left["x"], left["y"] < right["y"]) == (right["x"], True)


def test_the_quality_slider_moves_the_knobs(visit: Visit, site: Site) -> None:
    page = visit.page
    tab(page, "Translate")
    quality = page.get_by_label("number input for Diversity to quality").locator("visible=true")
    write(page, "translate", "Das Haus")
    for position, words, scale in (("0", "Most varied", 1.0), ("1", "Most likely", 2.0)):
        quality.fill(position)
        quality.press("Tab")
        expect(page.locator("#translate-meaning")).to_contain_text(words)
        run(page, "translate")

        def ran(scale: float = scale) -> bool:
            newest = site.store.list(limit=1)
            return bool(newest) and newest[0].settings["condition_guidance"] == scale

        assert wait_for(ran)
        finished(page, "translate")


def test_a_model_without_the_task_says_who_has_it(
    visit: Visit, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    monkeypatch.setattr(site.world, "names", ("starter", "other", "only-draft"))
    page.reload()
    tab(page, "Summarise")
    page.get_by_label("Model", exact=True).click()
    page.get_by_role("option", name="only-draft").click()
    line = "model 'only-draft' was not trained to summarise; starter, other can: choose it above"
    expect(page.locator("#summarise-notice")).to_contain_text(line)
    write(page, "summarise", "A text.")
    run(page, "summarise")
    expect(page.get_by_test_id("toast-body")).to_contain_text(line)
    expect(status(page, "summarise")).to_contain_text("Not started")
    assert ("only-draft", "torch") not in site.world.loaded
    page.get_by_label("Model", exact=True).click()
    page.get_by_role("option", name="other").click()
    expect(page.locator("#summarise-notice")).not_to_contain_text("not trained")
    run(page, "summarise")
    finished(page, "summarise")


def test_a_long_text_tells_its_parts(visit: Visit, site: Site) -> None:
    page = visit.page
    tab(page, "Summarise")
    write(page, "summarise", "gate in 3 parts")
    run(page, "summarise")
    for step, part in ((1, 1), (6, 1), (7, 2), (13, 3)):
        made = sum(text == "gate in 3 parts" for text, _ in site.world.steps_made)
        site.world.gate.release(step - made)
        expect(status(page, "summarise")).to_contain_text(f"Part {part} of 3, step {step} of 18")
    page.locator("#summarise-stop").click()
    site.world.gate.release()
    expect(status(page, "summarise")).to_contain_text("Stopped at step")
