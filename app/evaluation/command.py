"""What `elf-eval generate` does with its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from app.cli_edit import default_backend, load_engine, warn
from app.evaluation.baselines import baseline
from app.evaluation.data import TASKS, data_directory
from app.evaluation.generate import Job, cell_name, check_settings, generate, grid, parse_setting
from app.evaluation.protocols import protocol
from app.evaluation.systems import write_system
from elf_engine.errors import ElfError


@dataclass(frozen=True)
class Cell:
    """One file of samples."""

    job: Job
    out: Path


def run_generate(given: dict[str, Any], context: click.Context) -> None:
    """Make every file asked for; what is done is told on stderr."""
    _take_config(given, context)
    cells = plan_cells(given, context)
    shard = parse_shard(given["shard"])
    data = data_directory(given["data"])
    if given["system"] != "model":
        for cell in cells:
            made = write_system(given["system"], cell.job, data, cell.out)
            warn(f"{cell.out}: {made} new samples")
        return
    devices = _devices(given["devices"], cells[0].job.backend)
    if devices > 1:
        from app.evaluation.devices import generate_on_devices

        for cell in cells:
            made = generate_on_devices(cell.job, data, cell.out, shard, devices)
            warn(f"{cell.out}: {made} new samples on {devices} devices")
        return
    job = cells[0].job
    engine = baseline(job.model, job.dtype) or load_engine(job.model, job.backend, job.dtype)
    for cell in cells:
        out = shard_file(cell.out, shard)
        made = generate(cell.job, engine, data, out, shard, _teller(out))
        warn(f"{out}: {made} new samples")


def plan_cells(given: Mapping[str, Any], context: click.Context | None = None) -> list[Cell]:
    """The files that options ask for, all of them checked before any model is loaded."""
    preset = protocol(given["protocol"]) if given["protocol"] else None
    task = given["task"] or (preset.task if preset else None)
    if task is None:
        raise ElfError("name a task with --task, or a published protocol with --protocol")
    if preset and task != preset.task:
        raise ElfError(f"protocol {given['protocol']} is for {preset.task}, not for {task}")
    if task not in TASKS:
        raise ElfError(f"task '{task}' is unknown; use one of {', '.join(TASKS)}")
    settings = dict(preset.settings) if preset else {}
    for text in given["settings"]:
        name, values = parse_setting(text)
        if len(values) != 1:
            raise ElfError(f"setting '{text}' has several values; use --grid for that")
        settings[name] = values[0]
    axes: dict[str, Any] = dict(preset.grid) if preset else {}
    axes |= dict(parse_setting(text) for text in given["axes"])
    limit = given["limit"] or (preset.limit if preset else None) or 100
    model = given["model"]
    if preset and _defaulted(context, "model"):
        model = preset.model
    inputs = given["inputs"]
    if inputs is not None and not inputs.is_file():
        raise ElfError(f"there is no file '{inputs}'")
    job = Job(
        task=task,
        model=model,
        split=given["split"],
        limit=limit,
        seed=given["seed"],
        samples=given["samples"],
        settings=settings,
        backend=given["backend"] or default_backend(),
        dtype=given["dtype"],
        inputs=inputs,
    )
    check_settings(settings)
    if not axes:
        return [Cell(job, given["out"])]
    return [
        Cell(replace(job, settings={**settings, **cell}), given["out"] / f"{cell_name(cell)}.jsonl")
        for cell in grid(axes)
    ]


def parse_shard(text: str) -> tuple[int, int]:
    """ "1/4" -> (1, 4). Raises ElfError for anything else."""
    first, slash, second = text.partition("/")
    if not (slash and first.isdecimal() and second.isdecimal() and int(first) < int(second)):
        raise ElfError(f"shard '{text}' is not K/N with K from 0 to N-1, such as 0/4")
    return int(first), int(second)


def shard_file(out: Path, shard: tuple[int, int]) -> Path:
    """Where a shard writes: beside the others, so that scoring reads all of them."""
    k, n = shard
    return out if n == 1 else out.with_name(f"{out.stem}.{k}of{n}{out.suffix}")


def _teller(out: Path) -> Callable[[int, int], None]:
    return lambda done, total: warn(f"{out}: {done} of {total}")


def _defaulted(context: click.Context | None, name: str) -> bool:
    from click.core import ParameterSource

    return context is None or context.get_parameter_source(name) == ParameterSource.DEFAULT


def _take_config(given: dict[str, Any], context: click.Context) -> None:
    """Put the values of --config under the options that were not given."""
    if given["config"] is None:
        return
    from app.evaluation.config import read_yaml

    values = read_yaml(given["config"])
    names = {*(f.name for f in fields(Job)), "grid", "out", "protocol", "system"}
    for key, value in values.items():
        if key not in names:
            raise ElfError(
                f"{given['config']}: unknown key '{key}'; known: {', '.join(sorted(names))}"
            )
        if key in ("settings", "grid"):
            option = "axes" if key == "grid" else "settings"
            if not isinstance(value, dict):
                raise ElfError(f"{given['config']}: {key} is a mapping of names to values")
            given[option] = (*(_text(k, v) for k, v in value.items()), *given[option])
        elif _defaulted(context, key):
            given[key] = Path(value) if key in ("out", "inputs") else value


def _text(name: str, value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return f"{name}={','.join(map(str, values))}"


def _devices(text: str, backend: str) -> int:
    if text == "1":
        return 1
    if backend != "jax":
        raise ElfError("--devices is for --backend jax; elsewhere start one process per --shard")
    import jax

    there = len(jax.devices())
    count = there if text == "all" else int(text) if text.isdecimal() else 0
    if not 1 <= count <= there:
        raise ElfError(f"devices '{text}' is neither all nor a number from 1 to {there}")
    return count
