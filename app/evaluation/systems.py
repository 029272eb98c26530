"""Baselines without a model, as files of samples like any other: what a score must beat."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from app.evaluation.data import Item, training_texts
from app.evaluation.generate import Job, inputs_of
from app.evaluation.output import Output, fingerprint
from elf_engine.errors import ElfError

SYSTEMS = ("copy", "unigram")
# Words of a text that has no reference to be as long as.
_WORDS = 20
_TEXTS = 50_000


def copy(items: Sequence[Item], job: Job, data: Path) -> list[str]:
    """The input itself. An infill's input is the answer, so there is nothing to copy."""
    if job.task in ("infill", "unconditional"):
        raise ElfError(f"{job.task} has no source to copy; use --system unigram")
    return [item.text for item in items]


def unigram(items: Sequence[Item], job: Job, data: Path) -> list[str]:
    """Words drawn from those of the training texts, as many as the reference has."""
    words, shares = _frequencies(data)
    random = np.random.default_rng(job.seed)
    texts = []
    for item in items:
        if item.spans:
            (start, stop) = item.spans[0]
            drawn = random.choice(words, len(item.text[start:stop].split()), p=shares)
            texts.append(item.text[:start] + " ".join(drawn) + item.text[stop:])
        else:
            size = len(item.reference.split()) or _WORDS
            texts.append(" ".join(random.choice(words, size, p=shares)))
    return texts


_MAKE: dict[str, Callable[[Sequence[Item], Job, Path], list[str]]] = {
    "copy": copy,
    "unigram": unigram,
}


def write_system(name: str, job: Job, data: Path, out: Path) -> int:
    """Write the samples of a baseline that `out` lacks; returns how many. Raises ElfError for an
    unknown one."""
    if name not in _MAKE:
        raise ElfError(f"system '{name}' is unknown; use model, {', '.join(SYSTEMS)}")
    items = inputs_of(job, data)
    texts = _MAKE[name](items, job, data)
    facts = {"system": name, "task": job.task, "split": job.split, "seed": job.seed}
    facts |= {"inputs": str(job.inputs or "")}
    with Output(out, fingerprint(facts)) as output:
        rows = [_row(name, job, item, text) for item, text in zip(items, texts, strict=True)]
        todo = [row for row in rows if row["id"] not in output.done]
        output.append(todo)
        return len(todo)


def _row(name: str, job: Job, item: Item, text: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": item.id, "generated": text, "task": job.task, "input": item.text}
    row |= {"seed": job.seed, "settings": {}, "seconds": 0.0, "model": name}
    row |= {"reference": item.reference} if item.reference else {}
    row |= {"group": item.group} if item.group else {}
    if item.spans:
        start, stop = item.spans[0]
        row |= {"spans": item.spans, "written": text[start : len(text) - len(item.text) + stop]}
    return row


@lru_cache(1)
def _frequencies(data: Path) -> tuple[Any, Any]:
    texts = itertools.islice(training_texts(data), _TEXTS)
    counts = Counter(word for text in texts for word in text.split())
    if not counts:
        raise ElfError("the training texts hold no word; point --data at the corpus directory")
    words = sorted(counts)
    sizes = np.asarray([counts[word] for word in words], np.float64)
    return np.asarray(words), sizes / sizes.sum()
