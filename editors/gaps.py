"""Gaps in a text: `[[n]]`, `[[min-max]]` tokens, `[[]]` for the model to choose, `\\[[` for "[[".

    A [[2-6]] house      one gap of 2 to 6 tokens between "A " and " house"
    if \\[[ -f x ]]       no gap; the text is "if [[ -f x ]]"

Backslashes right in front of "[[" come in pairs, each pair one backslash, so every text can stand
beside a gap; backslashes anywhere else mean themselves. A "[[" that is neither is an error: it is
more often a typing mistake than text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from editors.request import Change, Ranges
from elf_engine.errors import ElfError

# Backslashes, then "[[" that a gap or nothing follows. "[[[2]]" is "[" and a gap: the "[[" that
# counts is the last of a run, unless it is escaped.
_MARK = re.compile(
    r"(?P<slashes>\\*)\[\[(?:(?P<gap>(?P<low>[0-9]{1,9})?(?:-(?P<high>[0-9]{1,9}))?)\]\])?"
)


@dataclass(frozen=True)
class Gap:
    """A gap of `low` to `high` tokens; both 0 lets the model choose, within `room` if given."""

    low: int = 0
    high: int = 0
    room: int = 0

    @property
    def mark(self) -> str:
        """The gap as the user writes it."""
        if self.high == 0:
            return "[[]]"
        return f"[[{self.low}]]" if self.low == self.high else f"[[{self.low}-{self.high}]]"


@dataclass(frozen=True)
class Template:
    """Text around gaps: `outside[0] gaps[0] outside[1] ... gaps[n-1] outside[n]`.

    `places` are the ranges of the gaps in the text as it was written, `escapes` the changes that
    turn its escapes into what they stand for.
    """

    outside: tuple[str, ...]
    gaps: tuple[Gap, ...]
    places: Ranges = field(default=(), compare=False)
    escapes: tuple[Change, ...] = field(default=(), compare=False)


def parse_gaps(text: str) -> Template:
    """Read the gaps of `text`. Raises ElfError, naming the place, for a "[[" that is no gap."""
    outside: list[str] = []
    gaps: list[Gap] = []
    places: list[tuple[int, int]] = []
    escapes: list[Change] = []
    literal: list[str] = []
    position = 0
    while mark := _MARK.search(text, position):
        literal.append(text[position : mark.start()])
        slashes = len(mark["slashes"])
        brackets = mark.start() + slashes
        kept = "\\" * (slashes // 2)
        if slashes:
            escapes.append(Change(mark.start(), brackets, mark["slashes"], kept))
        literal.append(kept)
        if slashes % 2:
            literal.append("[[")
            position = brackets + 2
        elif mark["gap"] is None and text[brackets + 2 : brackets + 3] == "[":
            literal.append("[")
            position = brackets + 1
        else:
            gaps.append(_gap(text, mark, brackets))
            places.append((brackets, mark.end()))
            outside.append("".join(literal))
            literal = []
            position = mark.end()
    literal.append(text[position:])
    return Template((*outside, "".join(literal)), tuple(gaps), tuple(places), tuple(escapes))


def _gap(text: str, mark: re.Match[str], start: int) -> Gap:
    shown = " ".join(text[start : start + 12].split())
    where = f"'{shown}' at character {start}"
    if mark["gap"] is None or (mark["high"] and not mark["low"]):
        raise ElfError(
            f"{where} is no gap; write [[n]], [[min-max]] or [[]], or \\[[ for the brackets"
        )
    if mark["gap"] == "":
        return Gap()
    low = int(mark["low"])
    high = int(mark["high"] or low)
    if low > high or high < 1:
        raise ElfError(f"{where}: a gap needs at least 1 token and its smaller number first")
    return Gap(low, high)


def escape(text: str) -> str:
    """Write `text` so that it holds no gap: `parse_gaps(escape(s)).outside == (s,)`."""
    return re.sub(r"(\\*)\[\[", lambda m: m[1] * 2 + "\\[[", text)


def write_gaps(template: Template) -> str:
    """The inverse of `parse_gaps`."""
    parts = []
    for text, gap in zip(template.outside, template.gaps, strict=False):
        # Backslashes that meet the gap's own brackets would read as an escape.
        parts.append(re.sub(r"(\\+)(\[?)\Z", lambda m: m[1] * 2 + m[2], escape(text)))
        parts.append(gap.mark)
    return "".join(parts) + escape(template.outside[-1])
