"""For one machine with an accelerator: check, train for so many minutes, score, pack."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import jax

from elf_engine.errors import ElfError
from training import parts
from training.config import TrainConfig
from training.embeddings import ENCODER, load_encoder, make_encoder
from training.encoder import seconds_per_step
from training.evaluate import validate
from training.export import export, load_run
from training.loop import run
from training.sample import show
from training.sources import open_source, open_table
from training.step import Stepper
from training.watch import LOG, duration

PILOT_STEPS = 8
ENCODER_SHARE = 0.25  # of the minutes, where the encoder is trained first
TRAIN_SHARE = 0.85  # of the time left, in steps; validation and saving take the rest
FINAL_SHARE = 0.3  # of the steps, with a falling rate
RESERVE_SHARE, RESERVE_S = 0.1, 20.0  # for losses, samples and packing
REPORT, SAMPLES = "report.json", "samples.md"


def train_for(config: TrainConfig, minutes: float, out: Path) -> str:
    """Train `config` for `minutes` in all and put report, samples, log and the model's parts into
    `out`; one line about it. Steps and the fall of the rate are planned from measured speed.

    Raises ElfError when `out` is in use, or the pilot's losses are not sane.
    """
    if out.exists() and any(out.iterdir()):
        raise ElfError(f"'{out}' is not empty; choose another place")
    began = time.monotonic()
    whole = 60 * minutes
    end = began + whole - max(RESERVE_SHARE * whole, min(RESERVE_S, whole / 4))
    if not (config.directory / ENCODER).exists():
        print(make_encoder(_planned_encoder(config, ENCODER_SHARE * whole)), flush=True)
    pilot = pilot_check(config)
    left = end - time.monotonic() - pilot["compile_seconds"]
    steps = max(int(TRAIN_SHARE * left / pilot["seconds_per_step"]), PILOT_STEPS)
    fall = dataclasses.replace(
        config.optimizer, decay_from=int(steps * (1 - FINAL_SHARE)), decay="linear"
    )
    config = dataclasses.replace(config, steps=steps, optimizer=fall)
    print(
        f"pilot: {pilot['seconds_per_step']:.3g} s a step, loss {pilot['first_loss']:.4g} -> "
        f"{pilot['last_loss']:.4g}; planned: {steps} steps in {duration(left)}",
        flush=True,
    )
    run(config, until=end)
    report = _report(config, out, pilot)
    report["minutes"] = round((time.monotonic() - began) / 60, 2)
    (out / REPORT).write_text(json.dumps(report, indent=2), "utf-8")
    return f"trained {report['step']} of {steps} steps; results in {out}"


def pilot_check(config: TrainConfig) -> dict[str, float]:
    """A few real steps: time of one, first and last loss, megabytes on the device.

    Raises ElfError when a loss is not finite, or the decode loss does not begin near ln V, that of
    guessing among V tokens: then data, vocabulary or latents are not what they should be.
    """
    config, encoder = load_encoder(config)
    stepper, source = Stepper(config, encoder), open_source(config)
    state, losses, seconds = stepper.start(), [], []
    first_decode = math.nan
    for step in range(PILOT_STEPS):
        batch = source.draw(step)
        began = time.monotonic()
        state, metrics = stepper(state, batch, step)
        losses.append(float(metrics["loss"]))
        seconds.append(time.monotonic() - began)
        if math.isnan(first_decode) and stepper.split(step, batch).decode:
            first_decode = float(metrics["decode"])
        if not bool(metrics["ok"]):
            raise ElfError(f"pilot: the loss or gradient of step {step} is not finite; not trained")
    guess = math.log(config.network.vocab)
    if first_decode > 2 * guess or (not math.isnan(first_decode) and first_decode < guess / 4):
        raise ElfError(
            f"pilot: the first decode loss is {first_decode:.3g}, guessing gives {guess:.3g}; "
            "check data, tokenizer and latents; not trained"
        )
    stats: dict[str, Any] = jax.local_devices()[0].memory_stats() or {}
    each = sorted(seconds)[PILOT_STEPS // 2]
    return {
        "compile_seconds": sum(seconds) - PILOT_STEPS * each,
        # The middle one: steps that compiled are no measure.
        "seconds_per_step": each,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "first_decode_loss": first_decode,
        "peak_memory_mb": stats.get("peak_bytes_in_use", 0) / 2**20,
    }


def _planned_encoder(config: TrainConfig, seconds: float) -> TrainConfig:
    """Pre-training of as many steps as `seconds` allow, the last part with a falling rate."""
    if config.embeddings != "scratch":
        return config
    each = seconds_per_step(config, open_table(config))
    plan = config.encoder_training
    steps = max(int(seconds / each), PILOT_STEPS)
    fall = dataclasses.replace(plan.optimizer, decay_from=int(steps * (1 - FINAL_SHARE)))
    print(f"encoder: {each:.3g} s a step; planned: {steps} steps", flush=True)
    plan = dataclasses.replace(plan, steps=steps, optimizer=fall)
    return dataclasses.replace(config, encoder_training=plan)


def _report(config: TrainConfig, out: Path, pilot: dict[str, float]) -> dict[str, Any]:
    """Validation losses, samples, log and model parts into `out`; what `report.json` says."""
    out.mkdir(parents=True, exist_ok=True)
    saved, encoder, state = load_run(config.directory)
    losses = validate(saved, state.average, encoder)
    (out / SAMPLES).write_text(show(saved, state.average, encoder), "utf-8")
    log = config.directory / LOG
    (out / LOG).write_bytes(log.read_bytes() if log.exists() else b"")
    model = export(config.directory, config.directory / config.name)
    files = parts.split(model, out)
    return {
        "config": config.name,
        "device": jax.devices()[0].device_kind,
        "step": int(state.step),
        "pilot": pilot,
        "validation": losses,
        "parts": [file.name for file in files],
    }
