"""From the parts' rows to the corpus files: one row a text, nothing held out in training."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from training.builder.fetch import sha256
from training.builder.files import whole

# corpus.py's reading rules are used as they are: its bytes name the cached tables of runs.
from training.corpus import (
    KEYS,
    MAX_SAME_START,
    START_WORDS,
    Corpus,
    _fingerprints,
    _texts,
    split_of,
)


def part_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """(file stem, row) of a part; last, ("", what was left out)."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            stem, row = json.loads(line)
            yield stem, row


def unique(parts: list[Path], directory: Path) -> Counter[str]:
    """Join the parts into one file per stem, the first row of each key; what was left out."""
    directory.mkdir(parents=True, exist_ok=True)
    left_out: Counter[str] = Counter()
    seen: dict[str, set[str]] = {stem: set() for stem in KEYS}
    with ExitStack() as stack:
        outs = {s: stack.enter_context(whole(directory / f"{s}.jsonl.gz")) for s in KEYS}
        for stem, row in (pair for part in parts for pair in part_rows(part)):
            if not stem:
                left_out.update(row)
                continue
            mark = " ".join(row[KEYS[stem]].casefold().split())
            if mark in seen[stem]:
                left_out[f"{stem}: repeated"] += 1
                continue
            seen[stem].add(mark)
            outs[stem].write(json.dumps(row, ensure_ascii=False) + "\n")
    return left_out


class Capped:
    """Lets through at most MAX_SAME_START rows that begin with the same words, in one file."""

    def __init__(self) -> None:
        self._starts: Counter[str] = Counter()

    def __call__(self, text: str) -> bool:
        words = text.casefold().split()[:START_WORDS]
        start = " ".join(words)
        self._starts[start] += 1
        return len(words) < START_WORDS or self._starts[start] <= MAX_SAME_START


def merge(parts: list[Path], directory: Path, out: Path, say: Any) -> dict[str, Any]:
    """Write the corpus files; rows, splits and checksum of each, and what was left out."""
    left_out = unique(parts, directory)
    held_out = Corpus(directory).held_out()
    files: dict[str, Any] = {}
    for stem, key in KEYS.items():
        counts: Counter[str] = Counter()
        sources: Counter[str] = Counter()
        capped = Capped()
        file = out / f"{stem}.jsonl.gz"
        with (
            gzip.open(directory / file.name, "rt", encoding="utf-8") as lines,
            whole(file) as kept,
        ):
            for line in lines:
                row = json.loads(line)
                split = split_of(row[key])
                if split == "train":
                    marks = (hash(m) for text in _texts(row) for m in _fingerprints(text))
                    if any(mark in held_out for mark in marks):
                        left_out[f"{stem}: repeats a held-out text"] += 1
                        continue
                    # Verses begin alike by nature.
                    if stem != "rewrite_kjv_web" and not capped(row[key]):
                        left_out[f"{stem}: near-duplicate"] += 1
                        continue
                counts[split] += 1
                sources[str(row.get("tier", row.get("src", "")))] += 1
                kept.write(line)
        files[stem] = {
            "rows": counts.total(),
            **{name: counts[name] for name in ("train", "validation", "test")},
            "by_source": dict(sorted(sources.items())),
            "left_out": {
                name.partition(": ")[2]: n
                for name, n in sorted(left_out.items())
                if name.startswith(f"{stem}:")
            },
            "sha256": sha256(file),
        }
        say(f"{stem}: {counts.total()} rows")
    return files
