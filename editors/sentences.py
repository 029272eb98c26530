"""Where sentences end. The parts always join to the text they came from, byte for byte."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

_BREAK = re.compile(r"[.!?…]+[\"'”’»›“)\]]*(?=\s)|[。！？]+[”’」』）]*|\n")
# A full stop after one of these ends no sentence: initials, ordinals, common abbreviations.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'„“.])(?:\w|\d{1,2}|Dr|Mr|Mrs|Ms|Prof|St|Nr|No|bzw|ca|vgl|etc|vs|Jr|Sr|Abs|Art"
    r"|Str|Hr|Fr|evtl|ggf|inkl|usw)\.$"
)
_LIST_ITEM = re.compile(r"[^\S\n]*(?:[-*•–—>#|]|\(?[0-9a-zA-Z]{1,3}[.)]\s)")
_FIRST_WORD = re.compile(r"[^\S\n]*(\S*)")
# Lines of a paragraph narrower than this were not wrapped by a program.
_NARROW = 30


@dataclass(frozen=True)
class Segment:
    """A stretch of text: a sentence, or (`gap`) the white space between two."""

    text: str
    gap: bool = False


def sentence_ends(text: str) -> list[int]:
    """Positions just behind each sentence, before the white space that follows it; ascending,
    the end of the text not included. A line break ends a sentence unless the line is wrapped."""
    ends: list[int] = []
    widths = _paragraph_widths(text)
    line = line_start = 0
    for match in _BREAK.finditer(text):
        if match[0] == "\n":
            if not _is_wrap(text, line_start, match.start(), widths[line]):
                ends.append(match.start())
            line_start = match.end()
            line += 1
        elif not _goes_on(text, match):
            ends.append(match.end())
    return [end for end in ends if end < len(text)]


def _paragraph_widths(text: str) -> list[int]:
    """For each line, the longest line of its paragraph; blank lines end a paragraph."""
    lengths = [len(line.strip()) for line in text.split("\n")]
    widths: list[int] = []
    for blank, lines in groupby(lengths, key=lambda n: n == 0):
        paragraph = list(lines)
        widths += [0 if blank else max(paragraph)] * len(paragraph)
    return widths


def _goes_on(text: str, match: re.Match[str]) -> bool:
    if match[0] == "." and _ABBREVIATION.search(text, max(0, match.start() - 8), match.end()):
        return True
    following = text[match.end() : match.end() + 2].strip()
    return following[:1].islower()


def _is_wrap(text: str, line_start: int, line_end: int, width: int) -> bool:
    """Whether the line broke for want of room: the next word would have made it the longest."""
    line = text[line_start:line_end].strip()
    following = _FIRST_WORD.match(text, line_end + 1)
    word = following[1] if following else ""
    if not line or not word or line[-1] in ".!?…:" or _LIST_ITEM.match(text, line_end + 1):
        return False
    return word[0].islower() or (width >= _NARROW and len(line) + 1 + len(word) > width)


def segments(text: str) -> list[Segment]:
    """Sentences and the white space around them; `"".join(s.text for s in segments(t)) == t`."""
    out: list[Segment] = []
    start = 0
    for end in [*sentence_ends(text), len(text)]:
        part = text[start:end]
        start = end
        body = part.strip()
        lead = part[: len(part) - len(part.lstrip())]
        tail = part[len(lead) + len(body) :]
        for piece, gap in ((lead, True), (body, False), (tail, True)):
            if piece and gap and out and out[-1].gap:
                out[-1] = Segment(out[-1].text + piece, True)
            elif piece:
                out.append(Segment(piece, gap))
    return out


def unwrap(sentence: str) -> str:
    """The sentence on one line."""
    return re.sub(r"\s*\n\s*", " ", sentence)
