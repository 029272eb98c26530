"""What every editing command shares: options, input, the run, output and history."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elf_engine.errors import ElfError

if TYPE_CHECKING:
    from editors.request import EditRequest, EditResult, Ranges

# Characters of a text that takes a while to lay out.
_LONG = 100_000

# Options that fill a SampleSpec: command line name -> its field.
_SETTINGS = (
    *("steps", "sampler", "gamma", "guidance", "condition_guidance", "grid", "seed", "resample"),
)

_OPTIONS = (
    click.argument("text", required=False),
    click.option("--file", "-f", metavar="PATH", help="Read the text from a file; - is stdin."),
    click.option("--model", "-m", help="Name or directory. Default: the one made for the task."),
    click.option("--backend", type=click.Choice(["jax", "torch"]), help="Default: what is there."),
    click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32"),
    click.option("--quality", type=float, help="0 most varied to 1 most likely; options win."),
    click.option("--steps", type=int, help="Network steps, 1 to 1000."),
    click.option("--sampler", type=click.Choice(["ode", "sde"])),
    click.option("--gamma", type=float, help="Noise put back per unit time by the SDE."),
    click.option("--guidance", type=float, help="Self-conditioning guidance, 0 to 100."),
    click.option("--condition-guidance", type=float, help="Condition guidance, 0 to 100."),
    click.option("--grid", type=click.Choice(["uniform", "logit-normal", "quantile"])),
    click.option(
        "--seed", type=int, help="Fixes the result; candidate i is the same for any count."
    ),
    click.option("--resample", type=int, help="Times each step is run again after a jump back."),
    click.option("--count", "-n", type=int, default=1, show_default=True, help="Candidates."),
    click.option("--repeats", is_flag=True, help="Do not replace equal candidates by others."),
    click.option("--rank", type=click.Choice(["distance", "fit"]), help="Default: by number."),
    click.option("--diff", is_flag=True, help="Show the changes instead of the text."),
    click.option("--trajectory", is_flag=True, help="Also give the text after every step."),
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
    import editors
    from elf_engine.config import SampleSpec

    knobs = {name: given.pop(name) for name in _SETTINGS}
    knobs = {name: value for name, value in knobs.items() if value is not None}
    SampleSpec(**knobs)  # refuse what is out of range before seconds of loading
    model, backend, dtype = (given.pop(name) for name in ("model", "backend", "dtype"))
    if model == "":
        raise ElfError("--model is empty; name a model of `elf models list` or a directory")
    shown = _Shown(**{name: given.pop(name) for name in ("as_json", "diff", "trajectory")})
    keep, distinct = not given.pop("no_history"), not given.pop("repeats")
    given["rank"] = given["rank"] or "sample"
    if "spans" in given:
        given["spans"] = spans_of(given["spans"])
    if "locks" in given:
        given["locks"] = locks_of(text, given["locks"], given["spans"])
    request = editors.EditRequest(
        editor, text, distinct=distinct, texts_every_step=shown.trajectory, **given
    )
    task = editors.task_of(editor, request.style)
    model = model or editors.choose_model(task)
    engine = load_engine(model, backend or default_backend(), dtype)
    kind = "modernise" if task == "modernise" else editor
    request = replace(request, settings=editors.settings(engine, kind, request.quality, **knobs))
    number = done = 0
    for item in _with_progress(engine, request):
        if isinstance(item, str):
            done += shown.write_part(item)
            continue
        if dtype != "float32":  # the texts differ by it, so verifying needs to know
            item = replace(item, settings=item.settings | {"dtype": dtype})
        kept = _keep(item, request) if keep else None
        shown.write(item, request, number, kept, done)
        number += 1


def _span(text: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d{1,18}:\d{1,18}", text):
        raise ElfError(f"span '{text[:40]}' is not START:STOP, such as 4:9")
    start, stop = map(int, text.split(":"))
    return start, stop


def spans_of(given: tuple[str, ...]) -> Ranges:
    """Ranges written as START:STOP."""
    return tuple(_span(span) for span in given)


def locks_of(text: str, given: tuple[str, ...], spans: Ranges) -> Ranges:
    """Ranges given as such, or the places of words."""
    from editors import find_words

    found: list[tuple[int, int]] = []
    for lock in given:
        is_range = re.fullmatch(r"[0-9]+:[0-9]+", lock)
        found += [_span(lock)] if is_range else find_words(text, lock, spans)
    return tuple(found)


def load_engine(model: str, backend: str, dtype: str = "float32") -> Any:
    """The engine, imported only now. Raises ElfError when model or backend is missing."""
    from elf_engine.pipeline import Engine

    return Engine.load(model, backend=backend, dtype=dtype)


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


def _with_progress(engine: Any, request: EditRequest) -> Iterator[EditResult | str]:
    """The results as they are known, and before that of a long text its parts. Meanwhile a bar on
    stderr, if that is a terminal; a text that goes to the terminal too waits for its end."""
    import editors
    from editors.request import EditResult

    bar = sys.stderr.isatty()
    if bar and len(request.text) > _LONG:
        warn(f"reading {len(request.text)} characters")
    items = editors.run(engine, request)
    if not bar:
        yield from (i if isinstance(i, EditResult) else i.settled for i in items)
        return
    waiting: list[EditResult | str] = []
    waits = sys.stdout.isatty()
    with click.progressbar(length=1, label=request.editor, file=sys.stderr) as drawn:
        for item in items:
            if not isinstance(item, EditResult):
                drawn.length = item.steps
                drawn.update(item.step - drawn.pos)
            known = item if isinstance(item, EditResult) else item.settled
            if waits:
                waiting.append(known)
            else:
                yield known
    yield from waiting


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


@dataclass(frozen=True)
class _Shown:
    """How results are written."""

    as_json: bool
    diff: bool
    trajectory: bool

    def write_part(self, text: str) -> int:
        """The next part of a long result to stdout, if the text alone is wanted; its length."""
        if self.as_json or self.diff or self.trajectory or not text:
            return 0
        write(text)
        return len(text)

    def write(
        self, result: EditResult, request: EditRequest, number: int, kept: str | None, done: int = 0
    ) -> None:
        """Result `number` to stdout, whose first `done` characters are there already, and what
        there is to say about it to stderr."""
        if self.as_json:
            line = as_json(result) | ({"id": kept} if kept else {})
            write(json.dumps(line, ensure_ascii=False) + "\n")
            return
        from editors import show_changes

        for warning in result.warnings:
            warn(warning)
        if result.scores and (self.diff or request.count > 1 or request.rank != "sample"):
            warn(f"candidate {result.index}: {_scores(result)}")
        write("\n" if number else "")
        for step, text in enumerate(result.trajectory, 1):
            write(f"{step}/{len(result.trajectory)} {' '.join(text.split())}\n")
        if self.diff:
            write("".join(line + "\n" for line in show_changes(result.input, result.changes)))
        else:
            write(result.text[done:] + ("" if result.text.endswith("\n") else "\n"))


def _scores(result: EditResult) -> str:
    names = {"chrf": "chrF", "word_edits": "word edits", "fit": "fit"}
    return ", ".join(f"{names[name]} {value:g}" for name, value in result.scores.items())


def as_json(result: EditResult) -> dict[str, Any]:
    """What --json prints of a result."""
    fields = ("text", "seed", "index", "model", "model_hash", "backend", "settings", "seconds")
    line = {name: getattr(result, name) for name in (*fields, "warnings")}
    line["changes"] = [asdict(change) for change in result.changes]
    line |= {"scores": result.scores} if result.scores else {}
    return line | ({"trajectory": result.trajectory} if result.trajectory else {})


def write(text: str) -> None:
    """Text to stdout as UTF-8 whatever the locale, line ends untouched."""
    click.echo(text.encode("utf-8"), nl=False)


def warn(message: str) -> None:
    """One line to stderr."""
    click.echo(f"elf: {' '.join(message.split())}", err=True)
