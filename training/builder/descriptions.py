"""Package descriptions: the German translations join the English ones on Description-md5."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training.builder.clean import sentence_pairs, sentences, word_set, words
from training.builder.rows import StemRow, pair, summary_row

_BULLET = re.compile(r"^\s*(?:[*+o•·–-]|\d+[.)])\s+")
_BOILERPLATE = re.compile(
    r"^(this|the) ([\w-]+ )?(package|crate|module|metapackage)s? (\([^)]*\) )?"
    r"(contains|provides|includes|installs|depends|ships|is (for|a)|holds|supplies)",
    re.IGNORECASE,
)
_DUMMY = re.compile(r"\b(transitional|dummy|meta-?package|debug(ging)? symbols)\b", re.IGNORECASE)
_LEAD = re.compile(
    r"^[\w.+-]+( [\w.+-]+){0,4} (is|are|provides|implements|allows|lets|offers|enables|helps)\b"
)
_NO_SUBJECT = re.compile(r"^(This|It|The following|There|These)\b")
_TAIL = re.compile(
    r"\s+[-–—:]\s+(\w+ )?(library|documentation|development files|(data|common) files|headers"
    r"|runtime|binaries|tools|utilities|source code|Python 3|plugin)\b.*$|\s*\([^()]*\)$",
    re.IGNORECASE,
)
DEVELOPER_SECTIONS = word_set(
    "perl python libs libdevel rust golang ruby java haskell gnu-r javascript lisp ocaml php "
    "debug oldlibs devel gnustep introspection zope localization doc fonts kernel metapackages "
    "tasks cli-mono"
)
_STOP = word_set(
    "a an the of for and or to in on with by from as is are that this it its be at into using "
    "via your you"
)


@dataclass(frozen=True)
class Description:
    """A package's description; bullets are paragraphs that begin with "- "."""

    package: str
    synopsis: str
    paragraphs: tuple[str, ...]


def stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Control-file stanzas; continued lines keep their leading space after a line break."""
    fields: dict[str, str] = {}
    key = ""
    for line in lines:
        line = line.rstrip("\n")
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0] in " \t":
            if key:
                fields[key] += "\n" + line
        else:
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    if fields:
        yield fields


def parse(package: str, text: str) -> Description:
    """A Description field: synopsis, then paragraphs divided by " ."; a line that is indented
    further stands alone, a bullet begins a paragraph."""
    synopsis, *lines = text.split("\n")
    paragraphs: list[list[str]] = [[]]
    for line in (line[1:] for line in lines):
        current = paragraphs[-1]
        if line.strip() == ".":
            paragraphs.append([])
        elif _BULLET.match(line):
            paragraphs.append(["- " + _BULLET.sub("", line)])
        elif line.startswith(" ") and not (current and current[0].startswith("- ")):
            paragraphs += [[line], []]
        else:
            current.append(line)
    joined = (" ".join(" ".join(parts).split()) for parts in paragraphs)
    return Description(package, synopsis.strip(), tuple(filter(None, joined)))


def descriptions(files: Iterable[Path], language: str) -> dict[str, Description]:
    """Description-md5 -> the description in `language`, the first of each."""
    found: dict[str, Description] = {}
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for fields in stanzas(lines):
                text, md5 = fields.get(f"Description-{language}"), fields.get("Description-md5")
                if text and md5 and md5 not in found:
                    found[md5] = parse(fields.get("Package", ""), text)
    return found


def sections(files: Iterable[Path]) -> dict[str, tuple[str, str]]:
    """Package -> (source package, section) of the Packages indexes."""
    found: dict[str, tuple[str, str]] = {}
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for fields in stanzas(lines):
                name = fields.get("Package", "")
                source = fields.get("Source", name).split()[0]
                found[name] = (source, fields.get("Section", "").rpartition("/")[2])
    return found


def translations(
    english: dict[str, Description], german: dict[str, Description]
) -> Iterator[StemRow]:
    """Synopses, sentences, and short paragraphs whose sentences do not pair."""
    for md5, de in german.items():
        en = english.get(md5)
        if en is None:
            continue
        yield pair(de.synopsis, en.synopsis, "B-ddtp-synopsis", "debian-ddtp")
        if len(de.paragraphs) != len(en.paragraphs):
            continue
        for left, right in zip(de.paragraphs, en.paragraphs, strict=True):
            if left == right or left.startswith("- ") != right.startswith("- "):
                continue
            left, right = left.removeprefix("- "), right.removeprefix("- ")
            pairs = list(sentence_pairs(left, right))
            whole = len(pairs) == 1 and len(sentences(left, "de")) > 1
            tier = "B-ddtp-paragraph" if whole else "B-ddtp-sentence"
            for one, other in pairs:
                yield pair(one, other, tier, "debian-ddtp")


def overlap(document: str, summary: str) -> float:
    """Share of the summary's content words whose stem is in the document."""

    def stems(text: str) -> list[str]:
        found = (w for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in _STOP)
        return [re.sub(r"(ing|ies|es|s|ed|er|or)$", "", w) if len(w) > 4 else w for w in found]

    wanted, there = stems(summary), set(stems(document))
    return sum(stem in there for stem in wanted) / len(wanted) if wanted else 0.0


def _document(paragraphs: Iterable[str]) -> str:
    parts = [
        paragraph[2:].rstrip(".;,") + ";" if paragraph.startswith("- ") else paragraph
        for paragraph in paragraphs
    ]
    return re.sub(r"\s*\(?https?://\S+", "", " ".join(parts)).rstrip(";").strip()


def synopsis_summary(one: Description, section: str) -> Iterator[StemRow]:
    """Tier 1: the description and its synopsis; tier 3 where the package is for developers."""
    paragraphs = list(one.paragraphs)
    while len(paragraphs) > 1 and _BOILERPLATE.match(paragraphs[-1]):
        paragraphs.pop()
    if not paragraphs or _BOILERPLATE.match(paragraphs[0]) or _DUMMY.search(one.synopsis):
        return
    document, summary = _document(paragraphs), _TAIL.sub("", one.synopsis).strip().rstrip(".")
    fits = 20 <= words(document) <= 150 and 3 <= words(summary) <= 16
    if fits and overlap(document, summary) >= 0.5 and not re.search(r"[{}<>=\\|]|::", document):
        tier = 3 if section in DEVELOPER_SECTIONS else 1
        summary = summary[0].upper() + summary[1:] + "."
        yield summary_row(document, summary, tier, one.package, "debian-synopsis")


def lead_summary(one: Description) -> Iterator[StemRow]:
    """Tier 2: the rest of the description and its lead sentence, whose subject it names."""
    text = " ".join(
        p for p in one.paragraphs if not p.startswith("- ") and not _BOILERPLATE.match(p)
    )
    lead, *rest = sentences(text, "en") or [""]
    body = " ".join(rest)
    if len(rest) < 2 or not 7 <= words(lead) <= 30 or not 20 <= words(body) <= 150:
        return
    subject = lead.split()[0].casefold()
    if _LEAD.match(lead) and not _NO_SUBJECT.match(lead) and subject in body.casefold():
        yield summary_row(body, lead, 2, one.package, "debian-lead")


def rows(packages: list[Path], english: list[Path], german: list[Path]) -> Iterator[StemRow]:
    """Every row that the three indexes give; one description of each source package's first
    paragraph, since binary packages share it."""
    where, en = sections(packages), descriptions(english, "en")
    yield from translations(en, descriptions(german, "de"))
    seen: set[tuple[str, str]] = set()
    for one in sorted(en.values(), key=lambda d: (len(d.package), d.package)):
        source, section = where.get(one.package, (one.package, ""))
        first = next((p for p in one.paragraphs if not p.startswith("- ")), "").casefold()
        if not first or (source, first) in seen:
            continue
        seen.add((source, first))
        yield from synopsis_summary(one, section)
        yield from lead_summary(one)
        for text in one.paragraphs:
            if words(text) >= 12 and not text.startswith("- "):
                yield "plain_debian_desc", {"text": text, "src": "debian-desc"}
