"""A model's card as HTML. Cards come with models from anywhere, so nothing in them is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from elf_engine import model_dir

MOST_BYTES = 200_000


def card_html(text: str) -> str:
    """CommonMark and tables. Tags are shown as text, links of any scheme that runs code stay
    text, and no picture is fetched: the page asks nobody but its own server."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    markdown.add_render_rule("link_open", _link)
    return f'<div class="elf-model-card">{markdown.render(text)}</div>'


def _link(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    tokens[at].attrSet("target", "_blank")
    return str(self.renderToken(tokens, at, options, env))


def read_card(directory: Path | None) -> str:
    """The card of a model directory, "" without one; a longer one is cut, and says so."""
    file = None if directory is None else directory / model_dir.CARD
    if file is None or not file.is_file():
        return ""
    with file.open("rb") as opened:
        raw = opened.read(MOST_BYTES + 1)
    text = raw[:MOST_BYTES].decode("utf-8", errors="replace")
    return text if len(raw) <= MOST_BYTES else f"{text}\n\n(The card goes on in {model_dir.CARD}.)"
