"""What `elf-eval sweep`, `calibrate` and `suite` do with their options."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.cli_edit import default_backend, load_engine, warn
from app.evaluation import results, scoring
from app.evaluation.baselines import baseline
from app.evaluation.calibrate import config as calibration_config
from app.evaluation.calibrate import write_calibration
from app.evaluation.config import read_yaml
from app.evaluation.data import data_directory, training_texts
from app.evaluation.duel import PARTS as DUEL_PARTS
from app.evaluation.duel import Duel, run_duel
from app.evaluation.generate import Job, check_settings, parse_setting
from app.evaluation.report import suite_section
from app.evaluation.scorers import load_scorer
from app.evaluation.suite import PARTS, Suite, run_suite
from app.evaluation.sweep import read_config, run_sweep
from editors.calibration import settings
from elf_engine.errors import ElfError

_NO_SLIDER = ("rewrite",)


def run_sweeps(
    file: Path, only: tuple[str, ...], samples: Path, folder: Path, data: Path | None
) -> None:
    """Run the sweeps of a file and save a result file of each."""
    config = read_config(read_yaml(file), str(file))
    names = only or tuple(config.sweeps)
    for name in names:
        if name not in config.sweeps:
            raise ElfError(f"{file} has no sweep '{name}'; it has {', '.join(config.sweeps)}")
    engine = baseline(config.model) or load_engine(config.model, config.backend)
    corpus = data_directory(data)
    tools = judge(engine, config.scorer, config.training_limit, corpus, config.seed)
    for name in names:
        command = f"elf-eval sweep {file} --only {name}"
        found = run_sweep(name, config, engine, tools, (corpus, samples), command, warn)
        results.save(folder / f"{name}.json", found)
        warn(f"{folder / name}.json")


def run_calibrate(given: Mapping[str, Any]) -> Path:
    """Sweep the tasks a model has and write its calibration; returns the file."""
    engine = load_engine(given["model"], given["backend"] or default_backend())
    if engine.path is None:
        raise ElfError(f"model '{given['model']}' has no directory to put a calibration in")
    tasks = given["only"] or [t for t in engine.config.layout.tasks if t not in _NO_SLIDER]
    config = calibration_config(
        given["model"],
        tasks,
        quick=given["quick"],
        ode=[t for t in tasks if settings(engine, t).sampler == "ode"],
        split=given["split"],
        limit=given["limit"],
        seed=given["seed"],
        backend=given["backend"] or default_backend(),
    )
    data = data_directory(given["data"])
    tools = judge(engine, "ngram", given["training_limit"], data, given["seed"])
    folder = given["samples"] or Path("runs/evaluation") / f"{engine.config.name}-calibration"
    command = _command()
    found = {
        name: run_sweep(name, config, engine, tools, (data, folder), command, warn)
        for name in config.sweeps
    }
    facts = results.provenance(command, given["seed"])
    facts |= {"model_hash": engine.model_hash, "split": given["split"], "limit": given["limit"]}
    return write_calibration(engine.path, found, facts)


def run_suite_command(given: Mapping[str, Any]) -> str:
    """Run the suite and save its result file; returns its tables."""
    chosen = dict(_one(text) for text in given["settings"])
    check_settings(chosen)
    backend = given["backend"] or default_backend()
    engine = baseline(given["model"]) or load_engine(given["model"], backend)
    data, name = data_directory(given["data"]), engine.config.name
    job = Job(
        "unconditional",
        given["model"],
        given["split"],
        given["limit"],
        given["seed"],
        settings=chosen,
        backend=backend,
    )
    folder = given["samples"] or Path("runs/evaluation") / name
    tools = judge(engine, given["scorer"], given["training_limit"], data, given["seed"])
    suite = Suite(engine, job, data, folder, tools, warn)
    found = run_suite(suite, given["only"] or PARTS, _command())
    target = given["results"] or Path("docs/results") / f"suite-{name}.json"
    results.save(target, found)
    warn(str(target))
    return suite_section(found)


def run_duel_command(given: Mapping[str, Any]) -> str:
    """Run a duel and save its result file; returns its tables."""
    backend, data = given["backend"] or default_backend(), data_directory(given["data"])
    opponent = baseline(given["opponent"])
    if opponent is None:
        raise ElfError(
            f"'{given['opponent']}' holds no autoregressive model; make one with: "
            "elf-train baseline, then elf-train export"
        )
    if baseline(given["model"]) is not None:
        raise ElfError(f"'{given['model']}' is autoregressive; the first model is an ELF one")
    if given["scorer"] == given["opponent"]:
        raise ElfError("a model is no judge of itself; choose another --scorer")
    engine = load_engine(given["model"], backend)
    job = Job("translate", split=given["split"], limit=given["limit"], seed=given["seed"])
    folder = given["samples"] or (
        Path("runs/evaluation") / f"duel-{engine.config.name}-{opponent.config.name}"
    )
    tools = judge(engine, given["scorer"], given["training_limit"], data, given["seed"])
    steps = tuple(_steps(given["steps"]))
    duel = Duel(engine, opponent, replace(job, backend=backend), data, folder, tools, steps, warn)
    found = run_duel(duel, given["only"] or tuple(DUEL_PARTS), _command())
    target = given["results"] or Path("docs/results") / f"{found['name']}.json"
    results.save(target, found)
    warn(str(target))
    return suite_section(found)


def _steps(text: str) -> list[int]:
    _, values = parse_setting(f"steps={text}")
    for value in values:
        check_settings({"steps": value})
    return sorted(set(values))


def judge(engine: Any, scorer: str, texts: int, data: Path, seed: int) -> scoring.Tools:
    """Tools with one scorer, and the engine's own tokens for entropy."""
    return scoring.Tools(
        ids=lambda found: [engine.tokenizer.encode(text) for text in found],
        scorers=[lambda: load_scorer(scorer, data, texts)],
        training=lambda: training_texts(data),
        seed=seed,
    )


def _one(text: str) -> tuple[str, Any]:
    name, values = parse_setting(text)
    if len(values) != 1:
        raise ElfError(f"setting '{text}' has several values; elf-eval sweep has grids")
    return name, values[0]


def _command() -> str:
    """The command as typed, but for where this machine keeps its corpus."""
    words = list(sys.argv[1:])
    if "--data" in words:
        at = words.index("--data")
        words = [*words[:at], *words[at + 2 :]]
    return shlex.join(["elf-eval", *words])
