"""Where sentences end. The parts always join to the text they came from, byte for byte."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BREAK = re.compile(r"[.!?…]+[\"'”’»›“)\]]*(?=\s)|[。！？]+[”’」』）]*|\n")
# A full stop after one of these ends no sentence: initials, ordinals, common abbreviations.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'„“.])(?:\w|\d{1,2}|Dr|Mr|Mrs|Ms|Prof|St|Nr|No|bzw|ca|vgl|etc|vs|Jr|Sr|Abs|Art"
    r"|Str|Hr|Fr|evtl|ggf|inkl|usw)\.$"
)
_LIST_ITEM = re.compile(r"[-*•–—>#|]\s?|\(?[0-9a-zA-Z]{1,3}[.)]\s")
_NEXT_LINE = re.compile(r"[^\S\n]*")
# A line at least this long that ends without a full stop was wrapped, not ended.
_WRAPPED = 40


@dataclass(frozen=True)
class Segment:
    """A stretch of text: a sentence, or (`gap`) the white space between two."""

    text: str
    gap: bool = False


def sentence_ends(text: str) -> list[int]:
    """Positions just behind each sentence, before the white space that follows it; ascending,
    the end of the text not included. A line break ends a sentence unless the line is wrapped."""
    ends: list[int] = []
    line_start = 0
    for match in _BREAK.finditer(text):
        if match[0] == "\n":
            if not _is_wrap(text, line_start, match.start()):
                ends.append(match.start())
            line_start = match.end()
        elif not _goes_on(text, match):
            ends.append(match.end())
    return [end for end in ends if end < len(text)]


def _goes_on(text: str, match: re.Match[str]) -> bool:
    if match[0] == "." and _ABBREVIATION.search(text, max(0, match.start() - 8), match.end()):
        return True
    following = text[match.end() : match.end() + 2].strip()
    return following[:1].islower()


def _is_wrap(text: str, line_start: int, line_end: int) -> bool:
    line = text[line_start:line_end].strip()
    spaces = _NEXT_LINE.match(text, line_end + 1)
    start = spaces.end() if spaces else line_end + 1
    if not line or start >= len(text) or text[start] in "\r\n":
        return False
    if line[-1] in ".!?…:" or _LIST_ITEM.match(text, start):
        return False
    return text[start].islower() or len(line) >= _WRAPPED


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
