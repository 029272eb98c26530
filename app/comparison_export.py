"""A comparison as a file: CSV for spreadsheets, JSON lines for programs, Markdown for people."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.comparison import Answer, Comparison, letter
from app.comparison_tally import Count
from app.store_formats import safe_cell
from elf_engine.errors import ElfError

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")
_SHORT = ("answer", "setting", "text", "preferred", "seconds", "error")

Record = dict[str, Any]


def records(comparison: Comparison) -> list[Record]:
    """One for each candidate, and one for each answer that has none, in the order shown. Raises
    ElfError while names are hidden: the file would give them away."""
    if comparison.hidden:
        raise ElfError("the names are still hidden; reveal them before you export")
    return [r for place in range(len(comparison.answers)) for r in _of(comparison, place)]


def _of(comparison: Comparison, place: int) -> Iterator[Record]:
    answer = comparison.answers[place]
    for i, result in enumerate(answer.results):
        yield {
            **_head(comparison, answer, place),
            "text": result.text,
            "preferred": comparison.preferred == (place, i),
            "unseen": comparison.unseen and comparison.preferred == (place, i),
            "model_hash": result.model_hash,
            "seed": result.seed,
            "sample": result.index,
            "settings": result.settings,
            "scores": result.scores,
            "seconds": round(result.seconds, 3),
            "warnings": list(result.warnings),
            "id": answer.ids[i],
            "error": "",
        }
    if not answer.results:
        error = answer.error or f"no answer ({answer.state})"
        yield {**_head(comparison, answer, place), "text": "", "preferred": False, "error": error}


def _head(comparison: Comparison, answer: Answer, place: int) -> Record:
    request = comparison.request
    return {
        "answer": letter(place),
        "setting": answer.name,
        "model": answer.cell.model,
        "backend": answer.cell.backend,
        "editor": request.editor,
        "input": request.text,
    }


def as_jsonl(rows: Sequence[Record]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_csv(rows: Sequence[Record]) -> str:
    """Every record has every column; no cell begins as a formula does."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows([safe_cell(_plain(row.get(name, ""))) for name in names] for row in rows)
    # The mark tells spreadsheets that this is UTF-8.
    return "\ufeff" + out.getvalue()


def as_markdown(rows: Sequence[Record]) -> str:
    """The input, and a table of what people look at."""
    lines = [f"**Input:** {_escaped(rows[0]['input'])}", ""] if rows and "input" in rows[0] else []
    names = [n for n in _SHORT if any(n in row for row in rows)] if lines else list(rows[0])
    lines += [_line(names), _line(["---"] * len(names))]
    lines += [_line([_escaped(_plain(row.get(n, ""))) for n in names]) for row in rows]
    return "\n".join(lines) + "\n"


def counts_records(counts: Sequence[Count]) -> list[Record]:
    if not counts:
        raise ElfError("nothing was preferred yet; mark an answer first")
    return [vars(count) for count in counts]


FORMATS: Mapping[str, tuple[str, Callable[[Sequence[Record]], str]]] = {
    "CSV": ("csv", as_csv),
    "JSONL": ("jsonl", as_jsonl),
    "Markdown": ("md", as_markdown),
}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    """Text as one Markdown line that shows as it is."""
    return re.sub(r"\s*[\r\n\v\f\x85\u2028\u2029]+\s*", " / ", _MARKDOWN.sub(r"\\\1", text)).strip()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
