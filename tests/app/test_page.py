"""The frame of the page in a real Chromium."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import expect

from app.store import Store
from elf_engine.errors import ElfError
from tests.app.browser import MARKS, Site, Visit, tab
from tests.app.test_page_access import TABS

pytestmark = MARKS


def test_a_history_that_cannot_be_written_still_gives_the_text(
    visit: Visit, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page

    def full(*_given: Any, **_named: Any) -> str:
        raise ElfError("history.db has no room left")

    monkeypatch.setattr(Store, "add", full)
    page.locator("#write-text textarea").fill("precious")
    page.locator("#write-draft").click()
    expect(page.locator("#write-status .elf-status")).to_have_text(re.compile("^Done"))
    expect(page.locator(".elf-card").first).to_contain_text("and so it went, candidate 0.")
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
    for name in TABS:
        tab(page, name)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('input, textarea, button, select')]
                .filter(e => e.offsetParent !== null)
                .filter(e => !(e.labels?.length || e.ariaLabel || e.title || e.innerText?.trim()
                    || e.getAttribute('aria-labelledby')))
                .map(e => e.outerHTML.slice(0, 160))"""
        )
        assert nameless == [], name
