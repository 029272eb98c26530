"""One browser and one site with a fake engine for all tests of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from app import server as web
from app import ui
from app.about import Shelf
from app.service import Service
from app.store import Store
from tests.app.browser import ARGS, CHROMIUM, Site, Visit
from tests.app.fake import FakeWorld, known_models

PATIENCE_MS = int(
    os.environ.get("ELF_TEST_PATIENCE_MS", "60000")
)  # of a busy machine; a passing test does not wait
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield made
        made.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    world = FakeWorld(pace=0.05)
    store = Store(tmp_path_factory.mktemp("home") / "history.db")
    # One run at a time: its gates hold whoever waits behind.
    service = Service(world.runtime(), store, most_running=1)
    about = known_models(tmp_path_factory.mktemp("about"))
    shelf = Shelf(lambda name: service.check(name, "torch"), lambda _: about)
    blocks = ui.build(service, store, shelf=shelf)
    url = web.launch(
        blocks, web.LOOPBACK, web.free_port(web.LOOPBACK, 0), block=False, service=service
    )
    yield Site(url, world, store, service)
    blocks.close(verbose=False)
    service.close()
    store.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for most tests: a warm cache opens the page quicker."""
    made = browser.new_context(viewport={"width": 1360, "height": 900}, reduced_motion="reduce")
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def visit(context: BrowserContext, site: Site) -> Iterator[Visit]:
    # What an earlier test let through too much.
    while site.world.gate.acquire(blocking=False):
        pass
    made = Visit(context.new_page())

    def ask(url: str) -> None:
        if not url.startswith((site.url, "data:", "blob:")):
            made.outside.append(url)

    made.page.on("request", lambda request: ask(request.url))
    made.page.on("pageerror", lambda error: made.errors.append(str(error)))
    made.page.goto(site.url)
    made.page.get_by_role("tab", name="History", exact=True).wait_for()
    yield made
    assert made.page.evaluate("window.hacked") is None
    made.page.close()
    assert made.outside == [], "the page asks nobody but this machine"
    assert made.errors == []


@pytest.fixture
def fresh(visit: Visit) -> Iterator[None]:
    """No draft of an earlier test."""
    empty = "() => { sessionStorage.clear(); localStorage.clear(); }"
    visit.page.evaluate(empty)
    visit.page.locator("#write-text textarea").fill("")
    yield
    visit.page.evaluate(empty)
