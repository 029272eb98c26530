"""Reads the JSONL corpus: the fixed split, what is left out, and the named groups of a mix.

The rules are those of the corpus page (DATA.md): a row's split follows from the sha1 of its key,
and nothing that repeats a held-out text is ever trained on.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elf_engine.errors import ElfError

Split = Literal["train", "validation", "test"]

# file stem -> field that decides the split
KEYS = {
    "trans_clean": "de",
    "trans_ding_words": "de",
    "summary_clean": "document",
    "rewrite_kjv_web": "old",
    "plain_general": "text",
    "plain_more": "text",
    "plain_docs_en": "text",
    "plain_debian_desc": "text",
}
# file stem -> (source, target) fields of the task it teaches; plain files have one text
PAIRS = {
    "trans_clean": ("translate", "de", "en"),
    "trans_ding_words": ("translate", "de", "en"),
    "summary_clean": ("summarise", "document", "summary"),
    "rewrite_kjv_web": ("modernise", "old", "modern"),
}
# At most this many rows may start with the same words; package lists repeat themselves.
MAX_SAME_START = 12
START_WORDS = 4
SENTENCE_WORDS = 6

_LEFT_OUT_SOURCES = re.compile(r"anarchism|lilypond", re.IGNORECASE)
_BOILERPLATE = re.compile(
    r"^(this (package|dummy package|metapackage|is a (transitional|dummy|meta))"
    r"|(empty|dummy) (transitional )?package|transitional|source code for rust"
    r"|dieses (paket|metapaket)|.*\(?transitional (dummy )?package)",
    re.IGNORECASE,
)
_CRUDE = re.compile(
    r"\b(sex\w*|fuck\w*|shit\w*|bitch\w*|whore\w*|slut\w*|breasts?|penis|vagina|nigger\w*|rape\w*"
    r"|porn\w*|orgasm\w*|virgin\w*|naked|lesbian\w*|damn\w*|jews?|negro\w*|women|woman|wife|girls?"
    r"|ass|asshole|bastard\w*|piss\w*|drunk\w*|suicide|kill\w*)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+")


@dataclass(frozen=True)
class Example:
    """One row of the corpus. `target` is empty for plain text; `group` names the mix entry."""

    task: str
    group: str
    source: str
    target: str


def split_of(key: str) -> Split:
    """Split of a row by its key (DATA.md, "The splits")."""
    bucket = int(hashlib.sha1(key.encode("utf-8")).hexdigest(), 16) % 50
    return {7: "test", 8: "validation"}.get(bucket, "train")  # type: ignore[return-value]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _fingerprints(text: str) -> Iterator[str]:
    """The whole text and its longer sentences, folded: two texts that share one repeat each
    other."""
    folded = " ".join(text.casefold().split())
    yield folded
    for sentence in _SENTENCE.split(folded):
        if len(sentence.split()) >= SENTENCE_WORDS:
            yield sentence.rstrip(".!?;:")


def _texts(row: dict[str, Any]) -> Iterator[str]:
    for name in ("de", "en", "document", "summary", "full", "old", "modern", "text"):
        if row.get(name):
            yield row[name]


def _group(stem: str, row: dict[str, Any]) -> str:
    """The mix entry a row belongs to; empty leaves it out of every mix."""
    if stem == "trans_clean":
        return str(row["tier"])
    if stem == "summary_clean":
        return f"summary-{row['tier']}"
    if stem == "trans_ding_words":
        return "ding-words"
    if stem == "rewrite_kjv_web":
        return "kjv-web"
    return str(row["src"]) if stem in ("plain_general", "plain_more") else stem


def _keep(row: dict[str, Any]) -> bool:
    if _LEFT_OUT_SOURCES.search(str(row.get("src", ""))):
        return False
    if any(_BOILERPLATE.match(text) for text in _texts(row)):
        return False
    if "fortune" in str(row.get("src", "")):
        return not _CRUDE.search(row["text"])
    return True


class Corpus:
    """All files of `directory`, read in two passes: held-out texts first, then the rows.

    Raises ElfError when a file is missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for stem in KEYS:
            if not self._path(stem).is_file():
                raise ElfError(
                    f"no {stem}.jsonl.gz in '{directory}'; point --data at the corpus directory"
                )
        self.left_out: Counter[str] = Counter()
        self._held_out: set[int] | None = None

    def _path(self, stem: str) -> Path:
        return self.directory / f"{stem}.jsonl.gz"

    def held_out(self) -> set[int]:
        """Hashes of every text (and longer sentence) of the test and validation rows."""
        if self._held_out is None:
            self._held_out = {
                hash(mark)
                for stem, key in KEYS.items()
                for row in _rows(self._path(stem))
                if split_of(row[key]) != "train"
                for text in _texts(row)
                for mark in _fingerprints(text)
            }
        return self._held_out

    def examples(self, split: Split) -> Iterator[Example]:
        """Rows of one split. For "train", rows that repeat a held-out text and rows past the
        near-duplicate cap are dropped and counted in `left_out`."""
        starts: Counter[str] = Counter()
        for stem, key in KEYS.items():
            for row in _rows(self._path(stem)):
                if split_of(row[key]) != split:
                    continue
                reason = self._reason_to_drop(stem, row, split, starts)
                if reason:
                    self.left_out[f"{stem}: {reason}"] += 1
                    continue
                task, source, target = PAIRS.get(stem, ("plain", "text", ""))
                yield Example(task, _group(stem, row), row[source], row[target] if target else "")

    def _reason_to_drop(
        self, stem: str, row: dict[str, Any], split: Split, starts: Counter[str]
    ) -> str:
        if not _keep(row):
            return "not wanted"
        if split != "train":
            return ""
        held_out = self.held_out()
        if any(hash(mark) in held_out for text in _texts(row) for mark in _fingerprints(text)):
            return "repeats a held-out text"
        words = row[KEYS[stem]].casefold().split()[:START_WORDS]
        if stem != "rewrite_kjv_web" and len(words) == START_WORDS:
            start = stem + " " + " ".join(words)
            starts[start] += 1
            if starts[start] > MAX_SAME_START:
                return "near-duplicate"
        return ""


def texts(examples: Iterable[Example]) -> Iterator[str]:
    """Every text of the examples, sources and targets alike."""
    for example in examples:
        yield example.source
        if example.target:
            yield example.target
