"""Changes to a text: put them in, show them, measure them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from editors.request import Change

# Characters shown on either side of a change.
_AROUND = 40


def splice(text: str, changes: Iterable[Change]) -> str:
    """`text` with the changes put in; everything else as it was, to the byte."""
    parts: list[str] = []
    done = 0
    for change in changes:
        if change.start < done or text[change.start : change.stop] != change.before:
            raise ValueError(f"{change} does not fit the text")
        parts += [text[done : change.start], change.after]
        done = change.stop
    return "".join([*parts, text[done:]])


def show_changes(text: str, changes: Iterable[Change]) -> list[str]:
    """One line per change, `4:9 The [-big-]{+old+} house`, with some of the text around it."""
    lines = []
    for change in changes:
        left = text[max(0, change.start - _AROUND) : change.start]
        right = text[change.stop : change.stop + _AROUND]
        line = left + word_diff(change.before, change.after) + right
        shown = re.sub(r"\r?\n", "↵", line)
        lines.append(f"{change.start}:{change.stop} {shown}")
    return lines


def word_diff(before: str, after: str) -> str:
    """Both texts in one: `[-gone-]` and `{+new+}`, by words."""
    out = []
    for gone, come in word_pieces(before, after):
        if gone == come:
            out.append(gone)
        else:
            out += [f"[-{gone}-]"] if gone else []
            out += [f"{{+{come}+}}"] if come else []
    return "".join(out)


def word_pieces(before: str, after: str) -> list[tuple[str, str]]:
    """Both texts in pieces by words, each as it was and as it is; equal where nothing changed."""
    old, new = _words(before), _words(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [("".join(old[a:b]), "".join(new[c:d])) for _, a, b, c, d in matcher.get_opcodes()]


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|\w+|[^\w\s]+", text)


def distance(changes: Sequence[Change]) -> dict[str, float]:
    """How far the changed spans are from what they were.

    chrf        likeness by character n-grams (sacrebleu's chrF2), 100 for equal
    word_edits  words put in, taken out or replaced (Levenshtein)
    """
    before = "\n".join(change.before for change in changes)
    after = "\n".join(change.after for change in changes)
    edits = sum(word_edits(change.before, change.after) for change in changes)
    return {"chrf": _chrf(before, after), "word_edits": float(edits)}


def _chrf(before: str, after: str) -> float:
    if before == after:
        return 100.0
    from sacrebleu.metrics.chrf import CHRF

    return round(float(CHRF().sentence_score(after, [before]).score), 2)


def word_edits(before: str, after: str) -> int:
    """Levenshtein distance between the words, separated by white space, of two texts."""
    old, new = before.split(), after.split()
    row = list(range(len(new) + 1))
    for i, word in enumerate(old, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(new, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]
