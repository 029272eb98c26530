"""`elf-train`: train, resume, export. JAX is imported only by the command that needs it."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from elf_engine.errors import ElfError
from training import settings
from training.config import TrainConfig

BAD_INPUT, INTERRUPTED = 2, 130


class Trainer(click.Group):
    """Ends every failure in one line and an exit code."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Exit 2 for bad input, 130 after Ctrl-C, 1 for a defect; never a traceback."""
        run: Any = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            result = run(*args, standalone_mode=False, **extra)
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
            if os.environ.get("ELF_DEBUG"):
                raise
            text = (str(error).splitlines() or [""])[0]
            what = f"{type(error).__name__}: {text}"
            _fail(f"a defect, not your input ({what}); ELF_DEBUG=1 shows where", 1)
        sys.exit(result if isinstance(result, int) else 0)


def _fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(code)


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


SET = click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
CONFIG = click.option("--config", "name", metavar="NAME|FILE", help="A preset or a .yml file.")
DIRECTORY = click.argument("directory", type=click.Path(path_type=Path))
processes = _options(
    click.option("--distributed", is_flag=True, help="Several hosts, found through the cluster."),
    click.option(
        "--coordinator", metavar="HOST:PORT", help="Several processes: where process 0 is."
    ),
    click.option("--processes", "count", type=click.IntRange(1), help="How many processes."),
    click.option("--process", "index", type=click.IntRange(0), help="Which of them this is."),
)


@click.group(
    cls=Trainer,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="elf-studio", prog_name="elf-train")
@CONFIG
@SET
@processes
def cli(name: str | None, changes: tuple[str, ...], **hosts: Any) -> None:
    """Train an Embedded Language Flow model: elf-train --config NAME, from the encoder on.

    --set replaces any setting: --set optimizer.learning_rate=0.004 --set steps=500.
    """
    if click.get_current_context().invoked_subcommand is not None:
        if name or changes:
            raise ElfError("--config and --set go behind the command's name")
        return
    if not name:
        raise ElfError("say what to train: --config NAME, resume DIR or export DIR OUT")
    config = _start(settings.load(name, changes), hosts)
    from training.embeddings import ENCODER, make_encoder
    from training.loop import run
    from training.mesh import first_process, together

    if not (config.directory / ENCODER).exists() and first_process():
        click.echo(make_encoder(config))
    together("encoder")
    click.echo(f"trained {run(config)}")


@cli.command()
@DIRECTORY
@SET
@processes
def resume(directory: Path, changes: tuple[str, ...], **hosts: Any) -> None:
    """Go on from the newest whole checkpoint of run DIRECTORY.

    --set changes what may change in between: steps, optimizer.decay_from, mesh, save_minutes.
    """
    config = settings.change(_saved(directory), changes)
    config = _start(config, hosts)
    from training.loop import run

    click.echo(f"trained {run(config, resume=True)}")


@cli.command()
@DIRECTORY
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--card",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Model card to put beside the weights.",
)
@click.option("--defaults", metavar="NAME|FILE", help="Config whose sampling defaults to write.")
@click.option("--dtype", type=click.Choice(["float16", "bfloat16", "float32"]), default="float16")
def export(directory: Path, out: Path, card: Path | None, defaults: str | None, dtype: str) -> None:
    """Write the averaged weights of run DIRECTORY as the model directory OUT."""
    if _is_baseline(directory):
        from training.baselines.export import export as write_baseline

        text = card.read_text("utf-8") if card else ""
        click.echo(f"wrote {write_baseline(directory, out, text, dtype)}")
        return
    _start(_saved(directory), {})
    from training.export import export as write

    text = card.read_text("utf-8") if card else ""
    newer = settings.load(defaults) if defaults else None
    click.echo(f"wrote {write(directory, out, text, newer, dtype)}")


@cli.command()
@CONFIG
@SET
def encoder(name: str | None, changes: tuple[str, ...]) -> None:
    """Only pre-train (or fetch, or draw) the encoder of a config, into its run's directory."""
    if not name:
        raise ElfError("say which: elf-train encoder --config NAME")
    config = _start(settings.load(name, changes), {})
    from training.embeddings import make_encoder

    click.echo(make_encoder(config))


@cli.command()
@DIRECTORY
@click.option("--batches", type=click.IntRange(1), default=40, show_default=True)
def evaluate(directory: Path, batches: int) -> None:
    """Validation losses of run DIRECTORY, per task, as one JSON object."""
    if _is_baseline(directory):
        from training.baselines.export import evaluate as evaluate_baseline

        click.echo(json.dumps(evaluate_baseline(directory, batches), indent=2))
        return
    _start(_saved(directory), {})
    from training.evaluate import evaluate_run

    click.echo(json.dumps(evaluate_run(directory, batches), indent=2))


@cli.command()
@CONFIG
@SET
@click.option("--minutes", type=click.FloatRange(min=0.1), required=True, help="In all.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where results go.")
def accelerator(name: str | None, changes: tuple[str, ...], minutes: float, out: Path) -> None:
    """Train for MINUTES on this machine's accelerator: pilot check, training, losses, samples, and
    the model in files under 16 MiB (put together again by: elf-train join OUT MODEL)."""
    config = _start(settings.load(name or "studio", changes), {})
    from training.accelerator import train_for

    click.echo(train_for(config, minutes, out))


@cli.command()
@CONFIG
@SET
def baseline(name: str | None, changes: tuple[str, ...]) -> None:
    """Train an autoregressive baseline on the CPU; started again, it goes on where it was."""
    from training.baselines import config as baselines
    from training.baselines.run import run

    if not name:
        have = ", ".join(baselines.presets())
        raise ElfError(f"say which: elf-train baseline --config NAME; there is {have}")
    click.echo(f"trained {run(baselines.load(name, changes))}")


@cli.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def join(source: Path, out: Path) -> None:
    """Put the model parts in SOURCE together as the model directory OUT."""
    from training.parts import join as put_together

    click.echo(f"wrote {put_together(source, out)}")


@cli.command()
@click.argument("name", required=False)
def presets(name: str | None) -> None:
    """The presets, or every setting of preset NAME."""
    if name is None:
        click.echo("\n".join(settings.presets()))
        return
    import yaml

    config = json.loads(json.dumps(dataclasses.asdict(settings.load(name))))
    click.echo(yaml.safe_dump(config, sort_keys=False), nl=False)


def _is_baseline(directory: Path) -> bool:
    return (directory / "state.safetensors").is_file()


def _saved(directory: Path) -> TrainConfig:
    from training.loop import saved_config

    return dataclasses.replace(
        saved_config(directory), name=directory.absolute().name, runs=str(directory.parent)
    )


def _start(config: TrainConfig, hosts: dict[str, Any]) -> TrainConfig:
    """Join the other processes, and keep compiled steps: a resumed run starts at once."""
    import absl.logging
    import jax

    from training.mesh import Processes, connect

    absl.logging.set_verbosity("error")  # Orbax tells of every directory that it looks at

    compiled = (Path(config.runs) / "compiled").absolute()
    jax.config.update("jax_compilation_cache_dir", str(compiled))
    asked = hosts.pop("distributed", False)
    if asked or any(value is not None for value in hosts.values()):
        connect(Processes(**hosts))
    return config


def main() -> None:
    """The entry point."""
    cli()


if __name__ == "__main__":
    main()
