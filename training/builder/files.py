"""Files that appear whole, and a directory for one build at a time."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from elf_engine.errors import ElfError


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Hold the build's lock. Raises ElfError when another build has it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ElfError(
                f"another build is at work in '{directory.parent}'; wait for it"
            ) from error
        yield


@contextmanager
def whole(file: Path) -> Iterator[io.TextIOWrapper]:
    """Write a text file (.gz: compressed, without a date) that appears when complete."""
    part = file.with_name(file.name + ".part")
    with part.open("wb") as raw, _writer(raw, file.suffix == ".gz") as out:
        yield out
    os.replace(part, file)


@contextmanager
def _writer(raw: BinaryIO, packed: bool) -> Iterator[io.TextIOWrapper]:
    if not packed:
        with io.TextIOWrapper(raw, encoding="utf-8") as out:
            yield out
        return
    with (
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as data,
        io.TextIOWrapper(data, encoding="utf-8") as out,
    ):
        yield out
