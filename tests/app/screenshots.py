"""Pictures of every tab for the documentation: `python -m tests.app.screenshots [DIRECTORY]`."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from app import server as web
from app import ui
from app.runtime import real_runtime
from app.service import Service
from app.store import Store
from tests.app.browser import ARGS, CHROMIUM, tab

ROOT = Path(__file__).resolve().parents[2]
TABS = ("Write", "Translate", "Summarise", "Modernise", "Compare", "History", "Models")
TEXTS = {
    "translate": "Das alte Haus steht auf dem Hügel.",
    "summarise": "The village has a new bridge. It was opened on Monday, after two years of work.",
    "modernise": "Thou shalt not steal.",
    "compare": "Das alte Haus steht auf dem Hügel.",
}
LOOKS = {"light": (1280, 860), "dark": (1280, 860), "phone": (390, 844)}
MOST_BYTES = 60_000
TEXT = (
    "The old man lived in a small house on the hill. Every morning he walked down to the river "
    "and looked at the boats.\n\nOne day a letter came."
)
PATIENCE_MS = 300_000


def fill(page: Page) -> None:
    """Something to see on every tab."""
    page.locator("#write-text textarea").fill(TEXT)
    page.locator("#write-text textarea").evaluate(
        "box => { const at = box.value.indexOf('small house'); box.focus();"
        " box.setSelectionRange(at, at + 'small house'.length); }"
    )
    page.locator("#write-infill").click()
    done(page, "write")
    page.locator(".elf-noise summary").first.click()
    for name, text in TEXTS.items():
        tab(page, name.title())
        page.locator(f"#{name}-text textarea").fill(text)
        page.locator(f"#{name}-run").click()
        done(page, name)


def done(page: Page, name: str) -> None:
    expect(page.locator(f"#{name}-status .elf-status")).to_have_text(re.compile("Done"))


def look(page: Page, name: str, size: tuple[int, int], where: Path) -> None:
    """One picture per tab in this look."""
    page.evaluate("on => document.body.classList.toggle('dark', on)", name == "dark")
    for title in TABS:
        # On a phone's width most tabs hide behind a button.
        page.set_viewport_size({"width": 1280, "height": size[1]})
        tab(page, title)
        if title == "History":
            page.wait_for_timeout(600)
            newest = page.locator("#history-table [role=gridcell][aria-colindex='6']").first
            page.locator("#history-id :is(input, textarea)").fill(newest.inner_text())
            page.locator("#history-show").click()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        if title == "Compare" and name != "phone":
            page.locator("#compare-table").scroll_into_view_if_needed()
        page.mouse.move(0, 0)
        page.wait_for_timeout(600)  # the tab fills itself
        save(page.screenshot(), where / f"{title.lower()}-{name}.png")


def save(png: bytes, file: Path) -> None:
    """As few colours as the size needs. Raises ValueError for a picture that stays too large."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        image.quantize(colours).save(file, optimize=True)
        if file.stat().st_size < MOST_BYTES:
            return
    raise ValueError(f"{file.name} stays larger than {MOST_BYTES} bytes")


def main(where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with tempfile.TemporaryDirectory() as home:
        store = Store(Path(home) / "history.db")
        service = Service(real_runtime(), store)
        blocks = ui.build(service, store)
        url = web.launch(blocks, web.LOOPBACK, web.free_port(web.LOOPBACK, 0), block=False)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
            page = browser.new_page(
                viewport={"width": 1280, "height": 860}, reduced_motion="reduce"
            )
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{url}?__theme=light")
            page.locator("#write-text textarea").wait_for()
            fill(page)
            for name, size in LOOKS.items():
                look(page, name, size, where)
            browser.close()
        blocks.close(verbose=False)
        service.close()
        store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "screenshots")
