"""Around the text of the Write tab: knobs and presets, restoring, other people, programs."""

from __future__ import annotations

import json
import re

import pytest
from gradio_client import Client
from playwright.sync_api import expect

from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec, to_dict
from tests.app.browser import MARKS, Site, Visit, tab, wait_for
from tests.app.writing import TEXT, box, card, run, select, status

pytestmark = [*MARKS, pytest.mark.usefixtures("fresh")]
HOSTILE_NAME = "quick <img src=x onerror=window.hacked=1>"


def test_knobs_presets_and_seed(visit: Visit, site: Site) -> None:
    page = visit.page
    meaning = page.locator("#write-meaning")
    expect(meaning).to_contain_text("steps 6, sampler SDE, gamma 1, guidance 1.5")
    quality = page.get_by_label("number input for Diversity to quality")
    quality.fill("1")
    quality.press("Tab")
    expect(meaning).to_contain_text("steps 8")
    expect(meaning).to_contain_text("Most likely")
    expect(meaning).to_contain_text("measured at 1: perplexity 30 (ngram)")
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
    page.get_by_label("Save these settings as").fill(HOSTILE_NAME)
    page.locator("#write-preset-save").click()
    chosen = page.locator("#write-preset input")
    expect(chosen).to_have_value(HOSTILE_NAME)
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
    page.wait_for_timeout(1000)  # the preset's values may still be on their way into the boxes
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
    for editor in ("translate", "summarise", "modernise"):
        (made,) = client.predict("Ein Haus", {"quality": 1}, api_name=f"/{editor}")
        kept = site.store.get(made["id"])
        assert (kept.editor, kept.output) == (editor, made["text"])
    for options, message in (({"model": "/etc"}, "not installed"), ({"steps": 3}, "unknown key")):
        with pytest.raises(Exception, match=message):
            client.predict("A", 0, options, api_name="/draft")
    assert json.dumps(found)
