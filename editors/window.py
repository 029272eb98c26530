"""The part of a long text a model sees: as much as fits, cut at sentence ends where possible."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from editors.sentences import sentence_ends
from elf_engine.errors import ElfError
from elf_engine.tokens import Tokenizer

# More characters than a token ever has; text beyond budget * this is not even tokenised.
CHARACTERS = 20


@dataclass(frozen=True)
class Seen:
    """Token ids of the `characters` of the text that lie next to the gap."""

    ids: tuple[int, ...]
    characters: int


def tokens_up_to(tokenizer: Tokenizer, text: str, limit: int) -> int:
    """Number of tokens of `text`, or `limit + 1` when there are more than `limit`."""
    if len(text) > (limit + 1) * CHARACTERS:
        return limit + 1
    return min(len(tokenizer.encode(text)), limit + 1)


def share(total: int, left: int, right: int) -> tuple[int, int]:
    """Split `total` tokens between two sides that want `left` and `right`."""
    for_left = min(left, max((total + 1) // 2, total - right))
    return for_left, min(right, total - for_left)


def left_context(tokenizer: Tokenizer, text: str, budget: int) -> Seen:
    """The longest end of `text` in `budget` tokens, beginning at a sentence if that keeps at least
    half of it, else at a word, else anywhere."""
    near = text[-budget * CHARACTERS :] if budget > 0 else ""
    size = len(near)

    def fits(characters: int) -> bool:
        return len(tokenizer.encode(near[size - characters :])) <= budget

    def cuts(pattern: Iterable[int]) -> list[int]:
        return sorted(size - position for position in pattern)

    sentences = [_skip_space(near, end) for end in sentence_ends(near)]
    words = [m.end() for m in re.finditer(r"\s+", near)]
    kept = _fit(size, fits, cuts(sentences), cuts(words))
    return Seen(tuple(tokenizer.encode(near[size - kept :])) if kept else (), kept)


def right_context(tokenizer: Tokenizer, text: str, budget: int) -> Seen:
    """The longest beginning of `text` in `budget` tokens, ending like `left_context` begins."""
    near = text[: max(budget, 0) * CHARACTERS]

    def fits(characters: int) -> bool:
        return len(tokenizer.encode(near[:characters])) <= budget

    words = [m.start() for m in re.finditer(r"\s+", near)]
    kept = _fit(len(near), fits, sentence_ends(near), words)
    return Seen(tuple(tokenizer.encode(near[:kept])) if kept else (), kept)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _fit(size: int, fits: Callable[[int], bool], sentences: list[int], words: list[int]) -> int:
    """How many of `size` characters to keep; `sentences`, `words` are preferred numbers."""
    if fits(size):
        return size
    most = bisect_left(range(size + 1), True, key=lambda n: not fits(n)) - 1
    for preferred in (sentences, words):
        for kept in reversed([n for n in preferred if most / 2 <= n <= most]):
            if kept and fits(kept):
                return kept
    return max(most, 0)


def split_to_fit(tokenizer: Tokenizer, text: str, limit: int) -> list[str]:
    """`text` in pieces of at most `limit` tokens that join to it, cut behind clauses or else words.

    Raises ElfError when one character alone has more tokens.
    """
    pieces: list[str] = []
    start = 0
    reach = (limit + 1) * CHARACTERS + 1
    while tokens_up_to(tokenizer, text[start : start + reach], limit) > limit:
        rest = text[start : start + reach]
        kept = right_context(tokenizer, rest, limit).characters
        clause = max((m.end() for m in re.finditer(r"[,;:–—](?=\s)", rest[:kept])), default=0)
        kept = clause if clause > kept // 2 else kept
        if kept == 0:
            raise ElfError(f"{rest[0]!r} alone is more than the {limit} tokens there is room for")
        pieces.append(rest[:kept])
        start += kept
    return [*pieces, text[start:]]
