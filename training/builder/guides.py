"""Help and guides in two languages: blocks of text, aligned by structure and length."""

from __future__ import annotations

import bz2
import gzip
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from training.builder.clean import normalise, text_fault, word_set, words
from training.builder.rows import StemRow, pairs, summary_row

_BLOCKS = word_set(
    "p li dt dd h1 h2 h3 h4 h5 h6 td th caption title item para term desc div section "
    "blockquote figcaption"
)
_SKIPPED = word_set("pre script style head nav programlisting screen code svg info comment")
# Cost of leaving a block without partner, and the most a pair of blocks may cost.
GAP, WORST = 2.2, 2.5
# German runs longer than English by about this factor.
LONGER = 1.12


@dataclass(frozen=True)
class Block:
    """A paragraph, heading or cell: its element, its id where it has one, its text."""

    tag: str
    id: str
    text: str


class _Reader(HTMLParser):
    def __init__(self, keep_code: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self._skipped = _SKIPPED - {"code"} if keep_code else _SKIPPED
        self._text: list[str] = []
        self._tag, self._id, self._depth = "", "", 0

    def flush(self) -> None:
        text = " ".join("".join(self._text).split())
        self._text = []
        if text:
            self.blocks.append(Block(self._tag, self._id, text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._skipped:
            self.flush()
            self._depth += 1
        if tag in _BLOCKS:
            self.flush()
            self._tag, self._id = tag, dict(attrs).get("id") or ""
        if tag == "br":
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            self._depth = max(self._depth - 1, 0)
        if tag in _BLOCKS:
            self.flush()
            self._tag, self._id = "", ""

    def handle_data(self, data: str) -> None:
        if not self._depth:
            self._text.append(data)


def read(file: Path) -> str:
    """A text file, compressed or not; bytes that are no UTF-8 give U+FFFD."""
    data = file.read_bytes()
    if file.suffix in (".gz", ".dz"):
        data = gzip.decompress(data)
    elif file.suffix == ".bz2":
        data = bz2.decompress(data)
    return data.decode("utf-8", "replace")


def blocks(page: str) -> list[Block]:
    """The text blocks of an HTML, Mallard or DocBook page, without code and navigation. Inline
    code stays in HTML, where it is part of the sentence; the cleaning rules judge it."""
    reader = _Reader(keep_code="<html" in page[:2000].lower())
    reader.feed(page)
    reader.close()
    reader.flush()
    return reader.blocks


def cost(german: Block, english: Block) -> float:
    """How unlikely two blocks are each other's translation; 0 is the best."""
    if german.tag != english.tag:
        return 9.0
    ratio = (len(german.text) + 5) / (len(english.text) + 5) / LONGER
    digits = [set(re.findall(r"\d+", block.text)) for block in (german, english)]
    same = german.text == english.text
    return 4 * math.log(ratio) ** 2 + 0.7 * (digits[0] != digits[1]) - same


def align(german: Sequence[Block], english: Sequence[Block]) -> list[tuple[Block, Block]]:
    """Pairs of blocks: by id where both sides have unique ones, in order where the structure is
    the same, else along the cheapest monotone path (Gale and Church 1993, one to one only)."""
    ids = [{b.id: b for b in side if b.id and b.tag in _BLOCKS} for side in (german, english)]
    if len(ids[0]) > len(german) // 2:
        return [(block, ids[1][name]) for name, block in ids[0].items() if name in ids[1]]
    if [b.tag for b in german] == [b.tag for b in english]:
        return list(zip(german, english, strict=True))
    return _cheapest_path(german, english)


def _cheapest_path(german: Sequence[Block], english: Sequence[Block]) -> list[tuple[Block, Block]]:
    n, m = len(german), len(english)
    band = abs(n - m) + 60
    back: dict[tuple[int, int], str] = {}
    above = {j: j * GAP for j in range(min(m, band) + 1)}
    back.update({(0, j): "left" for j in above})
    for i in range(1, n + 1):
        row: dict[int, float] = {}
        middle = i * m // n
        for j in range(max(0, middle - band), min(m, middle + band) + 1):
            steps = [(above.get(j, math.inf) + GAP, "up"), (row.get(j - 1, math.inf) + GAP, "left")]
            if j and j - 1 in above:
                steps.append((above[j - 1] + cost(german[i - 1], english[j - 1]), "pair"))
            row[j], back[i, j] = min(steps)
        above = row
    found: list[tuple[Block, Block]] = []
    i, j = n, m
    while i or j:
        step = back.get((i, j), "up" if i else "left")
        if step == "pair" and cost(german[i - 1], english[j - 1]) < WORST:
            found.append((german[i - 1], english[j - 1]))
        i, j = i - (step != "left"), j - (step != "up")
    return found[::-1]


def translations(german: str, english: str, tier: str, src: str) -> Iterator[StemRow]:
    """Sentence pairs of two pages."""
    for de, en in align(blocks(german), blocks(english)):
        yield from pairs(de.text, en.text, tier, src)


def paragraphs(page: str, src: str) -> Iterator[StemRow]:
    """The page's English prose."""
    for block in blocks(page):
        text = normalise(block.text)
        if words(text) >= 12 and text_fault(text, 12, 300) in ("", "markup"):
            yield "plain_docs_en", {"text": text, "src": src}


def help_summary(page: str, name: str) -> Iterator[StemRow]:
    """A Mallard page's text and its `desc`, a one-sentence summary. The `desc` stands inside
    `info`, which `blocks` leaves out."""
    found = re.search(r"<desc>(.*?)</desc>", page, re.DOTALL)
    if not found:
        return
    summary = " ".join(block.text for block in blocks(found.group(1)) or [])
    document = ""
    for block in blocks(page):
        if block.tag == "p" and words(document) + words(block.text) <= 150:
            document = f"{document} {block.text}".strip()
    if words(summary) >= 4 and words(document) >= 20:
        yield summary_row(document, summary, 1, name, "gnome-help")


@dataclass(frozen=True)
class Guide:
    """Where the pages of a guide are. `pages` globs the English ones in the package `english`;
    `swap` turns such a path into the German one, in the package `german`."""

    name: str
    english: str
    german: str
    pages: str
    swap: tuple[str, str]
    tier: str = "B-guides"


_DOC = "usr/share/doc"
GUIDES = (
    Guide("debian-handbook", "debian-handbook", "debian-handbook",
          f"{_DOC}/debian-handbook/html/en-US/*.html", ("en-US", "de-DE")),
    Guide("harden-doc", "harden-doc", "harden-doc",
          f"{_DOC}/harden-doc/html/en-US/*.html", ("en-US", "de-DE")),
    Guide("debian-reference", "debian-reference-en", "debian-reference-de",
          "usr/share/debian-reference/*.en.html", (".en.html", ".de.html")),
    Guide("maint-guide", "maint-guide", "maint-guide-de",
          f"{_DOC}/maint-guide/html/*.en.html",
          ("maint-guide/html/(.*).en", r"maint-guide-de/html/\1.de")),
    Guide("developers-reference", "developers-reference", "developers-reference-de",
          "usr/share/developers-reference/*.html",
          ("developers-reference/", "developers-reference/de/")),
    Guide("debian-faq", "debian-faq", "debian-faq-de",
          f"{_DOC}/debian/FAQ/*.en.html", ("FAQ/(.*).en", r"FAQ/de/\1.de")),
    Guide("installation-guide", "installation-guide-amd64", "installation-guide-amd64",
          f"{_DOC}/installation-guide-amd64/en/*.html", ("/en/", "/de/")),
    Guide("debian-edu-doc", "debian-edu-doc-en", "debian-edu-doc-de",
          f"{_DOC}/debian-edu-doc-en/*manual.html", ("doc-en", "doc-de")),
    Guide("kicad-doc", "kicad-doc-en", "kicad-doc-de",
          f"{_DOC}/kicad/help/en/*.html", ("/en/", "/de/")),
    Guide("libreoffice-help", "libreoffice-help-en-us", "libreoffice-help-de",
          "usr/share/libreoffice/help/en-US/text/**/*.html", ("/en-US/", "/de/"), "B-help"),
    *(Guide(f"help:{name}", name, name, "usr/share/help/C/**/*.page", ("/C/", "/de/"), "B-help")
      for name in ("gnome-user-docs", "evolution-common")),
)  # fmt: skip
KDE_PAGES = (f"{_DOC}/HTML/en/**/index.cache.bz2", ("/en/", "/de/"))


def rows(guide: Guide, english: Path, german: Path) -> Iterator[StemRow]:
    """Everything a guide gives; pages that exist in English alone give prose only."""
    for file in sorted(english.glob(guide.pages)):
        page, name = read(file), file.relative_to(english).as_posix()
        other = german / re.sub(guide.swap[0], guide.swap[1], name, count=1)
        yield from paragraphs(page, guide.name)
        if guide.tier == "B-help" and file.suffix == ".page":
            yield from help_summary(page, file.name)
        if other.is_file() and other != file:
            yield from translations(read(other), page, guide.tier, guide.name)
