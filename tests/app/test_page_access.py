"""Every tab with axe-core, in light and dark, and on a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Error as BrowserError
from playwright.sync_api import Page, expect

from tests.app.accessible import findings
from tests.app.browser import MARKS, Visit, tab

pytestmark = MARKS
TABS = ("Write", "Translate", "Summarise", "Modernise", "Compare", "Models", "History")


def test_a_finding_would_be_found(visit: Visit) -> None:
    visit.page.evaluate("() => document.body.insertAdjacentHTML('beforeend', '<button></button>')")
    assert any(line.startswith("button-name:") for line in findings(visit.page))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_finding(visit: Visit, theme: str) -> None:
    page = visit.page
    page.goto(f"{page.url.split('?')[0]}?__theme={theme}")
    box = page.locator("#write-text textarea")
    box.fill("The very old house.")
    box.select_text()
    page.locator("#write-infill").click()
    expect(page.locator("#write-status .elf-status")).to_have_text(re.compile("^Done"))
    for opened in ("#write-more button", "#write-presets button"):
        page.locator(opened).first.click()
    page.locator(".elf-noise summary").first.click()
    found = {}
    for name in TABS:
        tab(page, name)
        found[name] = findings(page)
    assert found == {name: [] for name in TABS}


def choose(page: Page, name: str) -> None:
    """Press a tab, in the menu of those that have no room; the bar is laid out anew meanwhile."""
    shown = page.get_by_role("tab", name=name, exact=True)
    for _ in range(20):
        try:
            choice = shown
            if not choice.is_visible():
                menu = page.get_by_role("button", name=re.compile("more|overflow|…", re.I))
                menu.first.click(timeout=3000)
                choice = page.get_by_role("button", name=name, exact=True)
            choice.click(timeout=3000)
            return
        except BrowserError:
            continue
    pytest.fail(f"tab {name} cannot be reached")


def test_on_a_phone_everything_is_in_reach(visit: Visit) -> None:
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    for name in TABS:
        choose(page, name)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, name
    page.set_viewport_size({"width": 1360, "height": 900})
