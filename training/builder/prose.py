"""Plain English: dictionaries, quotations, plays and poems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from training.builder.guides import read
from training.builder.rows import StemRow, plain

_BLANK = re.compile(r"\n\s*\n")
_FOOTER = re.compile(r"\*\*\* ?END OF|End of (?:the |this )?Project Gutenberg")
_HEADER = re.compile(r"\*\*\* ?START.*?\*\*\*|\*END\*?\s*THE SMALL PRINT[^\n]*\n", re.DOTALL)
_TABLE = re.compile(r"[─│┌├└═|+]{2,}|[│─]")


def wordnet(lines: Iterable[str]) -> Iterator[StemRow]:
    """Glosses and their example sentences, from data.noun and its like: after " | "."""
    for line in lines:
        if line.startswith("  ") or " | " not in line:
            continue
        gloss, *examples = re.split(r';\s*(?=")', line.partition(" | ")[2].strip())
        yield from plain("plain_general", iter([gloss.strip("; ")]), "wordnet-gloss", 4)
        quoted = (m.group(1) for e in examples if (m := re.match(r'"(.+?)"', e)))
        yield from plain("plain_general", quoted, "wordnet-example", 4)


def gcide(text: str) -> Iterator[StemRow]:
    """Definitions (after the headword, numbered or not) and quotations (deeply indented)."""
    for entry in re.split(r"\n(?=\S)", text):
        for block in _BLANK.split(entry.partition("\n")[2]):
            for quote in re.findall(
                r"(?:^|\n) {10,}([A-Z\"][^\[\]{}]{20,500}?)\s*(?=--|\[)", block
            ):
                yield from plain("plain_general", iter([quote]), "gcide-quote", 6)
            body = re.sub(r"(?:^|\n) {10,}.*", "", re.split(r"\n\s+Syn:|\n\s+Note:", block)[0])
            body = re.sub(r"^\s*(\d+\.|\([a-z]\))?\s*(\([A-Z][\w. &]*\)\s*)?", "", body)
            body = re.split(r"--\s?\w|\[1913|\[PJC|\[WordNet", body)[0]
            body = re.sub(r"[{}]|\s*\[[^\]]*\]", "", body)
            if body[:1].isupper() and len(body) <= 600:
                yield from plain("plain_general", iter([body]), "gcide-def", 6)


def foldoc(text: str) -> Iterator[StemRow]:
    """Paragraphs of entries; headwords and dates are too short to pass."""
    for entry in re.split(r"\n(?=\S)", text):
        parts = (re.sub(r"<[^>]*>|[{}]", "", p) for p in _BLANK.split(entry.partition("\n")[2]))
        kept = (p for p in parts if not p.strip().startswith(("[", "(http")))
        yield from plain("plain_general", kept, "foldoc", 12)


def fortunes(text: str) -> Iterator[StemRow]:
    """Quotations between lines of "%", without who said them."""
    quotes = (re.sub(r"\n\s*--.*", "", quote, flags=re.DOTALL) for quote in text.split("\n%\n"))
    yield from plain("plain_general", quotes, "fortunes", 5)


def paragraphs(text: str, src: str, least: int = 12) -> Iterator[StemRow]:
    """Paragraphs between blank lines, tables left out."""
    kept = (part for part in _BLANK.split(text) if not _TABLE.search(part))
    yield from plain("plain_general", kept, src, least)


def gutenberg(text: str) -> Iterator[StemRow]:
    """Paragraphs of a play or poem, without what the publisher put around it."""
    header = _HEADER.search(text)
    text = _FOOTER.split(text[header.end() :] if header else text)[0]
    kept = (
        part
        for part in _BLANK.split(text)
        if not re.search("gutenberg|etext|copyright|donat", part, re.IGNORECASE)
    )
    yield from plain("plain_more", kept, "shakespeare-milton", 12)


def wordnet_rows(root: Path) -> Iterator[StemRow]:
    """The four data files of wordnet-base."""
    for part in ("noun", "verb", "adj", "adv"):
        yield from wordnet(read(root / f"usr/share/wordnet/data.{part}").splitlines())


def dictionary_rows(name: str, root: Path) -> Iterator[StemRow]:
    """dict-gcide, dict-foldoc, dict-devil or jargon-text."""
    if name == "jargon-text":
        yield from paragraphs(read(root / "usr/share/doc/jargon-text/jargon.txt.gz"), "jargon")
        return
    text = read(root / f"usr/share/dictd/{name.removeprefix('dict-')}.dict.dz")
    if name == "dict-devil":
        yield from paragraphs(text, "devils-dictionary", 10)
    else:
        yield from {"dict-gcide": gcide, "dict-foldoc": foldoc}[name](text)


def fortune_rows(root: Path) -> Iterator[StemRow]:
    """Every quotation file; names with an ending are indexes and copies."""
    for file in sorted((root / "usr/share/games/fortunes").iterdir()):
        if file.is_file() and not file.suffix:
            yield from fortunes(read(file))


def shakespeare_rows(root: Path) -> Iterator[StemRow]:
    """Shakespeare's and Milton's works."""
    for folder in ("shksprdata", "miltondata"):
        for file in sorted(root.glob(f"*/{folder}/texts/*_gut.txt")):
            yield from gutenberg(read(file))
