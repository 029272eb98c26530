"""The History tab in a real Chromium: found, shown as it was, compared, marked, made again."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from app import server as web
from app.records import Generation, StoredStep
from app.service import Service
from app.store import Store
from app.tabs import common
from app.tabs.common import LiveRuns
from app.tabs.history import HistoryTab
from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec, to_dict
from tests.app.browser import HOSTILE, MARKS, Site, Visit, tab
from tests.app.fake import FakeWorld

pytestmark = MARKS
SPEC = SampleSpec(steps=3, seed=9007199254740993)


class Desk:
    """A tab that takes results back, as the editing tabs do, and shows what it was given."""

    def __init__(self) -> None:
        with gr.Tab("Desk", id="draft"):
            self.text = gr.Textbox(label="Text", elem_id="desk-text")
            self.seed = gr.Textbox(label="Seed", elem_id="desk-seed")
            self.settings = gr.Textbox(label="Settings", elem_id="desk-settings")

    def restore(self, found: Generation) -> dict[Any, Any]:
        shown = json.dumps({k: v for k, v in found.settings.items() if k != "seed"})
        values = {self.text: found.request.text, self.seed: str(found.seed)}
        return values | {self.settings: shown}

    def restorable(self) -> list[Any]:
        return [self.text, self.seed, self.settings]


def build(service: Service, store: Store) -> gr.Blocks:
    with gr.Blocks(analytics_enabled=False, fill_width=True) as blocks:
        model = gr.Dropdown(service.models(), value="starter", label="Model", elem_id="desk-model")
        device = gr.Dropdown(["torch", "jax"], value="torch", label="Backend")
        with gr.Tabs() as tabs:
            page = common.Page(service, LiveRuns(), tabs, model, device)
            HistoryTab(page, store, dict.fromkeys(["draft", "infill"], Desk()))
    return blocks


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    world = FakeWorld()
    store = Store(tmp_path_factory.mktemp("archive") / "history.db")
    service = Service(world.runtime(), store)
    blocks = build(service, store)
    url = web.launch(blocks, web.LOOPBACK, web.free_port(web.LOOPBACK, 0), block=False)
    yield Site(url, world, store, service)
    blocks.close(verbose=False)
    service.close()
    store.close()


@dataclass
class Open:
    page: Page
    store: Store
    world: FakeWorld

    def at(self, name: str) -> Locator:
        """The box inside the part of the tab that has this name."""
        return self.page.locator(f"#history-{name}").locator("textarea, input").first

    def row(self, id: str) -> Locator:
        return self.page.locator(f'#history-table [role="gridcell"]:has-text("{id}")').first

    def click(self, name: str) -> None:
        self.page.locator(f"button#history-{name}, #history-{name} button").first.click()

    def show(self, id: str) -> None:
        self.at("id").fill(id)
        self.at("id").press("Enter")
        expect(self.at("id")).to_have_value(id)
        expect(self.page.locator("#history-restore")).to_be_enabled()
        expect(self.at("detail")).to_have_value(re.compile(id))

    def add(self, given: str, **changes: Any) -> str:
        """A result that the fake engine gives again."""
        spec = changes.pop("spec", SPEC)
        extra = {k: changes.pop(k) for k in ("parent_id", "steps") if k in changes}
        request = EditRequest("draft", given, settings=spec)
        made = EditResult(
            f"{given} and so it went, candidate 0.", spec.seed, 0, "draft", given, "starter",
            "hash-of-starter", "torch", {**to_dict(spec), "effective_steps": spec.steps}, 1.0,
        )  # fmt: skip
        return self.store.add(replace(made, **changes), request, **extra)


@pytest.fixture(scope="module")
def opened(context: BrowserContext, archive: Site) -> Iterator[Page]:
    """One for all tests here: opening it takes longer than they do."""
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(archive.url)
    tab(page, "History")
    for fold in ("Filters", "Export and import"):
        page.get_by_role("button", name=fold).click()
    yield page
    page.close()
    assert errors == []


@pytest.fixture
def history(opened: Page, archive: Site) -> Iterator[Open]:
    tab(opened, "History")
    made = Open(opened, archive.store, archive.world)
    made.at("search").fill("")
    yield made
    assert opened.evaluate("window.hacked") is None


def test_a_sorted_row_is_the_row_that_is_shown_and_restored(history: Open) -> None:
    page = history.page
    text = f"Keep this {HOSTILE}"
    kept = history.store.get(history.add(text))
    history.add("something newer", spec=replace(SPEC, seed=1))
    history.click("newest")
    expect(history.row(kept.id)).to_be_visible()
    head = page.locator('#history-table [role="columnheader"]').filter(has_text="Text").first
    head.hover()
    head.get_by_label("Open cell menu").click()
    page.get_by_text("Sort ascending").click()
    expect(head).to_have_class(re.compile("sorted"))
    history.row(kept.id).click()
    expect(history.at("input")).to_have_value(text)
    expect(history.at("output")).to_have_value(kept.output)
    expect(history.at("detail")).to_have_value(re.compile(kept.model_hash))
    history.click("restore")
    expect(page.locator("#desk-text textarea")).to_have_value(text)
    expect(page.locator("#desk-seed textarea")).to_have_value(str(SPEC.seed))
    expect(page.locator("#desk-settings textarea")).to_have_value(re.compile('"steps": 3'))


def test_remix_restores_all_but_the_seed(history: Open) -> None:
    history.show(history.add("Mix me"))
    history.click("remix")
    page = history.page
    expect(page.locator("#desk-text textarea")).to_have_value("Mix me")
    expect(page.locator("#desk-settings textarea")).to_have_value(re.compile('"steps": 3'))
    seed = page.locator("#desk-seed textarea").input_value()
    assert seed.isdecimal()
    assert int(seed) != SPEC.seed


def test_search_and_filters(history: Open) -> None:
    page = history.page
    elf = history.add('Im Wald steht die 🧝 "Elfe"')
    other = history.add("A dwarf", model="other")
    history.store.tag(other, "mines")
    for query in ("ELFE", "🧝", '"steht die"', '"'):
        history.at("search").fill(query)
        history.at("search").press("Enter")
        expect(history.row(elf)).to_be_visible()
    expect(history.row(other)).to_be_visible()
    history.at("search").fill('( OR "')
    history.click("find")
    expect(page.locator("#history-table")).not_to_contain_text(elf)
    history.at("search").fill("")
    history.click("newest")
    history.at("tag").click()
    page.get_by_role("option", name="mines (1)").click()
    expect(history.row(other)).to_be_visible()
    expect(page.locator("#history-table")).not_to_contain_text(elf)
    history.at("since").fill("yesterday")
    history.at("since").press("Enter")
    expect(page.get_by_text("'yesterday' is no date")).to_be_visible()
    history.at("since").fill("")
    history.at("when").click()
    page.get_by_role("option", name="yesterday").click()
    expect(page.locator("#history-table")).not_to_contain_text(other)
    assert history.at("since").input_value() == history.at("until").input_value() != ""
    history.at("when").click()
    page.get_by_role("option", name="any time").click()
    expect(history.row(other)).to_be_visible()
    history.at("tag").click()
    page.get_by_role("option", name="all").click()
    expect(history.row(elf)).to_be_visible()


def test_a_search_sent_during_another_is_answered(
    history: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, store = history.page, history.store
    first, second = history.add("Zucchini"), history.add("Artichoke")
    history.click("newest")
    expect(history.row(first)).to_be_visible()
    listed, asked = store.list, threading.Semaphore(0)

    def slow(*args: Any, **kwargs: Any) -> Any:
        asked.release()
        time.sleep(1.0)
        return listed(*args, **kwargs)

    monkeypatch.setattr(Store, "list", lambda self, *args, **kwargs: slow(*args, **kwargs))
    history.at("search").fill("zucchini")
    history.at("search").press("Enter")
    assert asked.acquire(timeout=30)
    history.at("search").fill("artichoke")
    history.at("search").press("Enter")
    expect(history.row(second)).to_be_visible()
    expect(page.locator("#history-table")).not_to_contain_text(first)


def test_star_tag_delete_and_undo(history: Open) -> None:
    page, store = history.page, history.store
    id = history.add("Mark me")
    history.show(id)
    history.click("star")
    expect(page.locator("#history-star")).to_have_text("★ Starred")
    history.at("tags").fill("Blog,  two  words")
    history.click("save-tags")
    expect(history.at("tags")).to_have_value("blog, two words")
    expect(page.locator("#history-table")).to_contain_text("★ #blog #two words")
    assert (store.get(id).starred, store.get(id).tags) == (True, ("blog", "two words"))
    history.click("delete")
    expect(page.locator("#history-delete")).to_have_text("Undo delete")
    expect(page.locator("#history-table")).not_to_contain_text(id)
    history.click("delete")
    expect(page.locator("#history-delete")).to_have_text("Delete")
    expect(history.row(id)).to_be_visible()
    assert store.get(id).deleted_utc is None


def test_run_again_says_identical_or_shows_what_differs(history: Open) -> None:
    verdict = history.page.locator("#history-verdict")
    same, changed = history.add("Again"), history.add("Again", text="Again and so it <i>was</i>.")
    before = history.store.count()
    history.show(same)
    history.click("verify")
    expect(verdict).to_contain_text("Identical")
    history.show(changed)
    history.click("verify")
    expect(verdict).to_contain_text("Different")
    expect(verdict.locator("ins").first).to_contain_text("went")
    assert history.store.count() == before, "verifying adds nothing"
    history.show(history.add("Again", model_hash="other"))
    history.click("verify")
    expect(verdict).to_contain_text("is not the model that made")
    history.show(history.add("Again", model="gone"))
    history.click("verify")
    expect(history.page.get_by_text("'gone' is not installed")).to_be_visible()


def test_running_again_can_be_stopped(history: Open) -> None:
    history.show(history.add("gate here"))
    history.click("verify")
    expect(history.page.locator("#history-stop")).to_be_enabled()
    history.click("stop")
    history.world.gate.release()
    expect(history.page.locator("#history-verdict")).to_contain_text("Stopped")
    expect(history.page.locator("#history-verify")).to_be_enabled()


def test_differences_and_lineage(history: Open) -> None:
    page = history.page
    first = history.add("First", text="The old house <b>stands</b>.")
    second = history.add("Second", text="The new house <b>stands</b>.", parent_id=first)
    third = history.add("Third", text="The new house fell.", parent_id=second)
    history.show(second)
    history.click("diff")
    compared = page.locator("#history-compared")
    expect(compared.locator("del")).to_contain_text("old")
    expect(compared.locator("ins")).to_contain_text("new")
    line = page.locator("#history-lineage label")
    expect(line).to_have_count(3)
    line.nth(0).click()
    expect(history.at("output")).to_have_value("The old house <b>stands</b>.")
    history.click("remember")
    expect(history.at("other")).to_have_value(first)
    history.show(third)
    history.click("diff")
    expect(compared.locator("del").first).to_contain_text("old")
    expect(compared).to_contain_text(f"From {first} to {third}")


def test_walks_back_through_kept_steps(history: Open) -> None:
    steps = [StoredStep(i, i / 3, f"noise {i}") for i in (1, 2, 3)]
    history.show(history.add("Walk", steps=steps))
    number = history.page.locator("#history-step input[type=number]")
    number.fill("2")
    number.press("Tab")
    expect(history.at("output")).to_have_value("noise 2")


def test_export_and_import(history: Open, tmp_path: Path) -> None:
    page, store = history.page, history.store
    id = history.add("Carry =me")
    history.at("search").fill('"Carry =me"')
    with page.expect_download() as caught:
        history.click("export")
    assert re.fullmatch(r"elf-history-\d{4}-\d\d-\d\d\.jsonl", caught.value.suggested_filename)
    file = tmp_path / "carried.jsonl"
    caught.value.save_as(file)
    (line,) = file.read_text("utf-8").splitlines()
    assert json.loads(line)["id"] == id
    file.write_text(line.replace(id, "00000000000abc") + "\n", "utf-8")
    upload(page, file)
    said = page.locator("#history-files-status")
    expect(said).to_contain_text("1 result added, 0 already there")
    assert store.get("00000000000abc").output == store.get(id).output
    file.write_text("shopping list", "utf-8")
    upload(page, file)
    expect(page.get_by_text("line 1: not a line of an export")).to_be_visible()


def upload(page: Page, file: Path) -> None:
    with page.expect_file_chooser() as asked:
        page.locator("#history-import").click()
    asked.value.set_files(file)


def test_pages_back(history: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tabs.history.ROWS", 1)
    history.add("the older")
    history.add("the newer")
    history.click("newest")
    table = history.page.locator("#history-table")
    expect(table).to_contain_text("the newer")
    expect(table).not_to_contain_text("the older")
    history.click("older")
    expect(table).to_contain_text("the older")


def test_nothing_is_cut_off_on_a_phone(history: Open) -> None:
    page = history.page
    id = history.add("A text that is long enough to need more than one line on a phone")
    before = page.viewport_size or {"width": 1360, "height": 900}
    page.set_viewport_size({"width": 390, "height": 844})
    history.show(id)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    for name in ("search", "id", "output", "tags", "other", "input"):
        box = history.at(name).bounding_box()
        assert box is not None
        assert box["width"] >= 180, name
    cells = page.locator('#history-table [role="gridcell"]:visible')
    assert (cells.first.bounding_box() or {"width": 0})["width"] >= 120
    page.set_viewport_size(before)


def test_the_real_page_restores_into_its_tab(visit: Visit, site: Site) -> None:
    spec = replace(SPEC, sampler="ode", steps=300, guidance=20.333, grid="quantile")
    request = EditRequest("translate", f"Ein Haus {HOSTILE}", count=20, settings=spec)
    result = EditResult(
        "A house", spec.seed, 12, "translate", request.text, "starter", "h", "jax",
        {**to_dict(spec), "effective_steps": 300}, 1.0,
    )  # fmt: skip
    id = site.store.add(result, request)
    page = visit.page
    tab(page, "History")
    box = page.locator("#history-id input, #history-id textarea")
    box.fill("nonsense!")
    box.press("Enter")
    expect(page.get_by_test_id("toast-body")).to_contain_text("no result id")
    box.fill(id[:13])
    box.press("Enter")
    expect(page.locator("#history-output textarea")).to_have_value("A house")
    page.locator("#history-restore").click()
    expect(page.locator("#translate-text textarea")).to_have_value(request.text)
    expect(page.locator("#translate-seed").locator("input, textarea").first).to_have_value(
        str(spec.seed)
    )
    site.world.pace, before = 0.0, site.world.pace
    page.locator("#translate-run").click()
    expect(page.locator("#translate-status")).to_contain_text("Done")
    site.world.pace = before
    (again,) = site.store.list(limit=1)
    assert again.settings == to_dict(spec)
    assert (again.sample_index, again.backend) == (12, "jax")
