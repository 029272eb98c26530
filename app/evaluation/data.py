"""Inputs of an evaluation: the corpus's fixed test and validation splits, or a JSONL file.

The reading and the split rule are those of the corpus page (DATA.md); `training.corpus` has them
for training, and the tests hold the two to the same rows.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from app.evaluation.rows import read_lines, row_id
from elf_engine.errors import ElfError

Split = Literal["train", "validation", "test"]
TASKS = (*("unconditional", "prefix", "infill", "rewrite", "translate", "summarise", "modernise"),)
# task -> corpus files and their source, target and group fields; plain files have one text
PAIRS = {
    "translate": ("trans_clean", "de", "en", "tier"),
    "summarise": ("summary_clean", "document", "summary", "tier"),
    "modernise": ("rewrite_kjv_web", "old", "modern", ""),
}
PLAIN = ("plain_general", "plain_more", "plain_docs_en")
# Plain rows that are running text and that a model may have been trained on the like of.
_PROSE = re.compile(r"wordnet-example|gcide-quote|bible-web|wesnoth-story")
_LEFT_OUT = re.compile(r"lilypond")
PREFIX_WORDS = 6
MOST_MASKED = 8


@dataclass(frozen=True)
class Item:
    """One input. `text` goes to the editor; `spans` are what an infill replaces; `reference` is the
    human answer ("" for none): of a prefix the whole text, of an infill the whole text."""

    id: str
    text: str
    reference: str = ""
    group: str = ""
    spans: tuple[tuple[int, int], ...] = ()


def data_directory(given: Path | None) -> Path:
    """`given`, else $ELF_DATA, else `shared/data` beside the repository."""
    if given is not None:
        return given
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("ELF_DATA") or beside)


def split_of(key: str) -> Split:
    """Split of a row by its key (DATA.md, "The splits")."""
    bucket = int(hashlib.sha1(key.encode("utf-8")).hexdigest(), 16) % 50
    return {7: "test", 8: "validation"}.get(bucket, "train")  # type: ignore[return-value]


@lru_cache(16)
def items(task: str, split: str, limit: int, seed: int, data: Path) -> tuple[Item, ...]:
    """`limit` inputs of a task in an order that the seed fixes: a smaller limit gives the first of
    them. Raises ElfError for an unknown task, a split that is trained on, or missing files."""
    if task not in TASKS:
        raise ElfError(f"task '{task}' is unknown; use one of {', '.join(TASKS)}")
    if limit < 1:
        raise ElfError(f"limit {limit} is below 1")
    if task == "unconditional":
        return tuple(Item(str(i), "") for i in range(limit))
    if split not in ("test", "validation"):
        raise ElfError(f"split '{split}' is not for evaluation; use test or validation")
    found: dict[str, Item] = {}
    for item in _all(task, split, data):
        found.setdefault(item.id, item)
    chosen = heapq.nsmallest(limit, found.values(), key=lambda item: _rank(item.id, seed))
    return tuple(_prepared(task, item, k) for k, item in enumerate(chosen))


def items_of_file(task: str, path: Path) -> tuple[Item, ...]:
    """Inputs of a JSONL file: "id", "input" (infill: with [[...]] gaps), perhaps "output"."""
    found: dict[str, Item] = {}
    for place, row in read_lines(path):
        name = row_id(row, place)
        if name in found:
            raise ElfError(f"{place}: id '{name}' is doubled")
        text = row.get("input", "")
        if not isinstance(text, str) or (task != "unconditional" and not text):
            raise ElfError(f"{place}: id '{name}' has no text in 'input'")
        found[name] = Item(name, text, str(row.get("output", "")), str(row.get("group", "")))
    if not found:
        raise ElfError(f"'{path}' has no rows")
    return tuple(found.values())


def training_texts(data: Path, most: int | None = None) -> Iterator[str]:
    """English texts of the training split, targets of pairs included, without those that repeat a
    held-out text; the first `most` of an even mixture of the files."""
    held_out = _held_out(data)
    streams = [_training(stem, field, data) for stem, field in _english()]
    count = 0
    while streams:
        for stream in list(streams):
            text = next(stream, None)
            if text is None:
                streams.remove(stream)
                continue
            if _folded(text) in held_out:
                continue
            yield text
            count += 1
            if most is not None and count >= most:
                return


def real_texts(split: str, limit: int, seed: int, data: Path) -> list[str]:
    """Running text of a held-out split, as drafts are compared with."""
    return [item.reference for item in items("prefix", split, limit, seed, data)]


def _english() -> list[tuple[str, str]]:
    return [
        *((stem, target) for stem, _, target, _ in PAIRS.values()),
        *((s, "text") for s in PLAIN),
    ]


def _training(stem: str, field: str, data: Path) -> Iterator[str]:
    key = _key(stem)
    return (row[field] for row in _rows(stem, data) if split_of(row[key]) == "train")


@lru_cache(2)
def _held_out(data: Path) -> frozenset[int]:
    """Marks of the English texts of the other splits."""
    return frozenset(
        _folded(row[field])
        for stem, field in _english()
        for row in _rows(stem, data)
        if split_of(row[_key(stem)]) != "train"
    )


def _key(stem: str) -> str:
    return next((source for s, source, _, _ in PAIRS.values() if s == stem), "text")


def _folded(text: str) -> int:
    return hash(" ".join(text.casefold().split()))


def _all(task: str, split: str, data: Path) -> Iterator[Item]:
    if task in PAIRS:
        stem, source, target, group = PAIRS[task]
        for row in _rows(stem, data):
            if split_of(row[source]) == split:
                name = _name(row[source])
                yield Item(name, row[source], row[target], str(row.get(group, "")))
        return
    for stem in PLAIN:
        for row in _rows(stem, data):
            text = row["text"].strip()
            good = 8 <= len(text.split()) <= 40 and _running(stem, row) and "\n" not in text
            if good and split_of(row["text"]) == split:
                yield Item(_name(row["text"]), text, text, str(row.get("src", stem)))


def _running(stem: str, row: dict[str, Any]) -> bool:
    source = str(row.get("src", ""))
    return bool(not _LEFT_OUT.search(source) if stem == "plain_docs_en" else _PROSE.match(source))


def _prepared(task: str, item: Item, number: int) -> Item:
    """A text cut as the task shows it: the first words of a prefix, the masked words of an infill
    (item k masks k % 8 + 1 words, at a place its id decides)."""
    places = [match.span() for match in re.finditer(r"\S+", item.text)]
    if task == "prefix":
        return Item(item.id, item.text[: places[PREFIX_WORDS - 1][1]], item.text, item.group)
    if task == "infill":
        masked = min(number % MOST_MASKED + 1, len(places) - 2)
        first = 1 + int(_name(item.text)[:8], 16) % (len(places) - 1 - masked)
        span = (places[first][0], places[first + masked - 1][1])
        return Item(item.id, item.text, item.text, str(masked), (span,))
    return item


def _rows(stem: str, data: Path) -> Iterator[dict[str, Any]]:
    path = data / f"{stem}.jsonl.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)
    except FileNotFoundError as error:
        raise ElfError(
            f"no {path.name} in '{data}'; point --data or ELF_DATA at the corpus directory"
        ) from error
    except (OSError, ValueError, EOFError) as error:
        raise ElfError(f"'{path}' cannot be read ({str(error).splitlines()[0]})") from error


def _name(key: str) -> str:
    return hashlib.sha1(key.encode("utf-8")).hexdigest()[:16]


def _rank(name: str, seed: int) -> str:
    return hashlib.sha1(f"{seed} {name}".encode()).hexdigest()
