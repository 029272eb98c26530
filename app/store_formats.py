"""The history as files: JSON lines to keep and to read back, CSV for tables, Markdown to read."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, NoReturn, TypeAlias

from app.records import Generation, StoredStep
from app.store_rows import ALPHABET, clean_tag
from elf_engine.config import from_dict
from elf_engine.errors import ElfError

Kept: TypeAlias = tuple[Generation, Sequence[StoredStep]]

FORMATS = {"jsonl": ".jsonl", "csv": ".csv", "markdown": ".md"}
LONGEST_LINE = 16 * 2**20  # bytes of one result and all its steps
_FORMAT = 1
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_LENGTHS = {"id": 26, "parent_id": 26, "editor": 32, "backend": 32, "owner": 128}
# Spreadsheets run a cell that starts so; the wide forms become the narrow ones in some of them.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
_COLUMNS = (
    *("id", "parent_id", "created_utc", "editor", "model", "backend", "seed", "sample_index"),
    *("starred", "preferred", "tags", "input", "output", "settings", "warnings"),
)


def write(kind: str, kept: Iterable[Kept]) -> Iterator[str]:
    """The pieces of a file of one of FORMATS. Raises ElfError for another kind."""
    if kind not in FORMATS:
        raise ElfError(f"format '{kind}' is unknown; choose one of {', '.join(FORMATS)}")
    return {"jsonl": write_jsonl, "csv": write_csv, "markdown": write_markdown}[kind](kept)


# --- JSON lines --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trace:
    steps: tuple[StoredStep, ...] = ()


def write_jsonl(kept: Iterable[Kept]) -> Iterator[str]:
    """One line for each result, whole: `read_jsonl` gives equal ones."""
    for g, steps in kept:
        line = {"format": _FORMAT, **asdict(g), "steps": [asdict(s) for s in steps]}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def read_jsonl(file: IO[bytes]) -> Iterator[Kept]:
    """What `write_jsonl` wrote. Raises ElfError naming the line and what is wrong with it."""
    lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
    for number, raw in enumerate(lines, 1):
        if raw.strip():
            yield _read(raw, f"line {number}")


def _read(raw: bytes, where: str) -> Kept:
    if len(raw) > LONGEST_LINE:
        raise ElfError(f"{where}: longer than {LONGEST_LINE >> 20} MiB; no result is")
    try:
        data = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:80] or "nested too deep"
        raise ElfError(f"{where}: not a line of an export ({why})") from error
    if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
        raise ElfError(f'{where}: not a line of an export; it has no "format": {_FORMAT}')
    trace = from_dict(_Trace, {"steps": data.pop("steps", [])}, where)
    found = from_dict(Generation, data, where)
    _check(found, trace.steps, where)
    return found, trace.steps


def _check(g: Generation, steps: Sequence[StoredStep], where: str) -> None:
    def refuse(name: str) -> NoReturn:
        raise ElfError(f"{where}: {name} {str(getattr(g, name))[:60]!r} is none of a result")

    for name in ("id", "parent_id"):
        value = getattr(g, name)
        if value is not None and (not value or set(value) - set(ALPHABET)):
            refuse(name)
    for name, most in _LENGTHS.items():
        if len(getattr(g, name) or "") > most:
            refuse(name)
    for name in ("created_utc", "deleted_utc"):
        value = getattr(g, name)
        if value is not None and not _TIME.fullmatch(value):
            refuse(name)
    for name, end in (("seed", 2**63), ("sample_index", 2**31)):
        if not 0 <= getattr(g, name) < end:
            refuse(name)
    if not 0 <= g.seconds < math.inf:
        refuse("seconds")
    if len(set(g.tags)) < len(g.tags) or any(tag != clean_tag(tag) for tag in g.tags):
        refuse("tags")
    numbers = [s.i for s in steps]
    if len(set(numbers)) < len(numbers) or any(not 0 <= i < 2**31 for i in numbers):
        raise ElfError(f"{where}: the steps' numbers repeat or are out of range")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


# --- CSV ---------------------------------------------------------------------------------------


def write_csv(kept: Iterable[Kept]) -> Iterator[str]:
    """A table for spreadsheets, which take none of its cells for a formula: one that could be
    starts with an apostrophe. The first piece is the byte order mark that Excel wants."""
    yield "\ufeff" + _csv_line(_COLUMNS)
    for g, _ in kept:
        yield _csv_line([safe_cell(_cell(getattr(g, name))) for name in _COLUMNS])


def safe_cell(text: str) -> str:
    """`text`, with an apostrophe in front where a spreadsheet would read more than text."""
    risky = text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA)
    return "'" + text if risky else text


def _cell(value: Any) -> str:
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    if isinstance(value, dict | tuple):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def _csv_line(cells: Sequence[str]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow(cells)
    return out.getvalue()


# --- Markdown ----------------------------------------------------------------------------------


def write_markdown(kept: Iterable[Kept]) -> Iterator[str]:
    """A document to read: each result with its input and what made it, texts as they are."""
    yield "# ELF Studio history\n"
    for g, _ in kept:
        marks = "".join(f", {name}" for name in ("starred", "preferred") if getattr(g, name))
        tags = f", tags: {', '.join(f'`{tag}`' for tag in g.tags)}" if g.tags else ""
        when = g.created_utc[:16].replace("T", " ")
        yield f"\n## {g.id}\n\n{when} UTC, {_code(g.editor)}{marks}{tags}\n"
        if g.input:
            yield f"\n{_fenced(g.input)}\n\nbecame\n"
        yield f"\n{_fenced(g.output)}\n\n"
        yield f"{_code(g.model)} on {_code(g.backend)}, seed {g.seed}, sample {g.sample_index}, "
        yield f"{_code(json.dumps(g.settings, ensure_ascii=False))}\n"


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text, so that nothing in it is markup."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _code(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"
