"""Rows of token ids, from pre-tokenised Arrow or Parquet, JSONL or plain text.

A row that is no good is counted and named, and the others are used; only when none is good, or a
file is of the wrong make altogether, does reading stop.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError
from elf_engine.published.batching import Example
from elf_engine.tokens import Tokenizer
from training.corpus import Split, split_of

Ids = npt.NDArray[np.int64]
TARGET, SOURCE = "input_ids", "condition_input_ids"
ARROW, PARQUET = (".arrow",), (".parquet",)
JSONL, TEXT = (".jsonl", ".jsonl.gz", ".json"), (".txt", ".txt.gz")
SHOWN = 5


@dataclass
class Problems:
    """Rows left out: how many for each reason, and the first few by place."""

    counts: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)

    def add(self, file: Path, line: int, reason: str, kind: str = "") -> None:
        """Note one row; `kind` is the reason without its particulars."""
        self.counts[kind or reason] += 1
        if len(self.first) < SHOWN:
            self.first.append(f"{file}:{line}: {reason}")

    def lines(self) -> list[str]:
        """What to tell, "" apart from nothing."""
        if not self.counts:
            return []
        counts = ", ".join(f"{n} {kind}" for kind, n in self.counts.most_common())
        more = self.counts.total() - len(self.first)
        return [
            f"left out {self.counts.total()} rows: {counts}",
            *(f"  {line}" for line in self.first),
            *([f"  and {more} more"] if more else []),
        ]


@dataclass(frozen=True)
class Fields:
    """Names of a JSONL row's texts, and the split to read: by the corpus's fixed rule, whose key
    is the source or, without one, the text; None reads all."""

    source: str = "input"
    target: str = "output"
    text: str = "text"
    split: Split | None = None

    def wanted(self, key: str) -> bool:
        """Does the row of this key belong to the split?"""
        return self.split is None or split_of(key) == self.split


PLAIN_FIELDS = Fields()


@dataclass(frozen=True)
class Ragged:
    """N lists of ids: list i is `values[starts[i] : starts[i + 1]]`."""

    values: npt.NDArray[Any]
    starts: Ids

    def __getitem__(self, i: int) -> list[int]:
        row: list[int] = self.values[self.starts[i] : self.starts[i + 1]].tolist()
        return row

    def lengths(self) -> Ids:
        """Their sizes (N,)."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class Shard:
    """Rows that lie together. `kept` (M,) are the good ones; `source` is None for plain text."""

    target: Ragged
    source: Ragged | None
    kept: Ids


class Rows:
    """All good rows of `path`. `lengths` (N,2) counts the source's and the target's tokens, `ended`
    (N,) says whether the target has its EOS.

    Pickled for the loader's own workers by its arguments alone, and read anew there. Raises
    ElfError when `path` has no readable file or no good row.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.path, self._tokenizer = path, tokenizer
        self.problems = Problems()
        found = list(_shards(path, tokenizer, self.problems))
        self._shards = [shard for shard in found if len(shard.kept)]
        self._ends = np.cumsum([len(shard.kept) for shard in self._shards], dtype=np.int64)
        if not self._shards:
            told = self.problems.lines() or ["it is empty"]
            raise ElfError(f"'{path}' has no good row; {'; '.join(s.strip() for s in told)}")
        if len({shard.source is None for shard in self._shards}) > 1:
            raise ElfError(f"'{path}' mixes rows with and without a condition; separate them")
        self.conditional = self._shards[0].source is not None
        self.lengths = np.concatenate([_lengths(shard) for shard in self._shards])
        self.ended = np.concatenate([_last(shard) == tokenizer.eos_id for shard in self._shards])
        self.fingerprint = hashlib.sha256(self.lengths.tobytes()).hexdigest()[:16]

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.path, self._tokenizer)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Example:
        at = int(np.searchsorted(self._ends, i, side="right"))
        shard = self._shards[at]
        row = int(shard.kept[i - (self._ends[at] - len(shard.kept))])
        return Example(shard.target[row], shard.source[row] if shard.source else ())


def _lengths(shard: Shard) -> Ids:
    target = shard.target.lengths()[shard.kept]
    source = shard.source.lengths()[shard.kept] if shard.source else np.zeros_like(target)
    return np.stack([source, target], axis=1)


def _last(shard: Shard) -> npt.NDArray[Any]:
    last: npt.NDArray[Any] = shard.target.values[shard.target.starts[shard.kept + 1] - 1]
    return last


def ends_with(file: Path, endings: tuple[str, ...]) -> bool:
    """Is the file's name of one of these kinds?"""
    return file.name.endswith(endings)


def files(path: Path) -> list[Path]:
    """The data files at `path`: itself, or those of a folder, all of one kind. Raises ElfError."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ElfError(f"no data at '{path}'; give a file, a folder, or a Hub name owner/name")
    for endings in (ARROW, PARQUET, JSONL, TEXT):
        state = ("state.json", "dataset_info.json", "manifest.json", "dataset_dict.json")
        found = sorted(f for f in path.rglob("*") if ends_with(f, endings) and f.name not in state)
        if found:
            return found
    raise ElfError(f"'{path}' has no .arrow, .parquet, .jsonl or .txt file")


def _shards(path: Path, tokenizer: Tokenizer, problems: Problems) -> Iterator[Shard]:
    for file in files(path):
        if ends_with(file, (*ARROW, *PARQUET)):
            yield from _columns(file, tokenizer.vocab_size, problems)
        elif ends_with(file, (*JSONL, *TEXT)):
            yield from gather(read_lines(file, tokenizer, problems))
        else:
            raise ElfError(f"'{file}' is of no known kind; use .arrow, .parquet, .jsonl or .txt")


def gather(examples: Iterator[Example]) -> Iterator[Shard]:
    """Examples as one shard with sources and one without, as far as there are any."""
    rows: dict[bool, list[Example]] = {True: [], False: []}
    for example in examples:
        rows[bool(example.source)].append(example)
    for conditional, some in rows.items():
        if some:
            source = _ragged([e.source for e in some]) if conditional else None
            yield Shard(_ragged([e.target for e in some]), source, np.arange(len(some)))


def _ragged(lists: list[Any]) -> Ragged:
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return Ragged(np.concatenate([np.asarray(ids, np.int32) for ids in lists]), starts)


def _columns(file: Path, vocab: int, problems: Problems) -> Iterator[Shard]:
    """Shards of an Arrow or Parquet file, mapped into memory, not read."""
    before = 0
    for batch in record_batches(file):
        if TARGET not in batch.schema.names:
            have = ", ".join(batch.schema.names)
            raise ElfError(f"'{file}' has no column {TARGET}, only {have}; tokenize it first")
        columns = {name: _column(file, batch, name) for name in (TARGET, SOURCE)
                   if name in batch.schema.names}  # fmt: skip
        good = np.ones(batch.num_rows, np.bool_)
        for name, (ragged, present) in columns.items():
            for bad, reason in (
                (~present, f"{name} missing"),
                (present & (ragged.lengths() == 0), f"{name} empty"),
                (_outside(ragged, vocab), f"{name} outside the vocabulary of {vocab}"),
            ):
                for row in np.flatnonzero(bad & good):
                    problems.add(file, before + int(row) + 1, reason)
                good &= ~bad
        source = columns[SOURCE][0] if SOURCE in columns else None
        yield Shard(columns[TARGET][0], source, np.flatnonzero(good))
        before += batch.num_rows


def record_batches(file: Path) -> Iterator[Any]:
    """Record batches of an Arrow (stream or file form) or Parquet file. Raises ElfError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if ends_with(file, PARQUET):
            yield from pq.ParquetFile(file, memory_map=True).iter_batches(10_000)
            return
        data = pa.memory_map(str(file))
        try:
            yield from pa.ipc.open_stream(data)
        except pa.ArrowInvalid:
            data.seek(0)
            reader = pa.ipc.open_file(data)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    except (pa.ArrowException, OSError) as error:
        raise ElfError(f"'{file}' cannot be read ({str(error).splitlines()[0]})") from error


def _column(file: Path, batch: Any, name: str) -> tuple[Ragged, npt.NDArray[np.bool_]]:
    """A list column as arrays, and which rows are there, with no missing id inside."""
    import pyarrow as pa

    column = batch.column(batch.schema.names.index(name))
    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not pa.types.is_integer(kind.value_type):
        raise ElfError(f"'{file}': column {name} is {kind}; lists of integers are wanted")
    # `values` and `offsets` belong to the whole buffer, also where the column is a slice of it.
    starts = np.asarray(column.offsets, np.int64)
    inside = column.values
    present = np.asarray(column.is_valid())
    if inside.null_count:
        holes = np.cumsum([0, *np.asarray(inside.is_null())])
        present = present & (holes[starts[1:]] == holes[starts[:-1]])
        inside = inside.fill_null(0)
    return Ragged(inside.to_numpy(zero_copy_only=False), starts), present


def _outside(ragged: Ragged, vocab: int) -> npt.NDArray[np.bool_]:
    """Which rows have an id that is none of the vocabulary."""
    low, high = ragged.starts[0], ragged.starts[-1]
    values = ragged.values[low:high]
    if not len(values) or (values.min() >= 0 and values.max() < vocab):
        return np.zeros(len(ragged.starts) - 1, np.bool_)
    wrong = np.cumsum([0, *((values < 0) | (values >= vocab))])
    found: npt.NDArray[np.bool_] = np.diff(wrong[ragged.starts - low]) > 0
    return found


def read_lines(
    file: Path, tokenizer: Tokenizer, problems: Problems, fields: Fields = PLAIN_FIELDS
) -> Iterator[Example]:
    """Good rows of a JSONL or text file, EOS behind each target that is text."""
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    example = _example(file, line, tokenizer, fields)
                    if example:
                        yield example
                except _BadRowError as bad:
                    problems.add(file, number, str(bad), bad.kind)
    except (OSError, EOFError) as error:
        raise ElfError(f"'{file}' cannot be read ({error})") from error


class _BadRowError(Exception):
    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def _example(file: Path, line: bytes, tokenizer: Tokenizer, fields: Fields) -> Example | None:
    try:
        text = line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _BadRowError(f"not UTF-8 at byte {error.start}", "not UTF-8") from error
    if ends_with(file, TEXT):
        return _encoded("", text, tokenizer, fields)
    try:
        row = json.loads(text)
    except ValueError as error:
        raise _BadRowError(f"not JSON ({error})", "not JSON") from error
    if not isinstance(row, dict):
        raise _BadRowError(f"a {type(row).__name__}, not an object", "not an object")
    if TARGET in row:
        source = _ids(row, SOURCE, tokenizer.vocab_size) if SOURCE in row else []
        return Example(_ids(row, TARGET, tokenizer.vocab_size), source)
    if fields.source in row or fields.target in row:
        pair = _text(row, fields.source), _text(row, fields.target)
        return _encoded(*pair, tokenizer, fields)
    return _encoded("", _text(row, fields.text), tokenizer, fields)


def _encoded(source: str, text: str, tokenizer: Tokenizer, fields: Fields) -> Example | None:
    if not fields.wanted(source or text):
        return None
    return Example([*tokenizer.encode(text), tokenizer.eos_id], tokenizer.encode(source))


def _text(row: dict[str, Any], name: str) -> str:
    if name not in row:
        have = ", ".join(map(str, row)) or "nothing"
        raise _BadRowError(f"no field '{name}', only {have}"[:120], f"without '{name}'")
    value = row[name]
    if not isinstance(value, str):
        kind = type(value).__name__
        raise _BadRowError(f"'{name}' is a {kind}, not text", f"with '{name}' of the wrong type")
    if not value.strip():
        raise _BadRowError(f"'{name}' is empty", f"with empty '{name}'")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _BadRowError(f"'{name}' has a lone surrogate", "with a lone surrogate") from error
    return value


def _ids(row: dict[str, Any], name: str, vocab: int) -> list[int]:
    ids = row[name]
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise _BadRowError(f"'{name}' is no list of integers", f"with '{name}' of the wrong type")
    if not ids:
        raise _BadRowError(f"'{name}' is empty", f"with empty '{name}'")
    wrong = [i for i in ids if not 0 <= i < vocab]
    if wrong:
        raise _BadRowError(
            f"'{name}' has id {wrong[0]}, the vocabulary {vocab} ids", "outside the vocabulary"
        )
    return ids
