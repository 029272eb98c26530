"""`elf`: the command line. Heavy libraries are imported only by the command that needs them."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from typing import Any

import click

from app.cli_compare import compare
from app.cli_edit import edit_options, run_edit, warn, write
from app.cli_history import history
from app.cli_serve import accounts, serve
from elf_engine.errors import ElfError

INTERRUPTED = 130
PIPE_CLOSED = 141
BAD_INPUT = 2


class _NoReaderError(Exception):
    """No one reads what is written any more."""


class Elf(click.Group):
    """Loads `models` late, and ends every failure in one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "models"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "models":
            return super().get_command(ctx, cmd_name)
        from app.models_cmd import models

        return models

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click's, which writes --help here."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError as error:
            raise _NoReaderError from error

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, which would end a broken pipe with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _NoReaderError from error

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Exit 2 for bad input, 130 after Ctrl-C, 1 for a defect, end by SIGPIPE when no one
        reads; never a traceback."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        _open_closed_streams()
        try:
            result = run(*args, standalone_mode=False, **extra)
            sys.stdout.flush()  # here, where a full disk can still be told in one line
        except (_NoReaderError, BrokenPipeError):
            _end_by_pipe()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(BAD_INPUT)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except ElfError as error:
            _fail(str(error), BAD_INPUT)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                # What is still buffered would fail once more as the program ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                _fail(f"the output cannot be written: {error.strerror}", BAD_INPUT)
            if os.environ.get("ELF_DEBUG"):
                raise
            what = f"{type(error).__name__}: {error}"
            _fail(f"a defect, not your input ({what}); ELF_DEBUG=1 shows where", 1)
        sys.exit(result if isinstance(result, int) else 0)


def _open_closed_streams() -> None:
    """A standard stream that the caller closed is None, and its number would go to the next file
    that is opened: perhaps the history, into which a library would then write its warnings."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _end_by_pipe() -> None:
    """End as any program does whose reader has gone (`| head`): by SIGPIPE, without a word."""
    # What is still buffered would complain once more as the program ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    sys.exit(PIPE_CLOSED)


def _fail(message: str, code: int) -> None:
    warn(message)
    sys.exit(code)


@click.group(cls=Elf, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="elf-studio", prog_name="elf")
def cli() -> None:
    """Edit text with an Embedded Language Flow model."""


@cli.command()
@edit_options
@click.option("--length", type=int, default=0, help="Tokens to write; 0 lets the model choose.")
@click.option("--words", type=int, help="Words to write, instead of tokens.")
def draft(words: int | None, **given: Any) -> None:
    """Continue TEXT, or write from nothing. TEXT itself comes back unchanged."""
    if words is not None and given["length"]:
        raise ElfError("give the length in tokens (--length) or in words (--words), not both")
    if words is not None:
        given |= {"length": words, "unit": "words"}
    run_edit("draft", given, needs_text=False)


@cli.command()
@edit_options
@click.option("--span", "spans", multiple=True, metavar="START:STOP", help="A gap; repeatable.")
@click.option("--length", default="0", metavar="N|MIN-MAX", help="Tokens of each span's gap.")
def infill(length: str, **given: Any) -> None:
    """Fill the gaps of TEXT: [[n]] or [[min-max]] tokens, [[]] as the model likes.

    \\[[ stands for the brackets themselves. Everything outside the gaps comes back unchanged.
    With --span the gaps are those characters, and brackets mean nothing.
    """
    low, dash, high = length.partition("-")
    if not re.fullmatch(r"\d{1,18}(-\d{1,18})?", length):
        raise ElfError(f"length '{length[:40]}' is neither a number nor a range such as 2-6")
    if not given["spans"] and length != "0":
        raise ElfError("--length goes with --span; in the text write the gap as [[2-6]]")
    given |= {"length": int(high or low), "least": int(low) if dash else 0}
    run_edit("infill", given)


_span_option = click.option(
    "--span",
    "spans",
    multiple=True,
    metavar="START:STOP",
    help="Characters to work on, the others stay; repeatable. Default: every sentence.",
)


@cli.command()
@edit_options
@click.option("--strength", type=float, default=0.5, show_default=True, help="0 same, 1 anew.")
@_span_option
@click.option(
    "--lock", "locks", multiple=True, metavar="WORD|START:STOP", help="Kept as it is; repeatable."
)
@click.option("--style", type=click.Choice(["modern"]), help="modern: out of archaic English.")
def rewrite(**given: Any) -> None:
    """Say TEXT, or spans of it, in other words."""
    given["style"] = given["style"] or ""
    run_edit("rewrite", given)


@cli.command()
@edit_options
@_span_option
def translate(**given: Any) -> None:
    """Translate German TEXT to English."""
    run_edit("translate", given)


@cli.command()
@edit_options
@_span_option
def summarise(**given: Any) -> None:
    """Summarise TEXT."""
    run_edit("summarise", given)


@cli.command()
@edit_options
@_span_option
def modernise(**given: Any) -> None:
    """Turn archaic English TEXT into modern English."""
    run_edit("modernise", given)


cli.add_command(compare)
cli.add_command(history)
cli.add_command(serve)
cli.add_command(accounts)


@cli.command()
def version() -> None:
    """Versions of ELF Studio and of what it runs on."""
    import platform
    from importlib import metadata

    for name in ("elf-studio", "torch", "jax", "flax", "numpy", "sentencepiece", "gradio"):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "not installed"
        write(f"{name:<14} {found}\n")
    write(f"{'python':<14} {platform.python_version()}\n")


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete `elf`.

    \b
    bash  eval "$(elf completion bash)"          in ~/.bashrc
    zsh   eval "$(elf completion zsh)"           in ~/.zshrc
    fish  elf completion fish | source           in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    if made is None:
        raise ElfError(f"no completion for '{shell}'; use bash, zsh or fish")
    write(made(cli, {}, "elf", "_ELF_COMPLETE").source() + "\n")


def main() -> None:
    """The `elf` script."""
    cli.main(prog_name="elf")
