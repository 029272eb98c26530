"""`elf-data tokenize`: text to an Arrow data set in the form of the `datasets` library."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from elf_engine.config import TokenizerSpec
from elf_engine.errors import ElfError
from elf_engine.published.batching import Example
from elf_engine.tokens import Tokenizer, load_tokenizer
from training.rows import (
    JSONL,
    SOURCE,
    TARGET,
    TEXT,
    Fields,
    Problems,
    ends_with,
    files,
    read_lines,
)

BATCH_ROWS, FILE_ROWS = 1_000, 500_000


@dataclass(frozen=True)
class Written:
    """What came of it. `problems` are the rows left out."""

    rows: int
    tokens: int
    problems: Problems


def by_name(name: str) -> Tokenizer:
    """The tokenizer in a SentencePiece file or a directory, or "bytes". Raises ElfError."""
    path = Path(name)
    if name == "bytes":
        return load_tokenizer(TokenizerSpec(kind="bytes"), path)
    if path.is_dir() and not (path / "tokenizer.model").is_file():
        spec = TokenizerSpec(kind="huggingface", file=".")
        return load_tokenizer(spec, path)
    file = path / "tokenizer.model" if path.is_dir() else path
    return load_tokenizer(TokenizerSpec(kind="sentencepiece", file=file.name), file.parent)


def tokenize(source: Path, out: Path, tokenizer: Tokenizer, fields: Fields) -> Written:
    """Tokenize the JSONL or text at `source` into the new folder `out`, which appears whole.

    Raises ElfError when `out` exists, `source` is of another kind, or no row is good.
    """
    if out.exists():
        raise ElfError(f"'{out}' exists; give a new folder, or remove it")
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    problems = Problems()
    try:
        examples = _examples(source, tokenizer, problems, fields)
        rows, tokens = _write(examples, part)
        if not rows:
            told = problems.lines() or ["it has none of this split"]
            raise ElfError(f"'{source}' has no good row; {'; '.join(s.strip() for s in told)}")
        os.replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Written(rows, tokens, problems)


def _examples(
    source: Path, tokenizer: Tokenizer, problems: Problems, fields: Fields
) -> Iterator[Example]:
    for file in files(source):
        if not ends_with(file, (*JSONL, *TEXT)):
            raise ElfError(f"'{file}' is no .jsonl or .txt file")
        yield from read_lines(file, tokenizer, problems, fields)


def _write(examples: Iterator[Example], folder: Path) -> tuple[int, int]:
    """Arrow stream files of at most FILE_ROWS rows and their index; (rows, tokens)."""
    import pyarrow as pa

    first = next(examples, None)
    if first is None:
        return 0, 0
    names = [TARGET, SOURCE] if first.source else [TARGET]
    schema = pa.schema([(name, pa.list_(pa.int32())) for name in names])
    rows, tokens = 0, 0
    written: list[str] = []
    pending: list[Example] = [first]
    while pending or (pending := list(islice(examples, 1))):
        file = folder / f"data-{len(written):05d}.arrow"
        written.append(file.name)
        with pa.ipc.new_stream(str(file), schema) as stream:
            for _ in range(FILE_ROWS // BATCH_ROWS):
                some = [*pending, *islice(examples, BATCH_ROWS - len(pending))]
                pending = []
                if not some:
                    break
                rows += len(some)
                tokens += sum(len(e.target) + len(e.source) for e in some)
                stream.write_batch(_batch(some, schema))
    _index(folder, written)
    return rows, tokens


def _batch(examples: list[Example], schema: Any) -> Any:
    import pyarrow as pa

    conditional = SOURCE in schema.names
    if any(bool(e.source) != conditional for e in examples):
        raise ElfError("some rows have a condition and some none; tokenize them separately")
    columns = [[list(e.target) for e in examples], [list(e.source) for e in examples]]
    arrays = [pa.array(column, pa.list_(pa.int32())) for column in columns[: len(schema.names)]]
    return pa.record_batch(arrays, schema=schema)


def _index(folder: Path, names: list[str]) -> None:
    """The two files by which `datasets.load_from_disk` knows a data set."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "0" * 16,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"features": None}))
