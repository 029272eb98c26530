"""axe-core in the page: what keeps a person from using it."""

from __future__ import annotations

from importlib.resources import files

from playwright.sync_api import Page


def findings(page: Page) -> list[str]:
    """Serious and critical findings of axe-core, one line each; none is the aim."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{v['id']}: {node['html'][:160]} {(node['failureSummary'] or '').splitlines()[-1]}"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
        for node in v["nodes"]
    ]
