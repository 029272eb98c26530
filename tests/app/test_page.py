"""The page in a real Chromium: what a person does, and what they see."""

from __future__ import annotations

import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from app import ui
from app.service import Service
from app.store import Store
from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec, to_dict
from tests.app.fake import FakeWorld

CHROMIUM = os.environ.get("ELF_CHROMIUM") or shutil.which("chromium") or ""
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = '<script>window.hacked=1</script> <img src=x onerror="window.hacked=1"> [b](javascript:1)'

pytestmark = [
    # Gradio and pandas warn of their own ways; the tests of our code keep warnings as errors.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium here; install the package chromium"),
]


@dataclass
class Site:
    url: str
    world: FakeWorld
    store: Store
    service: Service


@dataclass
class Visit:
    """One open page, and what it did behind the scenes."""

    page: Page
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    world = FakeWorld(pace=0.05)
    store = Store(tmp_path_factory.mktemp("home") / "history.db")
    service = Service(world.runtime(), store)
    blocks = ui.build(service, store)
    url = ui.launch(blocks, ui.LOOPBACK, ui.free_port(ui.LOOPBACK, 0), block=False)
    yield Site(url, world, store, service)
    blocks.close(verbose=False)
    service.close()
    store.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for most tests: a warm cache opens the page quicker."""
    made = browser.new_context(viewport={"width": 1360, "height": 900})
    made.set_default_timeout(15_000)
    yield made
    made.close()


@pytest.fixture
def visit(context: BrowserContext, site: Site) -> Iterator[Visit]:
    made = Visit(context.new_page())

    def ask(url: str) -> None:
        if not url.startswith((site.url, "data:", "blob:")):
            made.outside.append(url)

    made.page.on("request", lambda request: ask(request.url))
    made.page.on("pageerror", lambda error: made.errors.append(str(error)))
    made.page.goto(site.url)
    made.page.locator("#draft-text textarea").wait_for()
    yield made
    assert made.page.evaluate("window.hacked") is None
    made.page.close()
    assert made.outside == [], "the page asks nobody but this machine"
    assert made.errors == []


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def write(page: Page, editor: str, text: str) -> None:
    page.locator(f"#{editor}-text textarea").fill(text)


def run(page: Page, editor: str) -> None:
    page.locator(f"#{editor}-run").click()


def status(page: Page, editor: str) -> Locator:
    return page.locator(f"#{editor}-status .elf-status")


def out(page: Page, editor: str, i: int) -> Locator:
    return page.locator(f"#{editor}-out-{i} textarea")


def finished(page: Page, editor: str) -> None:
    expect(status(page, editor)).to_have_text(re.compile("Done"))


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


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


def test_a_closed_page_frees_its_run(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url)
    write(page, "draft", "gate left behind")
    run(page, "draft")
    site.world.gate.release()
    expect(status(page, "draft")).to_have_text(re.compile("Step 1 of 6"))
    context.close()
    left = site.service._running
    assert left is not None
    assert wait_for(left._stop.is_set)
    site.world.gate.release()
    assert wait_for(lambda: "gate left behind" in site.world.closed)
    assert max(s for text, s in site.world.steps_made if text == "gate left behind") <= 2


def test_one_page_does_not_touch_another(browser: Browser, site: Site) -> None:
    pages = []
    contexts = [browser.new_context() for _ in range(2)]
    for context, text in zip(contexts, ("gate of the first", "the second"), strict=True):
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
    for context in contexts:
        context.close()


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
