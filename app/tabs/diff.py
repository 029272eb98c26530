"""Word differences as HTML. Every text is escaped; marks do not rest on colour."""

from __future__ import annotations

import html
from collections.abc import Sequence

from editors.changes import word_pieces


def diff_html(before: str, after: str) -> str:
    """What went in <del> and what came in <ins>, by words; said aloud to screen readers too."""
    out = []
    for gone, come in _joined(word_pieces(before, after)):
        if gone == come:
            out.append(html.escape(gone))
            continue
        out += [_mark("del", "removed", gone)] if gone else []
        out += [_mark("ins", "added", come)] if come else []
    return "".join(out)


def _joined(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Changes with nothing but white space between them become one, which reads better."""
    found: list[tuple[str, str]] = []
    for number, (gone, come) in enumerate(pieces):
        between = gone == come and not gone.strip() and 0 < number < len(pieces) - 1
        if found and found[-1][0] != found[-1][1] and (between or gone != come):
            found[-1] = (found[-1][0] + gone, found[-1][1] + come)
        else:
            found.append((gone, come))
    return found


def _mark(tag: str, said: str, words: str) -> str:
    shown = html.escape(words)
    return f'<{tag}><span class="elf-said"> {said}: </span>{shown}</{tag}>'
