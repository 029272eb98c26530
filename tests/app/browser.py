"""Helpers to drive the page as a person would."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Locator, Page, expect

from app.service import Service
from app.store import Store
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

# For every module that uses a browser.
MARKS = [
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


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
