"""Where sentences end. The parts always join to the text they came from, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import sentencex

_LIST_ITEM = re.compile(r"[^\S\n]*(?:[-*•–—>#|]|\(?[0-9a-zA-Z]{1,3}[.)]\s)")
_FIRST_WORD = re.compile(r"[^\S\n]*(\S*)")
# Lines of a paragraph narrower than this were not wrapped by a program.
_NARROW = 30


@dataclass(frozen=True)
class Segment:
    """Characters `start` to `stop` of a text: a sentence, or (`gap`) the white space between."""

    start: int
    stop: int
    text: str
    gap: bool = False


def sentence_ends(text: str, language: str = "en") -> list[int]:
    """Positions just behind each sentence, before the white space that follows it; ascending,
    the end of the text not included. A line break ends a sentence unless the line is wrapped."""
    ends: list[int] = []
    for start, stop in _blocks(text):
        # The library sees plain spaces only: it counts bytes wrongly around others.
        position = start
        for sentence in sentencex.segment(language, re.sub(r"\s", " ", text[start:stop])):
            if sentence.strip():
                ends.append(position + len(sentence.rstrip()))
            position += len(sentence)
    return [end for end in ends if end < len(text)]


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Ranges that line breaks end; a wrapped line goes on in the next."""
    widths = _paragraph_widths(text)
    start = line_start = 0
    for line, match in enumerate(re.finditer(r"\n", text)):
        if not _is_wrap(text, line_start, match.start(), widths[line]):
            yield start, match.start()
            start = match.end()
        line_start = match.end()
    yield start, len(text)


def _paragraph_widths(text: str) -> list[int]:
    """For each line, the longest line of its paragraph; blank lines end a paragraph."""
    lengths = [len(line.strip()) for line in text.split("\n")]
    widths: list[int] = []
    for blank, lines in groupby(lengths, key=lambda n: n == 0):
        paragraph = list(lines)
        widths += [0 if blank else max(paragraph)] * len(paragraph)
    return widths


def _is_wrap(text: str, line_start: int, line_end: int, width: int) -> bool:
    """Whether the line broke for want of room: the next word would have made it the longest."""
    line = text[line_start:line_end].strip()
    following = _FIRST_WORD.match(text, line_end + 1)
    word = following[1] if following else ""
    if not line or not word or line[-1] in ".!?…:" or _LIST_ITEM.match(text, line_end + 1):
        return False
    return word[0].islower() or (width >= _NARROW and len(line) + 1 + len(word) > width)


def segments(text: str, language: str = "en") -> list[Segment]:
    """Sentences and the white space around them; `"".join(s.text for s in segments(t)) == t`."""
    out: list[Segment] = []
    done = 0
    for end in [*sentence_ends(text, language), len(text)]:
        body = text[done:end].strip()
        start = done + len(text[done:end]) - len(text[done:end].lstrip()) if body else end
        if body:
            out += [Segment(done, start, text[done:start], True)] if start > done else []
            out.append(Segment(start, start + len(body), body))
            done = start + len(body)
    return [*out, Segment(done, len(text), text[done:], True)] if done < len(text) else out


def unwrap(sentence: str) -> str:
    """The sentence on one line."""
    return re.sub(r"\s*\n\s*", " ", sentence)
