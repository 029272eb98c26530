"""The Compare tab in a real Chromium."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.app.browser import HOSTILE, MARKS, Site, Visit, finished, run, status, tab, write

pytestmark = MARKS
EDITOR = "compare"


@pytest.fixture(autouse=True)
def quick(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.world, "pace", 0.0)


def answers(page: Page) -> Locator:
    return page.locator("#compare-table .elf-answer")


def choose(page: Page, label: str, option: str, within: str = "body") -> None:
    page.locator(within).get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()
    expect(page.get_by_role("option")).to_have_count(0)


def columns(page: Page, many: int) -> None:
    box = page.get_by_label("number input for Columns", exact=True)
    box.fill(str(many))
    box.press("Tab")
    expect(page.locator(f"#compare-column-{many - 1}")).to_be_visible()


def saved(page: Page, button: str, folder: Path) -> str:
    with page.expect_download() as download:
        page.locator(button).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes().decode("utf-8")


def test_four_columns_of_which_one_fails(
    visit: Visit, site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = visit.page
    monkeypatch.setattr(site.world, "names", ("starter", "other", "only-draft"))
    tab(page, "Compare")
    columns(page, 4)
    choose(page, "Column B: model", "only-draft")
    choose(page, "Column C: model", "other")
    page.locator("#compare-column-3").get_by_label("By hand").check()
    steps = page.locator("#compare-column-3").get_by_label("number input for Steps")
    expect(steps).to_have_value("6")
    steps.fill("2")
    steps.press("Tab")
    page.locator("#compare-seed textarea, #compare-seed input").fill("7")
    write(page, EDITOR, f"=Das Haus {HOSTILE}")
    run(page, EDITOR)
    finished(page, EDITOR)
    expect(status(page, EDITOR)).to_contain_text("3 of 4 answers ready, 1 failed")
    failed = answers(page).nth(1)
    expect(failed).to_contain_text(
        "model 'only-draft' was not trained to translate; starter, other can"
    )
    for i, name in ((0, "starter"), (2, "other"), (3, "steps 2")):
        expect(answers(page).nth(i)).to_contain_text(f"{HOSTILE} and so it went, candidate 0.")
        expect(answers(page).nth(i)).to_contain_text(name)
        expect(answers(page).nth(i)).to_contain_text("seed 7")
    assert page.locator("img[src=x]").count() == 0
    tops = {round(box["y"]) for i in range(4) if (box := answers(page).nth(i).bounding_box())}
    assert len(tops) == 1
    page.get_by_role("button", name="Prefer answer C").click()
    expect(answers(page).nth(2)).to_contain_text("★ preferred")
    kept = [g for g in site.store.list(limit=3) if g.preferred]
    assert [(g.model, g.editor) for g in kept] == [("other", "translate")]
    rows = list(csv.DictReader(io.StringIO(saved(page, "#compare-save", tmp_path)[1:])))
    assert [row["answer"] for row in rows] == ["A", "B", "C", "D"]
    assert {row["input"][:2] for row in rows} == {"'="}, "no spreadsheet takes it for a formula"
    assert [row["preferred"] for row in rows] == ["", "", "yes", ""]
    assert "was not trained to translate" in rows[1]["error"]
    choose(page, "File type", "JSONL")
    found = [json.loads(line) for line in saved(page, "#compare-save", tmp_path).splitlines()]
    assert found[3]["settings"]["steps"] == 2
    assert found[0]["input"] == f"=Das Haus {HOSTILE}"
    page.get_by_role("button", name="Prefer answer C").click()
    expect(page.locator("#compare-counts table")).to_have_count(0)
    assert not any(g.preferred for g in site.store.list(limit=3))


def test_word_differences_are_marked_in_words_too(visit: Visit) -> None:
    page = visit.page
    tab(page, "Compare")
    choose(page, "Editor", "Draft", "#compare-editor")
    box = page.get_by_label("number input for Candidates each")
    box.fill("2")
    box.press("Tab")
    write(page, EDITOR, "Once <b>upon</b>")
    run(page, EDITOR)
    finished(page, EDITOR)
    choose(page, "Mark word differences against", "answer A", "#compare-base")
    second = answers(page).nth(1)
    expect(second.locator("ins")).to_have_text(re.compile("added: 1"))
    expect(second.locator("del")).to_have_text(re.compile("removed: 0"))
    expect(answers(page).nth(0).locator("ins, del")).to_have_count(0)
    choose(page, "Mark word differences against", "the input", "#compare-base")
    expect(answers(page).nth(0).locator("ins")).to_have_count(2)
    page.get_by_role("button", name="Use answer B, candidate 2 in Write").click()
    expect(page.locator("#write-text textarea")).to_have_value(
        "Once <b>upon</b> and so it went, candidate 1."
    )


def test_a_grid_over_two_knobs(visit: Visit, site: Site) -> None:
    page = visit.page
    tab(page, "Compare")
    page.locator("#compare-layout").get_by_label("Grid over two knobs").check()
    page.locator("#compare-down textarea, #compare-down input").fill("2, 3, 2000")
    page.locator("#compare-across textarea, #compare-across input").fill("0, 1.5")
    write(page, EDITOR, "Ein Gitter")
    run(page, EDITOR)
    finished(page, EDITOR)
    expect(status(page, EDITOR)).to_contain_text("4 of 6 answers ready, 2 failed")
    table = page.locator("#compare-table table")
    heads = ["gamma 0", "gamma 1.5", "steps 2", "steps 3", "steps 2000"]
    expect(table.locator("th")).to_have_text(heads)
    expect(table.locator("tbody tr").nth(2)).to_contain_text("steps 2000 is outside 1 to 1000")
    made = {(g.settings["steps"], g.settings["gamma"]) for g in site.store.list(limit=4)}
    assert made == {(2, 0.0), (2, 1.5), (3, 0.0), (3, 1.5)}
    assert len({g.seed for g in site.store.list(limit=4)}) == 1
    page.locator("#compare-down textarea, #compare-down input").fill("1,2,3,4,5,6,7")
    run(page, EDITOR)
    expect(page.get_by_test_id("toast-body")).to_contain_text("steps has 7 values to compare")


def test_blind_until_revealed(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    tab(page, "Compare")
    columns(page, 3)
    choose(page, "Column B: model", "other")
    page.locator("#compare-column-2").get_by_label("By quality").check()
    page.locator("#compare-blind input").check()
    for turn in (1, 2):
        write(page, EDITOR, f"Blind {turn}")
        run(page, EDITOR)
        finished(page, EDITOR)
        expect(answers(page)).to_have_count(3)
        for word in ("starter", "other", "seed", "quality"):
            expect(page.locator("#compare-table")).not_to_contain_text(word)
        page.locator("#compare-save").click()
        expect(page.get_by_test_id("toast-body").first).to_contain_text("names are still hidden")
        page.get_by_role("button", name="Prefer answer A").click()
        expect(answers(page).nth(0)).to_contain_text("★ preferred")
        if turn == 1:
            expect(page.locator("#compare-counts table")).to_have_count(0)
        page.locator("#compare-reveal").click()
        name = answers(page).nth(0).locator("h3 + p")
        expect(name).to_have_text(re.compile("starter|other"))
        row = page.locator("#compare-counts tbody tr").filter(
            has=page.get_by_text(name.inner_text(), exact=True)
        )
        expect(row.locator("td").nth(2)).to_have_text(str(turn))
    counts = page.locator("#compare-counts tbody td:nth-child(3)").all_inner_texts()
    assert sum(map(int, counts)) == 2, "each preference was blind"
    rows = list(csv.DictReader(io.StringIO(saved(page, "#compare-save-counts", tmp_path)[1:])))
    assert sum(int(row["preferred"]) for row in rows) == 2
    assert {row["compared"] for row in rows} == {"2"}


def test_stop_ends_all_answers(visit: Visit, site: Site) -> None:
    page = visit.page
    tab(page, "Compare")
    columns(page, 4)
    write(page, EDITOR, "gate of all columns")
    run(page, EDITOR)
    site.world.gate.release(32)
    expect(status(page, EDITOR)).to_contain_text("1 of 4 answers ready")
    page.locator("#compare-stop").click()
    site.world.gate.release()
    expect(status(page, EDITOR)).to_have_text("Stopped: 1 of 4 answers ready.")
    expect(page.locator("#compare-table .stopped")).to_have_count(3)
    expect(page.locator("#compare-run")).to_be_enabled()
    assert sum(text == "gate of all columns" for text, _ in site.world.steps_made) <= 33
