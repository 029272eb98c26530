"""What a row must be to teach anything: the cleaning rules, each a reason to leave a row out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import sentencex

# Raise this when a rule or an extractor changes: finished parts are then made anew.
RULES_VERSION = 2
LEAST_WORDS, MOST_WORDS = 3, 40
RULES = (
    f"{LEAST_WORDS} to {MOST_WORDS} words a side, no code, markup or placeholders, equal numbers, "
    "length ratio 0.6 to 2, function words of the right language, not half copied, mostly letters; "
    "German side unique; at most 12 training rows begin with the same four words; no training row "
    "repeats a held-out text"
)

_QUOTES = str.maketrans("„“”»«‟’‘‚‛´`–—‒−\u00a0\u202f\u2009", "\"\"\"\"\"\"''''''----   ")
_HIDDEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\ufeff]")
_MARKUP = re.compile(
    r"[{}<>=\\|@#^~$_\[\]]|%\w|%\d|::|->|\w\(\d?\)|https?:|www\.|(?<!\w)--?[a-zA-Z]"
    r"|\w/\w+/|\w\.(?:conf|html?|org|com|net|de|txt|py|so|sh|xml|cfg|deb|h|c)\b"
)
_FOREIGN = re.compile("[^\u0000-\u024f\u2010-\u2026€]")
_PUNCTUATION = ".,;:!?\"'()-"


def word_set(text: str) -> frozenset[str]:
    """The words of `text`."""
    return frozenset(text.split())


_GERMAN = word_set(
    "der die das und ist sind sie ein eine einen einem einer eines zu zum zur den dem des in im "
    "ins wird werden wurde mit von vom für nicht kein keine es auf an am aus bei beim nach um "
    "auch wie wenn ich du er wir ihr ihre ihren sich haben hat war sein aber oder noch nur dass "
    "als diese dieser dieses kann können muss mir mich dir uns was wer man hier so"
)
_ENGLISH = word_set(
    "the of and to is are was were this that these those a an in into for with you your it its "
    "be been on or by not can will he she his her we they i me my as at from if has have had do "
    "does there which who what when all but no so"
)


def words(text: str) -> int:
    """Number of words: runs of characters that are no space."""
    return len(text.split())


def normalise(text: str) -> str:
    """NFC, plain quotes, dashes and spaces, no space before a mark, no list bullet around."""
    text = _HIDDEN.sub("", unicodedata.normalize("NFC", text)).translate(_QUOTES)
    text = re.sub(r"\s+([.,;:!?])(?=\s|$)", r"\1", text.replace("…", "..."))
    return " ".join(text.split()).strip("-•* ")


def sentences(text: str, language: str) -> list[str]:
    """The sentences of `text` ("de" or "en"), without the spaces between."""
    plain = " ".join(text.split())
    return [part.strip() for part in sentencex.segment(language, plain) if part.strip()]


def sentence_pairs(german: str, english: str) -> Iterator[tuple[str, str]]:
    """The texts sentence by sentence where they have equally many, else whole."""
    left, right = sentences(german, "de"), sentences(english, "en")
    if len(left) != len(right):
        left, right = [german], [english]
    yield from zip(left, right, strict=True)


def _folded(text: str) -> list[str]:
    return [word.strip(_PUNCTUATION).casefold() for word in text.split()]


def text_fault(text: str, least: int = LEAST_WORDS, most: int = MOST_WORDS) -> str:
    """Why `text` is of no use as prose; "" when it is."""
    if not least <= words(text) <= most:
        return "length"
    if _MARKUP.search(text):
        return "markup"
    if _FOREIGN.search(text):
        return "script"
    if sum(c.isalpha() or c in " ,.'-" for c in text) < 0.9 * len(text):
        return "symbols"
    if sum(len(word) > 1 and word.isupper() for word in text.split()) > 3:
        return "capitals"
    return ""


def pair_fault(german: str, english: str, least: int = LEAST_WORDS) -> str:
    """Why a German and an English text are of no use as a translation; "" when they are."""
    fault = text_fault(english, least) or text_fault(german, max(least - 1, 2))
    if fault:
        return fault
    if sorted(re.findall(r"\d+", german)) != sorted(re.findall(r"\d+", english)):
        return "numbers"
    if not 0.6 <= len(german) / len(english) <= 2.0:
        return "ratio"
    left, right = set(_folded(german)), set(_folded(english))
    if len(left & right) * 2 > len(left):
        return "copied"
    if words(german) >= 6 and not left & _GERMAN:
        return "language"
    if words(english) >= 7 and not right & _ENGLISH:
        return "language"
    # The German side in English, some words in both lists apart.
    english_words, german_words = left & _ENGLISH - _GERMAN, left & _GERMAN - _ENGLISH
    return "language" if len(english_words) > 1 + len(german_words) else ""
