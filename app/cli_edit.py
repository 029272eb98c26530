"""What every editing command shares: options, input, the run, output and history."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elf_engine.errors import ElfError

if TYPE_CHECKING:
    from editors.request import EditRequest, EditResult

# Options that fill a SampleSpec: command line name -> its field.
_SETTINGS = ("steps", "sampler", "gamma", "guidance", "condition_guidance", "grid", "seed")

_OPTIONS = (
    click.argument("text", required=False),
    click.option("--file", "-f", metavar="PATH", help="Read the text from a file; - is stdin."),
    click.option("--model", "-m", default="starter", show_default=True, help="Name or directory."),
    click.option("--backend", type=click.Choice(["jax", "torch"]), help="Default: what is there."),
    click.option("--steps", type=int, help="Network steps, 1 to 1000."),
    click.option("--sampler", type=click.Choice(["ode", "sde"])),
    click.option("--gamma", type=float, help="Noise put back per unit time by the SDE."),
    click.option("--guidance", type=float, help="Self-conditioning guidance, 0 to 100."),
    click.option("--condition-guidance", type=float, help="Condition guidance, 0 to 100."),
    click.option("--grid", type=click.Choice(["uniform", "logit-normal", "quantile"])),
    click.option(
        "--seed", type=int, help="Fixes the result; candidate i is the same for any count."
    ),
    click.option("--count", "-n", type=int, default=1, show_default=True, help="Candidates."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object per result and line."),
    click.option("--no-history", is_flag=True, help="Do not save the results."),
)


def edit_options(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments and options all editors take. Unset ones take the model's defaults."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_edit(editor: str, given: dict[str, Any], *, needs_text: bool = True) -> None:
    """Run one editing command with the values click parsed; results go to stdout.

    What is left of `given` after the shared options are fields of EditRequest.
    """
    text = read_text(given.pop("text"), given.pop("file"), needs_text)
    from editors.request import EditRequest
    from elf_engine.config import SampleSpec

    settings = {name: given.pop(name) for name in _SETTINGS}
    settings = {name: value for name, value in settings.items() if value is not None}
    SampleSpec(**settings)  # refuse what is out of range before seconds of loading
    model, backend = given.pop("model"), given.pop("backend") or default_backend()
    as_json, keep = given.pop("as_json"), not given.pop("no_history")
    request = EditRequest(editor=editor, text=text, **given)
    engine = load_engine(model, backend)
    request = replace(request, settings=replace(engine.defaults(editor), **settings))
    results = list(_with_progress(engine, request))
    for number, result in enumerate(results):
        kept = _keep(result, request) if keep else None
        if as_json:
            write(json.dumps(_as_json(result, kept), ensure_ascii=False) + "\n")
        else:
            _write_text(result, number)


def load_engine(model: str, backend: str) -> Any:
    """The engine, imported only now. Raises ElfError when model or backend is missing."""
    from elf_engine.pipeline import Engine

    return Engine.load(model, backend=backend)


def default_backend() -> str:
    """torch if it is installed, else jax."""
    for name in ("torch", "jax"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise ElfError("neither torch nor jax is installed; run: pip install -e '.[torch]'")


def read_text(argument: str | None, file: str | None, needed: bool) -> str:
    """The text from the argument, `file` or stdin, unchanged. Raises ElfError for bytes that are
    not UTF-8, an unreadable file, or no text where one is `needed`."""
    if argument is not None and file is not None:
        raise ElfError("give the text as an argument or with --file, not both")
    if argument is not None and argument != "-":
        return _argument(argument)
    if file is not None and file != "-":
        try:
            return _decode(Path(file).read_bytes(), f"file '{file}'")
        except OSError as error:
            raise ElfError(f"file '{file}' cannot be read: {error.strerror}") from error
    if argument is None and file is None and (sys.stdin is None or sys.stdin.isatty()):
        if needed:
            raise ElfError("there is no text; give it as an argument, with --file or on stdin")
        return ""
    return _decode(sys.stdin.buffer.read(), "stdin")


def _argument(text: str) -> str:
    # Bytes the shell passed that are not UTF-8 arrive as lone surrogates; name the byte.
    try:
        return _decode(os.fsencode(text), "the argument")
    except UnicodeEncodeError:
        return text  # a surrogate of another origin, which the editor refuses


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ElfError(
            f"{where} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; "
            "save it as UTF-8"
        ) from error


def _with_progress(engine: Any, request: EditRequest) -> Iterator[EditResult]:
    """The results; a bar on stderr meanwhile, if that is a terminal."""
    import editors
    from editors.request import EditResult

    items = editors.run(engine, request)
    if not sys.stderr.isatty():
        yield from (item for item in items if isinstance(item, EditResult))
        return
    with click.progressbar(length=1, label=request.editor, file=sys.stderr) as bar:
        results = []
        for item in items:
            if isinstance(item, EditResult):
                results.append(item)
            else:
                bar.length = item.steps
                bar.update(item.step - bar.pos)
    yield from results


def _keep(result: EditResult, request: EditRequest) -> str | None:
    """Save the result; a failure costs a warning, never the text."""
    try:
        from app.store import Store
    except ImportError as error:
        warn(f"not saved: {error.name} is missing; pip install -e '.[app]', or --no-history")
        return None
    try:
        return Store().add(result, request)
    except ElfError as error:
        warn(f"not saved: {error}")
        return None


def _as_json(result: EditResult, kept: str | None) -> dict[str, Any]:
    fields = ("text", "seed", "index", "model", "backend", "settings", "seconds", "warnings")
    line = {name: getattr(result, name) for name in fields}
    return line | ({"id": kept} if kept else {})


def _write_text(result: EditResult, number: int) -> None:
    for warning in result.warnings:
        warn(warning)
    end = "" if result.text.endswith("\n") else "\n"
    write(("\n" if number else "") + result.text + end)


def write(text: str) -> None:
    """Text to stdout as UTF-8 whatever the locale, line ends untouched."""
    click.echo(text.encode("utf-8"), nl=False)


def warn(message: str) -> None:
    """One line to stderr."""
    click.echo(f"elf: {' '.join(message.split())}", err=True)
