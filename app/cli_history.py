"""`elf history`: past results, found, marked, moved, made again and removed."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app import cli_edit
from app.cli_edit import warn, write
from elf_engine.errors import ElfError

if TYPE_CHECKING:
    from app.records import Filter, Generation
    from app.store import Store

DIFFERENT = 1
_BATCH = 200
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}

_FILTERS = (
    click.option("--editor", default="", help="Only results of this editor."),
    click.option("--model", default="", help="Only results of this model."),
    click.option("--tag", default="", help="Only results with this tag."),
    click.option("--starred", is_flag=True, help="Only starred results."),
    click.option("--preferred", is_flag=True, help="Only those preferred in a comparison."),
    click.option("--deleted", is_flag=True, help="The deleted results instead of the others."),
    click.option("--since", default="", metavar="DATE", help="Not before 2026-11-30 (UTC)."),
    click.option("--until", default="", metavar="DATE", help="Not after that day or time."),
)
_SHOWN = (
    click.option("--limit", type=int, default=20, show_default=True),
    click.option("--json", "as_json", is_flag=True, help="One JSON object per result and line."),
)


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def _shown(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SHOWN):
        command = option(command)
    return command


@click.group()
def history() -> None:
    """Past results. The beginning of an ID is enough."""


@history.command("list")
@_shown
@_filters
def history_list(limit: int, as_json: bool, **given: Any) -> None:
    """The newest results first."""
    _list(_wanted(given), limit, as_json)


@history.command()
@click.argument("words", nargs=-1, required=True)
@_shown
@_filters
def search(words: tuple[str, ...], limit: int, as_json: bool, **given: Any) -> None:
    """Results with all these WORDS in their input or text, in any case.

    A word is found inside others too. "In quotation marks" words must follow each other, which on
    a command line takes both kinds: '"the old house"'.
    """
    _list(replace(_wanted(given), text=" ".join(words)), limit, as_json)


@history.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(id: str, as_json: bool) -> None:
    """One result with all that reproduces it."""
    with _store() as store:
        item = store.get(id)
    if as_json:
        write(_as_json(item))
        return
    facts = asdict(item)
    for name in ("request", "input", "output"):
        del facts[name]
    for name, value in facts.items():
        if value not in (None, (), "") and value is not False:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            write(f"{name:<13} {shown}\n")
    write(f"\n{item.input}\n\n{item.output}\n")


@history.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--off", is_flag=True, help="Take the star off.")
def star(ids: tuple[str, ...], off: bool) -> None:
    """Star results, to find them again and to keep them from `prune`."""
    with _store() as store:
        for id in _full(store, ids):
            store.star(id, not off)


@history.command()
@click.argument("id")
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@click.option("--off", is_flag=True, help="Take the tags off.")
def tag(id: str, tags: tuple[str, ...], off: bool) -> None:
    """Give a result tags."""
    with _store() as store:
        (store.untag if off else store.tag)(store.get(id).id, *tags)


@history.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def delete(ids: tuple[str, ...]) -> None:
    """Put results aside: `undelete` brings them back, `prune --deleted` removes them."""
    with _store() as store:
        number = store.delete(*_full(store, ids))
    warn(f"{_results(number)} deleted; `elf history undelete` brings back")


@history.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def undelete(ids: tuple[str, ...]) -> None:
    """Bring deleted results back."""
    with _store() as store:
        warn(f"{_results(store.undelete(*_full(store, ids)))} brought back")


@history.command("export")
@click.argument("file", required=False)
@click.option("--format", "kind", type=click.Choice(["jsonl", "csv", "markdown"]))
@click.option("--all", "everything", is_flag=True, help="The deleted ones too.")
@_filters
def export_(file: str | None, kind: str | None, everything: bool, **given: Any) -> None:
    """Write results to FILE or stdout, oldest first.

    jsonl keeps everything and can be imported; csv is for spreadsheets, markdown for reading.
    Default: what FILE's ending says, else jsonl.
    """
    from app import store_formats

    endings = {ending: name for name, ending in store_formats.FORMATS.items()}
    kind = kind or endings.get(Path(file or "").suffix.lower(), "jsonl")
    wanted = _wanted(given)
    wanted = replace(wanted, deleted=None) if everything else wanted
    with _store() as store, _output(file) as put:
        for piece in store_formats.write(kind, store.export(wanted)):
            put(piece.encode("utf-8", "replace"))


@history.command("import")
@click.argument("file")
def import_(file: str) -> None:
    """Add the results of FILE, an export as jsonl; - is stdin.

    Ids are kept, so what is there already is left as it is. Nothing is added when a line is wrong.
    """
    from app.store_formats import read_jsonl

    try:
        with click.open_file(file, "rb") as source, _store() as store:
            done = store.take(read_jsonl(source))
    except OSError as error:
        raise ElfError(f"file '{file}' cannot be read: {error.strerror}") from error
    warn(f"{_results(done.added)} added, {done.known} already there")
    if done.unlinked:
        warn(f"{_results(done.unlinked)} came from others that are not in the file or here")


@history.command()
@click.argument("id")
@click.option("--model", "-m", help="Directory of the model, if it is not installed.")
def verify(id: str, model: str | None) -> int:
    """Make a result again and compare the texts byte by byte.

    Exit code 0 when identical, 1 when different (the difference is shown), 2 when it cannot be
    made again, because the model is not the same one for example.
    """
    from app import verify as again

    with _store() as store:
        found = store.get(id)
    import editors
    from elf_engine import model_dir

    request = again.request_again(found)
    names = [*model_dir.bundled(), *model_dir.installed()]
    name_of = lambda name: model_dir.load_config(model_dir.find(name)).name  # noqa: E731
    model = model or again.installed_as(found.model, names, name_of) or found.model
    engine = cli_edit.load_engine(model, found.backend, again.precision(found))
    again.check_model(found, engine.model_hash)
    (result,) = editors.edit(engine, request)
    verdict = again.compare(found, result.text)
    if verdict.identical:
        write(f"{found.id} identical\n")
        return 0
    warn(f"{found.id} is different" + (f": {verdict.changed}" if verdict.changed else ""))
    write(verdict.diff + ("" if verdict.diff.endswith("\n") else "\n"))
    return DIFFERENT


@history.command()
@click.option("--older-than", metavar="AGE", help="Made, or deleted, that long ago: 30d, 8w, 12h.")
@click.option("--deleted", is_flag=True, help="Only results that were deleted.")
@click.option("--keep-starred/--with-starred", default=True, help="Default: starred ones stay.")
@click.option("--yes", is_flag=True, help="Remove them. Without it they are only counted.")
def prune(older_than: str | None, deleted: bool, keep_starred: bool, yes: bool) -> None:
    """Remove results for good, which cannot be undone."""
    age = None if older_than is None else _age(older_than)
    with _store() as store:
        number = store.prune(age, deleted_only=deleted, keep_starred=keep_starred, dry_run=not yes)
    if yes:
        warn(f"{_results(number)} removed")
    else:
        warn(f"{_results(number)} would be removed; --yes removes")


@contextmanager
def _store() -> Iterator[Store]:
    try:
        from app.store import Store
    except ImportError as error:
        raise ElfError(f"history needs {error.name}; pip install -e '.[app]'") from error
    store = Store()
    try:
        yield store
    finally:
        store.close()


def _wanted(given: dict[str, Any]) -> Filter:
    from app.records import Filter

    return Filter(**given)


def _list(wanted: Filter, limit: int, as_json: bool) -> None:
    with _store() as store:
        found = store.list(limit=limit, wanted=wanted)
    for item in found:
        if as_json:
            write(_as_json(item))
            continue
        text = " ".join(item.output.split())
        text = text if len(text) <= 60 else text[:59] + "…"
        marks = "★ " * item.starred + "✓ " * item.preferred
        tags = "".join(f"  #{tag}" for tag in item.tags)
        where = f"{item.id}  {item.created_utc[:16]}  {item.editor:<9}  {item.model}"
        write(f"{where}  {marks}{text}{tags}\n")


def _as_json(item: Generation) -> str:
    return json.dumps(asdict(item), ensure_ascii=False) + "\n"


def _full(store: Store, ids: tuple[str, ...]) -> list[str]:
    return [store.get(id).id for id in ids]


def _results(number: int) -> str:
    return f"{number} result" + ("" if number == 1 else "s")


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    if match is None:
        raise ElfError(f"age '{text}' is none; give hours, days or weeks, such as 12h, 30d, 8w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@contextmanager
def _output(file: str | None) -> Iterator[Callable[[bytes], Any]]:
    """Where to write: stdout, or a file that is replaced only when all is written."""
    if file is None or file == "-":
        yield lambda data: click.echo(data, nl=False)
        return
    target = Path(file)
    made: str | None = None
    try:
        handle, made = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        with os.fdopen(handle, "wb") as out:
            yield out.write
        os.replace(made, target)
        made = None
    except OSError as error:
        raise ElfError(f"file '{file}' cannot be written: {error.strerror}") from error
    finally:
        if made is not None:
            with suppress(OSError):
                os.unlink(made)
