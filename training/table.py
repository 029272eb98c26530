"""The training rows as columns, kept beside the runs so that a restart starts at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elf_engine.tokens import Tokenizer
from training.corpus import Corpus, Example, Split


@dataclass(frozen=True)
class Table:
    """N examples. Text i is `blob[starts[2 i] : starts[2 i + 1]]` (source) and up to
    `starts[2 i + 2]` (target), in UTF-8; `tokens` (N,2) counts their tokens; `group` (N,) indexes
    `groups`, whose task is in `tasks`."""

    blob: bytes
    starts: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int32]
    group: npt.NDArray[np.int32]
    groups: tuple[str, ...]
    tasks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.group)

    def source(self, i: int) -> str:
        """Source (or only) text of example i."""
        return self.blob[self.starts[2 * i] : self.starts[2 * i + 1]].decode("utf-8")

    def target(self, i: int) -> str:
        """Target text of example i, empty for plain text."""
        return self.blob[self.starts[2 * i + 1] : self.starts[2 * i + 2]].decode("utf-8")


def build(examples: Iterable[Example], tokenizer: Tokenizer) -> Table:
    """Columns of `examples`, with token counts."""
    groups: dict[tuple[str, str], int] = {}
    texts, tokens, group = [], [], []
    for example in examples:
        pair = (example.source, example.target)
        texts += [text.encode("utf-8") for text in pair]
        tokens.append([len(tokenizer.encode(text)) for text in pair])
        group.append(groups.setdefault((example.group, example.task), len(groups)))
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return Table(
        b"".join(texts),
        starts,
        np.asarray(tokens, np.int32).reshape(-1, 2),
        np.asarray(group, np.int32),
        tuple(name for name, _ in groups),
        tuple(task for _, task in groups),
    )


def save(table: Table, file: Path) -> None:
    """Write the table in one step: a reader sees all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("wb") as out:
        np.savez(
            out,
            blob=np.frombuffer(table.blob, np.uint8),
            starts=table.starts,
            tokens=table.tokens,
            group=table.group,
            names=np.asarray([f"{g}\t{t}" for g, t in zip(table.groups, table.tasks, strict=True)]),
        )
    os.replace(part, file)


def load(file: Path) -> Table:
    """Read what `save` wrote."""
    with np.load(file, allow_pickle=False) as data:
        names = [str(name).split("\t") for name in data["names"]]
        return Table(
            data["blob"].tobytes(),
            data["starts"],
            data["tokens"],
            data["group"],
            tuple(g for g, _ in names),
            tuple(t for _, t in names),
        )


def cached(
    directory: Path, split: Split, tokenizer: Tokenizer, tokenizer_file: Path, cache: Path
) -> Table:
    """The table of one split of the corpus in `directory`, from `cache` when it is there. The
    cache is named after the tokenizer, the corpus files' sizes and the reading code."""
    mark = hashlib.sha256(tokenizer_file.read_bytes())
    mark.update((Path(__file__).parent / "corpus.py").read_bytes())
    for path in sorted(directory.glob("*.jsonl.gz")):
        mark.update(f"{path.name} {path.stat().st_size}".encode())
    file = cache / f"{split}-{mark.hexdigest()[:16]}.npz"
    if not file.exists():
        corpus = Corpus(directory)
        save(build(corpus.examples(split), tokenizer), file)
        for reason, count in sorted(corpus.left_out.items()):
            print(f"left out of {split}: {count} rows of {reason}", flush=True)
    return load(file)
