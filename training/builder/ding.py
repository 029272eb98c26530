"""The Ding dictionary: phrases and sentences for translating, words by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from training.builder.clean import words
from training.builder.rows import StemRow, pair

_NOTES = re.compile(r"<[^>]*>|\{[^}]*\}|\[[^\]]*\]|\([^)]*\)")
# Placeholders (somebody, something), alternatives and gaps make no sentence.
_UNUSABLE = re.compile(r"[/~]|\.\.\.|…|\b(jdm|jdn|jds|jd|jmd|etw|sth|sb|sbd|smth)\b")


def first_form(text: str) -> str:
    """The first of several forms, without grammar, field and usage notes."""
    text = _NOTES.sub(" ", text).split(";")[0]
    return re.sub(r"\s+([.,!?;:])", r"\1", " ".join(text.split())).strip(" ,")


def entries(line: str) -> Iterator[tuple[str, str]]:
    """German and English of one line: "a | b :: c | d" holds (a, c) and (b, d)."""
    if line.startswith("#") or "::" not in line:
        return
    german, english = (side.split("|") for side in line.rstrip("\n").split("::", 1))
    if len(german) == len(english):
        for left, right in zip(german, english, strict=True):
            yield first_form(left), first_form(right)


def rows(lines: Iterable[str]) -> Iterator[StemRow]:
    """Sentences and phrases of three words and more, and shorter ones as words."""
    for line in lines:
        for german, english in entries(line):
            if not german or not english or german == english:
                continue
            if _UNUSABLE.search(german) or _UNUSABLE.search(english):
                continue
            if words(german) >= 3 and words(english) >= 3:
                whole = german[-1] in ".!?" and english[-1] in '.!?"'
                tier = "A-ding-sentence" if whole else "A-ding-phrase"
                yield pair(german, english, tier, "ding")
            elif words(german) <= 2 and words(english) <= 3:
                row = {"de": german, "en": english, "kind": "word", "src": "ding"}
                yield "trans_ding_words", row
