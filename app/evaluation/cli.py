"""`elf-eval`: sampling, scoring, sweeps and reports. Each command imports what it needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from app.cli import Elf
from app.cli_edit import warn, write

_PATH = click.Path(path_type=Path)
_BACKEND = click.option("--backend", type=click.Choice(["jax", "torch"]), help="Default: any.")
_DATA = click.option("--data", type=_PATH, help="Corpus directory. Default: $ELF_DATA.")
_SEED = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
_SPLIT = click.option(
    "--split", type=click.Choice(["test", "validation"]), default="validation", show_default=True
)


class Evaluation(Elf):
    """`elf`'s handling of failures, without its late `models`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return click.Group.list_commands(self, ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return click.Group.get_command(self, ctx, cmd_name)


@click.group(cls=Evaluation, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="elf-studio", prog_name="elf-eval")
def cli() -> None:
    """Measure models: samples, scores, sweeps, figures. Scoring never needs the model again."""


def _scoring_options(command: Callable[..., None]) -> Callable[..., None]:
    from functools import reduce

    options = (
        click.option("--metrics", help="Comma-separated. Default: all that load no model."),
        click.option(
            "--scorer", "scorers", multiple=True, metavar="NAME",
            help="For ppl: ngram, bundled, gpt2-large, a directory or a hub name; repeatable.",
        ),
        click.option("--tokens", default="starter", help="For entropy: a model, or lm:NAME."),
        click.option("--training-limit", type=click.IntRange(min=1), help="Texts the n-gram sees."),
        click.option("--resamples", type=click.IntRange(min=10), default=1000, show_default=True),
        _DATA,
        _SEED,
    )  # fmt: skip
    return reduce(lambda made, option: option(made), reversed(options), command)


@cli.command()
@click.option("--generated", "-g", multiple=True, required=True, type=_PATH, help="Repeatable.")
@click.option("--references", "-r", multiple=True, type=_PATH, help="Rows of id, output, input.")
@click.option("--against", multiple=True, type=_PATH, help="A second system, for a paired test.")
@click.option("--by-group", is_flag=True, help="Also score each group of the rows, such as tiers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@_scoring_options
def score(
    generated: tuple[Path, ...],
    references: tuple[Path, ...],
    against: tuple[Path, ...],
    by_group: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Score files of generated texts, with 95 % bootstrap intervals.

    Rows hold id and generated. References are matched by id, or are in the rows themselves, as
    `elf-eval generate` writes them.
    """
    from app.evaluation import rows, scoring
    from app.evaluation.tables import score_table

    texts = rows.match(generated, references)
    metrics = scoring.choose(given["metrics"], texts)
    tools = _tools(given)
    other = None
    if against:
        named = ", ".join(map(str, against))
        other = rows.same_order(texts, rows.match(against, references), named)
    found = scoring.score(texts, metrics, tools, other)
    if by_group:
        groups = scoring.by_group(texts)
        found["groups"] = {name: scoring.score(t, metrics, tools) for name, t in groups.items()}
    write(json.dumps(found, ensure_ascii=False) + "\n" if as_json else score_table(found))
    if found["references_without_generation"] and not as_json:
        warn(f"{found['references_without_generation']} references have no generation")


def _tools(given: dict[str, Any]) -> Any:
    from app.evaluation import scoring
    from app.evaluation.data import data_directory, training_texts
    from app.evaluation.scorers import load_scorer, tokens_of

    data = data_directory(given["data"])

    def maker(name: str) -> Callable[[], Any]:
        return lambda: load_scorer(name, data, given["training_limit"])

    return scoring.Tools(
        ids=tokens_of(given["tokens"]),
        scorers=[maker(name) for name in given["scorers"]],
        training=lambda: training_texts(data),
        resamples=given["resamples"],
        seed=given["seed"],
    )


@cli.command()
@click.option("--task", help="unconditional, prefix, infill, rewrite, translate, summarise, ...")
@click.option("--protocol", help="A published one: owt-32-sde, owt-64-sde, de-en, xsum, few-step.")
@click.option("--model", "-m", default="starter", show_default=True, help="Name or directory.")
@click.option("--system", default="model", show_default=True, help="model, copy or unigram.")
@click.option("--out", "-o", required=True, type=_PATH, help="JSONL file; a folder for a grid.")
@click.option("--inputs", type=_PATH, help="JSONL of id, input, output instead of the corpus.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Inputs. Default: 100.")
@click.option("--samples", type=click.IntRange(min=1), default=1, help="Answers to each input.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="steps, gamma, ...")
@click.option("--grid", "axes", multiple=True, metavar="NAME=A,B", help="Every combination.")
@click.option("--config", type=_PATH, help="YAML of the same names; options win.")
@click.option("--shard", default="0/1", metavar="K/N", help="Only every N-th sample, from K.")
@click.option("--devices", default="1", help="JAX devices to share the samples: a number or all.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
@_BACKEND
@_SPLIT
@_DATA
@_SEED
def generate(**given: Any) -> None:
    """Sample a model on a task: one JSONL row per sample. Run again, it goes on where it ended."""
    from app.evaluation.command import run_generate

    run_generate(given, click.get_current_context())


@cli.command()
@click.argument("config", type=_PATH)
@click.option("--only", multiple=True, help="Names of sweeps in the file. Default: all.")
@click.option("--samples", type=_PATH, default=Path("runs/evaluation"), help="Folder of samples.")
@click.option("--results", type=_PATH, default=Path("docs/results"), show_default=True)
@_DATA
def sweep(
    config: Path, only: tuple[str, ...], samples: Path, results: Path, data: Path | None
) -> None:
    """Sample and score the grids of a YAML file; one result file each."""
    from app.evaluation.measure import run_sweeps

    run_sweeps(config, only, samples, results, data)


@cli.command()
@click.option("--results", type=_PATH, default=Path("docs/results"), show_default=True)
@click.option("--page", type=_PATH, default=Path("docs/results.md"), show_default=True)
def report(results: Path, page: Path) -> None:
    """Write the page of results and its figures, out of the result files."""
    from app.evaluation.report import report as write_report

    for file in write_report(results, page):
        write(f"{file}\n")


_FOLDER = click.option(
    "--samples", type=_PATH, help="Folder of samples, to continue. Default: runs/evaluation/MODEL."
)


@cli.command()
@click.argument("model")
@click.option("--limit", "-n", type=click.IntRange(min=2), default=64, show_default=True)
@click.option("--only", multiple=True, help="Tasks: draft, infill, translate, ... Default: all.")
@click.option("--quick", is_flag=True, help="A few points of few steps: to see that it works.")
@click.option("--training-limit", type=click.IntRange(min=1), default=200_000, show_default=True)
@_BACKEND
@_SPLIT
@_DATA
@_SEED
@_FOLDER
def calibrate(**given: Any) -> None:
    """Measure MODEL over a grid and write the calibration.json of its quality slider."""
    from app.evaluation.measure import run_calibrate

    write(f"{run_calibrate(given)}\n")


@cli.command()
@click.argument("model")
@click.option("--limit", "-n", type=click.IntRange(min=2), default=64, show_default=True)
@click.option(
    "--only", multiple=True, help="Parts: translate, summarise, modernise, infill, drafts."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="steps, gamma, ...")
@click.option("--scorer", default="ngram", show_default=True, help="Judge of drafts and infills.")
@click.option("--training-limit", type=click.IntRange(min=1), default=200_000, show_default=True)
@click.option("--results", type=_PATH, help="Result file. Default: docs/results/suite-MODEL.json.")
@_BACKEND
@_SPLIT
@_DATA
@_SEED
@_FOLDER
def suite(**given: Any) -> None:
    """Measure MODEL on everything: a result file, and its tables as Markdown on stdout."""
    from app.evaluation.measure import run_suite_command

    write(run_suite_command(given))


@cli.command()
@click.argument("model")
@click.argument("opponent")
@click.option("--limit", "-n", type=click.IntRange(min=2), default=64, show_default=True)
@click.option("--only", multiple=True, help="Parts: translate, summarise, modernise, drafts.")
@click.option("--steps", default="1,2,4,8,16,32,64", show_default=True, help="Of the ELF model.")
@click.option("--scorer", default="ngram", show_default=True, help="Judge of drafts.")
@click.option("--training-limit", type=click.IntRange(min=1), default=200_000, show_default=True)
@click.option("--results", type=_PATH, help="Result file. Default: docs/results/duel-....json.")
@click.option("--samples", type=_PATH, help="Folder of samples, to continue.")
@_BACKEND
@_SPLIT
@_DATA
@_SEED
def duel(**given: Any) -> None:
    """Measure the ELF model MODEL against the autoregressive OPPONENT, by score and by time."""
    from app.evaluation.measure import run_duel_command

    write(run_duel_command(given))


def main() -> None:
    """The `elf-eval` script."""
    cli.main(prog_name="elf-eval")
