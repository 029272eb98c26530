"""The Models tab in a real Chromium, and the text it is made of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from app.model_card import MOST_BYTES, card_html, read_card
from tests.app.browser import HOSTILE, MARKS, Site, Visit, finished, out, run, status, tab, write

pytestmark = MARKS

CARD = f"""# A model {HOSTILE}

| part | size |
| --- | --- |
| net | 3 |

[bad](javascript:window.hacked=1) [good](https://example.org/card)
![pixel](https://example.org/pixel.png)
"""


def test_a_card_is_shown_and_not_believed() -> None:
    shown = card_html(CARD)
    assert "<td>net</td>" in shown
    assert 'href="https://example.org/card"' in shown
    assert "noopener" in shown
    for bad in ("<script", "<img", 'href="javascript:'):
        assert bad not in shown
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in shown


def test_a_huge_card_is_cut(tmp_path: Path) -> None:
    (tmp_path / "MODEL_CARD.md").write_bytes(b"x" * (MOST_BYTES + 5) + b"\xff")
    card = read_card(tmp_path)
    assert card.startswith("x" * MOST_BYTES + "\n\n(The card goes on")
    assert read_card(tmp_path / "nowhere") == read_card(None) == ""


def test_cards_and_facts(
    visit: Visit, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.page
    (tmp_path / "MODEL_CARD.md").write_text(CARD, "utf-8")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"0" * 2_500_000)
    monkeypatch.setattr(site.world, "names", ("starter", "other", "only-draft", HOSTILE))
    monkeypatch.setitem(site.world.paths, "other", tmp_path)
    tab(page, "Models")
    rows = page.locator("#models-table tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("✓ chosen on this page")
    expect(rows.nth(1)).to_contain_text("2.5 MB")
    expect(rows.nth(1)).to_contain_text("no encoder: it can draft only")
    expect(rows.nth(2).locator("td").first).to_have_text("draft")
    expect(rows.nth(3).locator("th")).to_have_text(HOSTILE)
    expect(page.locator("#models-fetch")).to_contain_text("elf models pull ELF-B-de-en")
    page.get_by_role("button", name="Show card: other").click()
    detail = page.locator("#models-detail")
    expect(detail).to_contain_text(re.compile(r"sha256 [0-9a-f]{64}"))
    expect(detail.locator("h1")).to_have_text(f"A model {HOSTILE}")
    expect(detail.get_by_text("good")).to_have_attribute("href", "https://example.org/card")


def test_a_switch_disturbs_no_run_and_no_other_page(
    visit: Visit, context: BrowserContext, site: Site
) -> None:
    first = visit.page
    tab(first, "Translate")
    write(first, "translate", "gate of one model")
    run(first, "translate")
    site.world.gate.release()
    expect(status(first, "translate")).to_contain_text("Step 1 of 6")
    second = context.new_page()
    second.goto(site.url)
    for page in (second, first):
        tab(page, "Models")
        page.get_by_role("button", name="Use on this page: other").click()
        expect(page.get_by_label("Model", exact=True)).to_have_value("other")
        if page is second:
            expect(first.get_by_label("Model", exact=True)).to_have_value("starter")
    tab(second, "Translate")
    write(second, "translate", "on the other page")
    run(second, "translate")
    expect(status(second, "translate")).to_have_text("Waiting: 1 before you.")
    site.world.gate.release(5)
    tab(first, "Translate")
    finished(first, "translate")
    finished(second, "translate")
    expect(out(first, "translate", 0)).to_have_value(re.compile("^gate of one model and"))
    models = {g.input: g.model for g in site.store.list(limit=4)}
    assert models == {"gate of one model": "starter", "on the other page": "other"}
    tab(second, "Models")
    expect(second.locator("#models-table")).to_contain_text("in memory (torch)")
    second.close()
