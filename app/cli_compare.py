"""`elf compare`: one text, several models or settings, one table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from app import cli_edit
from app.cli_edit import as_json, default_backend, locks_of, read_text, spans_of, warn, write
from elf_engine.errors import ElfError

if TYPE_CHECKING:
    from editors.compare import Cell, Compared

_EDITORS = ("draft", "infill", "rewrite", "translate", "summarise", "modernise")
_MOST_CELLS = 64


@click.command()
@click.argument("text", required=False)
@click.option("--file", "-f", metavar="PATH", help="Read the text from a file; - is stdin.")
@click.option("--editor", type=click.Choice(_EDITORS), default="translate", show_default=True)
@click.option(
    "--with", "columns", multiple=True, metavar="KNOB=VALUE,...", help="One column; repeatable."
)
@click.option(
    "--vary", multiple=True, metavar="KNOB=A,B,...", help="A column per value; two make a grid."
)
@click.option("--span", "spans", multiple=True, metavar="START:STOP", help="Only these characters.")
@click.option(
    "--lock", "locks", multiple=True, metavar="WORD|START:STOP", help="Kept as it is; repeatable."
)
@click.option("--count", "-n", type=int, default=1, show_default=True, help="Candidates each.")
@click.option("--json", "as_json_", is_flag=True, help="One JSON object per column and line.")
def compare(
    text: str | None,
    file: str | None,
    editor: str,
    columns: tuple[str, ...],
    vary: tuple[str, ...],
    **given: Any,
) -> int:
    """Run one editor on TEXT with several settings, and print one table.

    \b
    KNOB is model, backend, quality, strength, seed, steps, sampler, gamma, guidance,
    condition-guidance, grid or resample.
      elf compare "Ein Haus." --with steps=8 --with model=ELF-B-de-en,steps=64
      elf compare "Ein Haus." --vary steps=8,32 --vary condition-guidance=1,2
      elf compare "A big house" --editor rewrite --span 2:5 --vary strength=0.3,0.8
    """
    source = read_text(text, file, editor != "draft")
    import editors
    from editors.compare import Compared, run_cells

    choices = [_pairs(column) for column in columns]
    choices += [list(cell) for cell in _grid(vary)]
    if not 1 <= len(choices) <= _MOST_CELLS:
        raise ElfError(f"{len(choices)} columns to compare; give 1 to {_MOST_CELLS} by --with")
    names = [",".join(f"{name}={value}" for name, value in pairs) for pairs in choices]
    cells = [_cell(editor, pairs) for pairs in choices]
    spans, as_json_ = spans_of(given["spans"]), given["as_json_"]
    locks = locks_of(source, given["locks"], spans)
    request = editors.EditRequest(
        editor, source, count=given["count"], spans=spans, locks=locks, distinct=True
    )
    loaded: dict[tuple[str, str], Any] = {}

    def load(model: str, backend: str) -> Any:
        if (model, backend) not in loaded:
            loaded.clear()  # memory holds one model at a time
            loaded[model, backend] = cli_edit.load_engine(model, backend)
        return loaded[model, backend]

    found = [c for c in run_cells(load, editors.run, request, cells) if isinstance(c, Compared)]
    for name, compared in zip(names, found, strict=True):
        if as_json_:
            results = [as_json(result) for result in compared.results]
            line = {"cell": name, "results": results, "error": compared.error or None}
            write(json.dumps(line, ensure_ascii=False) + "\n")
        elif compared.error:
            warn(f"{name}: {compared.error}")
    if not as_json_:
        write(_table(names, found))
    return 0 if any(compared.results for compared in found) else 2


def _pairs(column: str) -> list[tuple[str, str]]:
    pairs = []
    for part in column.split(","):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ElfError(f"'{part}' is not KNOB=VALUE, such as steps=8")
        pairs.append((name.strip(), value.strip()))
    return pairs


def _grid(vary: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    axes = []
    for axis in vary:
        name, equals, values = axis.partition("=")
        if not (name and equals and values):
            raise ElfError(f"'{axis}' is not KNOB=A,B, such as steps=8,32")
        axes.append([(name.strip(), value.strip()) for value in values.split(",")])
    return list(itertools.product(*axes)) if axes else []


def _cell(editor: str, pairs: Sequence[tuple[str, str]]) -> Cell:
    """Raises ElfError for a knob that is none; a value out of range fails in its own cell."""
    import editors
    from editors.compare import cell_of

    named = dict(pairs)
    model = named.get("model") or editors.choose_model(editors.task_of(editor))
    return cell_of(model, named.get("backend") or default_backend(), pairs)


def _table(names: Sequence[str], found: Sequence[Compared]) -> str:
    """Columns of settings, seconds and text, one line per candidate."""
    lines = []
    for name, compared in zip(names, found, strict=True):
        if compared.error:
            lines.append((name, "-", f"failed: {compared.error}"))
        for result in compared.results:
            text = " ".join(result.text.split())
            lines.append((name, f"{result.seconds:.1f}", text))
    rows = [("SETTINGS", "SECONDS", "TEXT"), *lines]
    wide = [max(len(row[i]) for row in rows) for i in (0, 1)]
    return "".join(f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c}\n" for a, b, c in rows)
