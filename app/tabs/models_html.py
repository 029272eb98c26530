"""The models as HTML. Names and messages are escaped."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence

from app.model_facts import Facts, millions

_HEADS = ("Model", "Tasks", "Parameters", "Size", "Now", "")


def models_html(found: Sequence[Facts], chosen: str, loaded: Collection[tuple[str, str]]) -> str:
    """A table of what is installed, with buttons to show and to choose."""
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS[:-1])
    rows = "".join(_row(f, chosen, [b for m, b in loaded if m == f.name]) for f in found)
    return (
        '<div class="elf-grid" tabindex="0" role="region" aria-label="Installed models">'
        f'<table class="elf-models"><thead><tr>{heads}<td></td></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(f: Facts, chosen: str, backends: Sequence[str]) -> str:
    name = html.escape(f.name)
    uses = ["✓ chosen on this page"] if f.name == chosen else []
    uses += [f"in memory ({', '.join(backends)})"] if backends else []
    if f.broken:
        said = f'<td colspan="3">⚠ {html.escape(f.broken)}</td>'
    else:
        tasks = html.escape(", ".join(f.tasks) or "none")
        reads = "" if f.reads or not f.size else "<br>no encoder: it can draft only"
        size = f"{f.size / 1e6:,.1f} MB" if f.size else "–"
        said = f"<td>{tasks}{reads}</td><td>{millions(f.parameters)}</td><td>{size}</td>"
    acts = _button("show", f.name, "Show card")
    acts += "" if f.broken or f.name == chosen else _button("choose", f.name, "Use on this page")
    return (
        f'<tr><th scope="row">{name}</th>{said}<td>{html.escape(", ".join(uses))}</td>'
        f'<td><div class="elf-acts">{acts}</div></td></tr>'
    )


def _button(act: str, name: str, words: str) -> str:
    said = html.escape(f"{words}: {name}")
    return (
        f'<button type="button" data-act="{act}" data-name="{html.escape(name)}"'
        f' aria-label="{said}">{words}</button>'
    )


def fetch_html(names: Sequence[tuple[str, str, str]]) -> str:
    """Published models that are not here: name, size, task."""
    if not names:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(task)}</td>'
        f"<td>{html.escape(size)}</td>"
        f"<td><code>elf models pull {html.escape(name)}</code></td></tr>"
        for name, size, task in names
    )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("Model", "Task", "Size", "Fetch it with"))
    return (
        '<div class="elf-grid" tabindex="0" role="region" aria-label="Models to fetch">'
        '<table class="elf-models"><caption>Published, not installed here</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def detail_html(name: str, hash: str, config: str, card: str) -> str:
    """One model: `card` is HTML that is safe already, all else is text."""
    told = f"<p>sha256 <code>{html.escape(hash)}</code></p>" if hash else ""
    return (
        f"<h2>{html.escape(name)}</h2>{told}"
        f"<details><summary>Configuration</summary><pre>{html.escape(config)}</pre></details>"
        f"{card or '<p>It has no card.</p>'}"
    )


TABLE_JS = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (button) trigger("click", { act: button.dataset.act, name: button.dataset.name });
});
"""
