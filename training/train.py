"""Train, resume, export: `python -m training.train --config starter`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from elf_engine.errors import ElfError
from training import config as configs


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    main.add_argument("--config", help="name in training/configs, or a .yml file: a fresh run")
    actions = main.add_subparsers(dest="action")
    resume = actions.add_parser("resume", help="go on from a run's last checkpoint")
    resume.add_argument("directory", type=Path)
    resume.add_argument("--steps", type=int, help="a new total number of steps")
    resume.add_argument("--decay-from", type=int, help="step from which the rate falls")
    export = actions.add_parser("export", help="write a run's averaged weights as a model")
    export.add_argument("directory", type=Path)
    export.add_argument("out", type=Path)
    export.add_argument("--card", type=Path, help="model card to put beside the weights")
    export.add_argument("--defaults", help="config whose sampling defaults to write")
    return main


def act(options: argparse.Namespace) -> str:
    """Do what the command line asks; one line about the result."""
    from training.encoder import pretrain
    from training.export import export
    from training.loop import ENCODER, open_table, run, saved_config

    if options.action == "resume":
        config = saved_config(options.directory)
        if options.steps:
            config = dataclasses.replace(config, steps=options.steps)
        if options.decay_from is not None:
            plan = dataclasses.replace(config.optimizer, decay_from=options.decay_from)
            config = dataclasses.replace(config, optimizer=plan)
        return f"trained {run(config, resume=True)}"
    if options.action == "export":
        card = options.card.read_text("utf-8") if options.card else ""
        defaults = configs.load(options.defaults) if options.defaults else None
        return f"wrote {export(options.directory, options.out, card, defaults)}"
    if not options.config:
        raise ElfError("say what to train: --config NAME, resume DIR or export DIR OUT")
    config = configs.load(options.config)
    if not (config.directory / ENCODER).exists():
        print(pretrain(config, open_table(config)), flush=True)
    return f"trained {run(config)}"


def main() -> None:
    """Exit with 2 and one line on bad input."""
    import jax

    options = parser().parse_args()
    # Compiled steps are kept: a resumed run starts at once.
    jax.config.update("jax_compilation_cache_dir", str(Path("runs/compiled").absolute()))
    try:
        print(act(options))
    except ElfError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
