"""The file of samples of one run: appended to, continued after any end, never doubled."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from app.evaluation.rows import read_lines
from elf_engine.errors import ElfError


def fingerprint(facts: Mapping[str, Any]) -> str:
    """12 hex digits that tell whether two runs ask for the same samples."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


class Output:
    """Opens `path` for the run with this fingerprint; `done` are the ids it already holds.

    A line that a killed process left unfinished is cut off. Raises ElfError when the file belongs
    to another run, or another process is writing it.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise ElfError(f"'{path}' cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise ElfError(f"'{path}' is being written by another process; wait for it") from error
        try:
            self._cut_unfinished()
            self.done = self._ids()
        except ElfError:
            self._file.close()
            raise

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write whole rows, in one call to the system, to the disk. Raises ElfError when full."""
        lines = [json.dumps({**row, "run": self.run}, ensure_ascii=False) for row in rows]
        data = "".join(f"{line}\n" for line in lines).encode("utf-8")
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ElfError(f"'{self.path}' cannot be written: {error.strerror}") from error

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def _cut_unfinished(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)

    def _ids(self) -> set[str]:
        done: set[str] = set()
        for place, row in read_lines(self.path):
            if row.get("run") != self.run:
                raise ElfError(
                    f"{place}: this file holds samples of another model, input or settings; "
                    "choose another --out, or delete it"
                )
            done.add(str(row.get("id")))
        return done
