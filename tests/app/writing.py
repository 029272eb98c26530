"""Helpers to drive the Write tab as a person would."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

TEXT = "😀 The very old house. It stands on the hill."


def box(page: Page) -> Locator:
    return page.locator("#write-text textarea")


def status(page: Page) -> Locator:
    return page.locator("#write-status .elf-status")


def said(page: Page) -> Locator:
    return page.locator("#write-said")


def card(page: Page, i: int) -> Locator:
    return page.locator("#write-cards .elf-card").nth(i)


def press(page: Page, i: int, label: str) -> None:
    card(page, i).get_by_role("button", name=label).click()


def select(page: Page, words: str) -> None:
    box(page).evaluate(
        "(box, words) => { const at = box.value.indexOf(words); box.focus();"
        " box.setSelectionRange(at, at + words.length); }",
        words,
    )


def run(page: Page, act: str) -> None:
    before = card(page, 0)
    old = before.get_attribute("data-run") if before.count() else None
    page.locator(f"#write-{act}").click()
    if old:
        expect(before).not_to_have_attribute("data-run", old)
    expect(status(page)).to_have_text(re.compile("^Done"))


def paste(page: Page, text: str) -> None:
    box(page).evaluate(
        """(box, text) => {
          box.focus(); box.select();
          const data = new DataTransfer();
          data.setData("text/plain", text);
          box.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
          document.execCommand("insertText", false, text);
        }""",
        text,
    )
