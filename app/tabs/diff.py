"""Word differences as HTML. Every text is escaped; marks do not rest on colour."""

from __future__ import annotations

import html

from editors.changes import word_pieces


def diff_html(before: str, after: str) -> str:
    """What went in <del> and what came in <ins>, by words; said aloud to screen readers too."""
    out = []
    for gone, come in word_pieces(before, after):
        if gone == come:
            out.append(html.escape(gone))
            continue
        out += [_mark("del", "removed", gone)] if gone else []
        out += [_mark("ins", "added", come)] if come else []
    return "".join(out)


def _mark(tag: str, said: str, words: str) -> str:
    shown = html.escape(words)
    return f'<{tag}><span class="elf-said"> {said}: </span>{shown}</{tag}>'
