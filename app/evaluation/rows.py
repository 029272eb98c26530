"""JSONL in: generated rows and references, matched by id, every fault named by file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elf_engine.errors import ElfError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Texts:
    """Samples to score, one entry per generated row in file order.

    references, sources  None where there are none; `groups` are "" without one
    missing              references that have no generation
    failed               rows whose sampling broke down; they count as empty texts
    """

    ids: tuple[str, ...]
    generated: tuple[str, ...]
    references: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    groups: tuple[str, ...] = ()
    missing: int = 0
    failed: int = 0

    def __len__(self) -> int:
        return len(self.ids)


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every line that is not blank. Raises ElfError for anything else."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ElfError(f"'{path}' cannot be read: {error.strerror}") from error
    for number, line in enumerate(data.split(b"\n"), 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ElfError(f"{place}: no JSON object ({_short(error)})") from error
        if not isinstance(row, dict):
            raise ElfError(f"{place}: expected a JSON object, found {type(row).__name__}")
        yield place, row


def by_id(paths: Sequence[Path], text: str) -> dict[str, dict[str, Any]]:
    """All rows of the files by id. `text` is the field that must hold the text.

    Raises ElfError for a row without id or text and for an id that comes twice.
    """
    found: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for path in paths:
        for place, row in read_lines(path):
            name = row_id(row, place)
            if not isinstance(row.get(text), str):
                raise ElfError(f"{place}: id '{name}' has no text in '{text}'")
            if name in found:
                raise ElfError(f"{place}: id '{name}' is doubled, it is also at {places[name]}")
            found[name], places[name] = row, place
    if not found:
        raise ElfError(f"{', '.join(map(str, paths))}: there are no rows")
    return found


def row_id(row: Row, place: str) -> str:
    """The id of a row as text; numbers and texts that look alike are the same id."""
    name = row.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise ElfError(f"{place}: expected an 'id' that is a text or a whole number")
    return str(name)


def match(generated: Sequence[Path], references: Sequence[Path] = ()) -> Texts:
    """Generated rows with their references by id.

    Without reference files the rows' own "reference" and "input" are taken, if all have them.
    Raises ElfError for a generated id that the references lack.
    """
    rows = by_id(generated, "generated")
    ids = tuple(rows)
    held = by_id(references, "output") if references else {}
    if references:
        lacking = next((name for name in ids if name not in held), None)
        if lacking is not None:
            files = ", ".join(map(str, references))
            raise ElfError(f"generated id '{lacking}' is not among the references in {files}")
    outputs = [held[name]["output"] if held else rows[name].get("reference") for name in ids]
    inputs = [held.get(name, rows[name]).get("input", rows[name].get("input")) for name in ids]
    return Texts(
        ids,
        tuple(rows[name]["generated"] for name in ids),
        _all_texts(outputs),
        _all_texts(inputs),
        tuple(str(rows[name].get("group", "")) for name in ids),
        missing=len(held) - len(ids) if held else 0,
        failed=sum(bool(row.get("error")) for row in rows.values()),
    )


def same_order(first: Texts, second: Texts, name: str) -> Texts:
    """`second` in the order of `first`. Raises ElfError when the ids are not the same."""
    index = {found: k for k, found in enumerate(second.ids)}
    odd = next(iter(sorted(set(first.ids) ^ index.keys())), None)
    if odd is not None:
        raise ElfError(f"{name}: id '{odd}' is in only one of the two; a paired test needs both")
    order = [index[found] for found in first.ids]

    def put(texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if texts is None else tuple(texts[k] for k in order)

    return Texts(
        first.ids,
        tuple(second.generated[k] for k in order),
        put(second.references),
        put(second.sources),
        first.groups,
        second.missing,
        second.failed,
    )


def _all_texts(found: Sequence[Any]) -> tuple[str, ...] | None:
    """The texts when every row has one."""
    return tuple(found) if all(isinstance(text, str) for text in found) else None


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
