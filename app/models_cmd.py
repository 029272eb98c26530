"""`elf models`: list, show, convert and fetch models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.group()
def models() -> None:
    """List, show, convert and fetch models."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per model.")
def list_models(as_json: bool) -> None:
    """Bundled, installed and published models."""
    rows = _rows()
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    header = {"name": "NAME", "size": "SIZE", "task": "TASK", "where": "WHERE"}
    widths = {
        key: max(len(row[key]) for row in [header, *rows]) for key in ("name", "size", "task")
    }
    for row in [header, *rows]:
        cells = [row[key].ljust(width) for key, width in widths.items()]
        click.echo("  ".join([*cells, row["where"]]))


@models.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print config.json alone.")
def show(name: str, as_json: bool) -> None:
    """Configuration and model card of NAME, a model name or directory."""
    from elf_engine import model_dir
    from elf_engine.config import to_dict
    from elf_engine.published.catalogue import CATALOGUE

    if name in CATALOGUE and name not in model_dir.installed():
        _show_published(name, as_json)
        return
    directory = model_dir.find(name)
    config = model_dir.load_config(directory)
    text = json.dumps(to_dict(config), indent=2, ensure_ascii=False)
    if as_json:
        click.echo(text)
        return
    click.echo(f"{config.name} in {directory}")
    click.echo(f"hash {model_dir.model_hash(directory)[:12]}")
    click.echo(f"encoder {'yes' if (directory / model_dir.ENCODER).exists() else 'none'}\n")
    click.echo(text)
    card = directory / model_dir.CARD
    if card.is_file():
        click.echo("\n" + card.read_text("utf-8", errors="replace").rstrip())


@models.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--name", help="Model name; a published one brings its settings.")
@click.option("--encoder", type=click.Path(path_type=Path), help="T5 pickle, file or directory.")
@click.option("--tokenizer", help="Directory or Hub name of the Hugging Face tokenizer.")
@click.option("--task", type=click.Choice(["owt", "de-en", "xsum"]), help="What it was trained on.")
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens of a row.")
@click.option("--max-source", type=click.IntRange(min=0), help="Most source tokens.")
@click.option("--latent-mean", type=float, default=0.0, show_default=True)
@click.option("--latent-std", type=float, default=0.2, show_default=True)
@click.option("--noise-scale", type=float, default=2.0, show_default=True)
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32",
    show_default=True, help="Stored type.",
)  # fmt: skip
def convert(source: Path, target: Path, tokenizer: str | None, **options: Any) -> None:
    """Turn the published checkpoint SOURCE into the model directory TARGET.

    SOURCE is an Orbax directory, a Flax msgpack file, a torch file, or a directory of such
    checkpoint_<step>.
    """
    from elf_engine.published import hub
    from elf_engine.published.convert import Options
    from elf_engine.published.convert import convert as convert_checkpoint

    directory = hub.tokenizer_directory(tokenizer) if tokenizer else None
    saved = convert_checkpoint(source, target, Options(tokenizer=directory, **options))
    click.echo(_saved(saved))


@models.command()
@click.argument("name")
@click.option("--repo", help="Another owner/name on the Hub.")
def pull(name: str, repo: str | None) -> None:
    """Fetch the published model NAME from the Hugging Face Hub."""
    from elf_engine.published import hub

    click.echo(_saved(hub.pull(name, repo)))


def _rows() -> list[dict[str, str]]:
    from elf_engine import model_dir
    from elf_engine.published.catalogue import CATALOGUE, PARAMETERS

    rows = [_local(name, path, "bundled") for name, path in model_dir.bundled().items()]
    installed = model_dir.installed()
    rows += [_local(name, path, str(path)) for name, path in installed.items()]
    for model in CATALOGUE.values():
        if model.name not in installed:
            where = f"elf models pull {model.name}"
            size = PARAMETERS[model.size]
            rows.append({"name": model.name, "size": size, "task": model.task, "where": where})
    return rows


def _local(name: str, path: Path, where: str) -> dict[str, str]:
    from app.model_facts import millions, parameters
    from elf_engine import model_dir
    from elf_engine.errors import ElfError

    try:
        config = model_dir.load_config(path)
    except ElfError as error:
        return {"name": name, "size": "-", "task": "broken", "where": f"{where}: {error}"}
    size, tasks = millions(parameters(config)), ", ".join(config.layout.tasks) or "none"
    return {"name": name, "size": size, "task": tasks, "where": where}


def _show_published(name: str, as_json: bool) -> None:
    from elf_engine.config import to_dict
    from elf_engine.published.catalogue import CATALOGUE, PARAMETERS

    model = CATALOGUE[name]
    facts = {
        "name": name,
        "size": PARAMETERS[model.size],
        "task": model.task,
        "repo": model.repo,
        "max_length": model.family.max_length,
        "defaults": {task: to_dict(spec) for task, spec in model.defaults().items()},
    }
    click.echo(json.dumps(facts, indent=2))
    if not as_json:
        click.echo(f"\nNot installed; fetch it with: elf models pull {name}")


def _saved(path: Path) -> str:
    from elf_engine import model_dir

    config = model_dir.load_config(path)
    encoder = "" if (path / model_dir.ENCODER).exists() else "; no encoder, it cannot read text"
    tokenizer = "" if (path / config.tokenizer.file).exists() else "; no tokenizer"
    return f"{config.name} is in {path}{encoder}{tokenizer}"
