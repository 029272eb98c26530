"""Ranges of code points a person selected: checked, and never cutting what is seen as one
character (a grapheme cluster, Unicode annex 29)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import regex

from editors.request import Ranges
from elf_engine.errors import ElfError

_GRAPHEME = regex.compile(r"\X")


@dataclass(frozen=True)
class Spans:
    """Ascending ranges that do not overlap, and what had to be said about them."""

    ranges: Ranges
    warnings: tuple[str, ...] = ()


def check_spans(
    text: str, ranges: Iterable[tuple[int, int]], *, what: str = "span", empty: bool = False
) -> Spans:
    """`ranges` in order, widened to whole graphemes. `empty` allows (n, n), a place between two.

    Raises ElfError for a range that is outside the text, overlaps another, is empty, or is a
    place inside a grapheme.
    """
    found: list[tuple[int, int]] = []
    warnings: list[str] = []
    for start, stop in sorted(ranges):
        if not 0 <= start <= stop <= len(text) or (start == stop and not empty):
            raise ElfError(
                f"{what} {start}:{stop} is empty, backwards or outside the text's "
                f"{len(text)} characters"
            )
        wide = widen(text, start, stop)
        if wide != (start, stop):
            cut = text[wide[0] : wide[1]]
            if start == stop:
                raise ElfError(f"{what} {start}:{stop} lies inside the character {cut!r}")
            warnings.append(
                f"{what} {start}:{stop} cuts a character in two; {wide[0]}:{wide[1]} was taken"
            )
        if found and wide[0] < found[-1][1]:
            raise ElfError(f"{what} {start}:{stop} overlaps {found[-1][0]}:{found[-1][1]}")
        found.append(wide)
    return Spans(tuple(found), tuple(warnings))


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ascending ranges, those that overlap made one."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if found and start < found[-1][1] and start < stop:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)


def widen(text: str, start: int, stop: int) -> tuple[int, int]:
    """The smallest range of whole graphemes that holds `start` to `stop`."""
    low, high = start, stop
    for grapheme in _GRAPHEME.finditer(text, _border(text, start)):
        a, b = grapheme.span()
        low = a if a < start < b else low
        high = b if a < stop < b else high
        if b >= stop:
            break
    return low, high


def _border(text: str, at: int) -> int:
    """A place up to `at` that is surely no grapheme's inside: between two ASCII characters."""
    while at > 0:
        pair = text[at - 1 : at + 1]
        if len(pair) == 2 and pair.isascii() and pair != "\r\n":
            break
        at -= 1
    return at


def holes_between(
    text: str, span: tuple[int, int], locks: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """What is left of `span` without the locks inside it and without white space at the edges of
    each part; the span itself when there are no locks."""
    start, stop = span
    inside = [lock for lock in locks if start <= lock[0] and lock[1] <= stop]
    if not inside:
        return [span]
    edges = [start, *(edge for lock in inside for edge in lock), stop]
    parts = []
    for a, b in zip(edges[::2], edges[1::2], strict=True):
        part = text[a:b]
        a, b = a + len(part) - len(part.lstrip()), b - len(part) + len(part.rstrip())
        parts += [(a, b)] if a < b else []
    return parts


def find_words(text: str, words: str, within: Iterable[tuple[int, int]] = ()) -> Ranges:
    """Where `words` stand in `text` as whole words, inside the ranges if there are any. Raises
    ElfError when they do not."""
    areas = list(within) or [(0, len(text))]
    pattern = regex.compile(rf"(?<!\w){regex.escape(words)}(?!\w)")
    found = tuple(m.span() for a, b in areas for m in pattern.finditer(text, a, b)) if words else ()
    if not found:
        raise ElfError(f"there is no '{words}' to lock in what is rewritten")
    return found
