"""`elf-eval report`: docs/results.md and its figures, out of the result files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.evaluation import results
from app.evaluation.figures import draw, draw_duel, label
from app.evaluation.tables import interval, markdown, number
from elf_engine.errors import ElfError

_HEAD = """# Results

Written by `elf-eval report` from the files in `{folder}`; do not edit it, run the command again.
Values have 95 % bootstrap intervals over samples. Every table and figure says the command that
measures it.
"""
_TITLES = {
    "frontier": "Quality against diversity",
    "steps": "Quality against steps",
    "gamma": "Quality against gamma",
    "grid": "Time grids",
    "strength": "Strength against what is kept",
}
_SHOWN = (
    "ppl:",
    "bleu",
    "chrf",
    "rouge1",
    "rouge2",
    "rougeL",
    "entropy",
    "distinct_2",
    "self_bleu",
)


def report(folder: Path, page: Path) -> list[Path]:
    """Write `page` and, in `folder`, the figures; returns all files written.

    Raises ElfError when `folder` holds no result.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ElfError(f"'{folder}' holds no result file; measure with elf-eval suite or sweep")
    found = [results.load(file) for file in files]
    found.sort(key=lambda result: (results.KINDS.index(result["kind"]), str(result["name"])))
    written: list[Path] = []
    shown = _relative(folder, page)
    parts = [_HEAD.format(folder=shown)]
    for result in found:
        if result["kind"] == "suite":
            parts.append(suite_section(result))
        elif result["kind"] == "duel":
            drawn = draw_duel(result, folder)
            written += drawn
            parts.append(suite_section(result, [f"{shown}/{file.name}" for file in drawn]))
        else:
            drawn = draw(result, folder)
            written += drawn
            parts.append(sweep_section(result, [f"{shown}/{file.name}" for file in drawn]))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(parts), "utf-8")
    return [page, *written]


def suite_section(result: Mapping[str, Any], files: Sequence[str] = ()) -> str:
    """Every table of a suite or duel, after its figures."""
    parts = [f"## {result['name']}\n", *_pictures(files, result["name"])]
    for table in result["tables"]:
        rows = [[_cell(value) for value in row] for row in table["rows"]]
        parts += [f"### {table['title']}\n", markdown(table["header"], rows)]
        parts += [f"{table['note']}\n"] if table.get("note") else []
    return "\n".join([*parts, provenance(result)])


def sweep_section(result: Mapping[str, Any], files: Sequence[str]) -> str:
    """A sweep's figure and table."""
    title = f"## {_TITLES[result['figure']]}: {result['task']} ({result['name']})\n"
    parts = [title]
    parts += _pictures(files, f"{_TITLES[result['figure']]}, {result['task']}")
    names = list(result["points"][0]["settings"])
    scores = [
        name
        for name in result["points"][0]["scores"]
        if any(name == want or (want[-1] == ":" and name.startswith(want)) for want in _SHOWN)
    ]
    rows = [
        [str(point["settings"].get(name)) for name in names]
        + [interval(point["scores"][name]) for name in scores]
        + [number(point["seconds"])]
        for point in result["points"]
    ]
    header = [*(label(name) for name in names), *(label(name) for name in scores), "s a sample"]
    return "\n".join([*parts, markdown(header, rows), provenance(result)])


def _pictures(files: Sequence[str], name: str) -> list[str]:
    return [
        f"![{name}]({file})\n\n[As SVG]({file.removesuffix('png')}svg)\n"
        for file in files
        if file.endswith(".png")
    ]


def provenance(result: Mapping[str, Any]) -> str:
    """How to measure it again, and where it was measured."""
    facts = [
        f"model {result['model']} ({result['model_hash']})",
        f"{result['split']} split, at most {result['limit']} inputs a task",
        f"seed {result['seed']}",
        f"revision {result['git']}",
        result["machine"],
    ]
    return f"    {result['command']}\n\n{'; '.join(facts)}.\n"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return interval(value)
    return number(value) if isinstance(value, float) else str(value)


def _relative(folder: Path, page: Path) -> str:
    try:
        return folder.resolve().relative_to(page.parent.resolve()).as_posix()
    except ValueError:
        return folder.as_posix()
