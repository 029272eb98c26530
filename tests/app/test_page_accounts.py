"""The page of people who have logged in, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app import accounts, server, ui
from app.accounts import AccountFile
from app.service import Service
from app.store import Store
from tests.app.browser import MARKS, Site, finished, run, tab, write
from tests.app.conftest import PATIENCE_MS
from tests.app.fake import FakeWorld

pytestmark = MARKS
SECRET = "correct horse"


@pytest.fixture
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("house")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "_LOG_N", 4)
        people = AccountFile(home / "accounts")
        people.set("anna", SECRET)
        world, store = FakeWorld(), Store(home / "history.db")
        service = Service(world.runtime(), store)
        blocks = ui.build(service, store, log_out=True)
        access = server.Door(accounts=people.path).access(server.LOOPBACK)
        port = server.free_port(server.LOOPBACK, 0)
        url = server.launch(
            blocks, server.LOOPBACK, port, block=False, access=access, service=service
        )
        yield Site(url, world, store, service)
        blocks.close(verbose=False)
        service.close()
        store.close()


def enter(browser: Browser, house: Site, name: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(house.url)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(SECRET)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text(f"Logged in as {name}")).to_be_visible()
    return page


def test_each_has_a_history_and_the_way_out(browser: Browser, house: Site) -> None:
    anna = enter(browser, house, "anna")
    tab(anna, "Compare")
    write(anna, "compare", "Annas Haus")
    run(anna, "compare")
    finished(anna, "compare")
    anna.get_by_role("button", name="Prefer answer B").click()
    expect(anna.locator(".elf-star")).to_have_count(1)
    found = house.store.of("anna").list(limit=9)
    assert [g.preferred for g in found].count(True) == 1
    assert len(found) == 4
    assert house.store.of("ben").list(limit=9) == []
    anna.get_by_role("button", name="Log out").click()
    expect(anna.get_by_label("Password")).to_be_visible()
    anna.goto(house.url)
    expect(anna.get_by_label("Password")).to_be_visible()
    anna.context.close()
