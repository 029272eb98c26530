"""Manual pages: roff to paragraphs, English and German side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.builder.clean import words
from training.builder.guides import read
from training.builder.rows import StemRow, pairs, summary_row

_FONTS = {".B": " ", ".I": " ", ".SM": " ", ".SB": " ", ".BR": "", ".IR": "", ".RB": "",
          ".RI": "", ".BI": "", ".IB": ""}  # fmt: skip
_SILENT = frozenset((".UR", ".UE", ".MT", ".ME", ".br", ".ad", ".na", ".hy", ".nh"))
_ESCAPES = (
    (r"\\f(\[[^\]]*\]|\(..|.)|\\s[-+]?\d|\\\*\(..|\\[&|/,c:%]|\\\*?\[[^\]]*\]", ""),
    (r"\\\(aq|\\\(cq", "'"), (r"\\\([lr]q|\\\([FB][oc]|\\\(Bq", '"'),
    (r"\\\(e[mn]|\\-", "-"), (r"\\[ ~0]", " "), (r"\\\(..", ""), (r"\\e", r"\\"),
)  # fmt: skip


@dataclass(frozen=True)
class Paragraph:
    """`section`: the heading it stands under; `heading`: is it one itself."""

    section: str
    text: str
    heading: bool = False


def _plain(text: str) -> str:
    for pattern, instead in _ESCAPES:
        text = re.sub(pattern, instead, text)
    return " ".join(text.split())


def paragraphs(source: str) -> list[Paragraph]:
    """The prose of a manual page; literal blocks are left out."""
    found: list[Paragraph] = []
    lines: list[str] = []
    section, literal = "", False

    def flush() -> None:
        text = _plain(" ".join(lines))
        lines.clear()
        if text and not literal:
            found.append(Paragraph(section, text))

    for line in source.split("\n"):
        if line.startswith(('.\\"', "'\\\"", '\\"')):
            continue
        if line[:1] not in (".", "'"):
            if line.strip():
                lines.append(line)
            else:
                flush()
            continue
        request, _, rest = line.partition(" ")
        if request in _FONTS:
            parts = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', rest)]
            lines.append(_FONTS[request].join(parts))
        elif request not in _SILENT:
            flush()
            literal = (literal or request in (".nf", ".EX")) and request not in (".fi", ".EE")
            if request in (".SH", ".SS"):
                section = _plain(rest.strip().strip('"'))
                found.append(Paragraph(section, section, True))
    flush()
    return found


def _sections(page: list[Paragraph]) -> list[list[Paragraph]]:
    parts: list[list[Paragraph]] = [[]]
    for paragraph in page:
        if paragraph.heading:
            parts.append([])
        parts[-1].append(paragraph)
    return parts


def translations(german: str, english: str, name: str) -> Iterator[StemRow]:
    """Sentence pairs of two pages whose sections correspond; the translators' own section, the
    last of German pages, has no partner."""
    left, right = _sections(paragraphs(german)), _sections(paragraphs(english))
    if left and left[-1] and left[-1][0].text.casefold().startswith("übersetzung"):
        left.pop()
    if len(left) != len(right):
        return
    for one, other in zip(left, right, strict=True):
        if len(one) == len(other):
            for de, en in zip(one, other, strict=True):
                if not de.heading:
                    yield from pairs(de.text, en.text, "C-man", f"man:{name}")


def summary(source: str, name: str) -> Iterator[StemRow]:
    """Tier 3: the start of DESCRIPTION and what NAME says."""
    page = paragraphs(source)
    title = next((p.text for p in page if p.section == "NAME" and not p.heading), "")
    found = re.match(r"^.{1,80}? -+ (.{10,150})$", title)
    document = ""
    for paragraph in page:
        if paragraph.section == "DESCRIPTION" and words(paragraph.text) >= 8:
            if words(document) + words(paragraph.text) > 150:
                break
            document = f"{document} {paragraph.text}".strip()
    if found and words(document) >= 20 and words(found.group(1)) >= 3:
        line = found.group(1).strip().rstrip(".")
        yield summary_row(document, line[0].upper() + line[1:] + ".", 3, name, "man-name")


def rows(english: list[Path], german: list[Path]) -> Iterator[StemRow]:
    """Every page of the unpacked packages; the German ones find their English namesake."""
    there = {
        f"{file.parent.name}/{file.name}": file
        for root in english
        for file in sorted(root.glob("usr/share/man/man[1-8]/*.gz"))
        if not file.is_symlink()
    }
    for name, file in there.items():
        yield from summary(read(file), name)
    for root in german:
        for file in sorted(root.glob("usr/share/man/de/man*/*.gz")):
            name = f"{file.parent.name}/{file.name}"
            if name in there and not file.is_symlink():
                yield from translations(read(file), read(there[name]), name)
