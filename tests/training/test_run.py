"""A tiny run: it learns, resumes exactly, stops on a NaN, and exports a model that loads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from elf_engine import model_dir
from elf_engine.errors import ElfError
from elf_engine.weights import flatten
from training import checkpoint
from training import config as configs
from training.config import TrainConfig
from training.encoder import pretrain
from training.export import export
from training.loop import Log, open_table, run, saved_config
from training.train import act, parser

ROOT = Path(__file__).parents[2]


def tiny(directory: Path, name: str, steps: int) -> TrainConfig:
    config = configs.load("tiny")
    plan = dataclasses.replace(config.encoder_training, steps=3)
    return dataclasses.replace(
        config,
        name=name,
        runs=str(directory),
        steps=steps,
        log_every=1,
        tokenizer=str(ROOT / "assets/starter/tokenizer.model"),
        encoder_training=plan,
        batches=dataclasses.replace(config.batches, batch_tokens=256),
    )


def log_lines(config: TrainConfig) -> list[dict[str, Any]]:
    timing = ("tokens_per_s", "ms_per_step")
    text = (config.directory / "log.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in row.items() if k not in timing} for row in rows]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, TrainConfig]:
    """The same run in one go, and stopped half-way and resumed."""
    directory = tmp_path_factory.mktemp("runs")
    whole, halved = tiny(directory, "whole", 6), tiny(directory, "halved", 3)
    pretrain(whole, open_table(whole))
    halved.directory.mkdir()
    for name in ("encoder.safetensors", "latents.json"):
        (halved.directory / name).write_bytes((whole.directory / name).read_bytes())
    run(whole)
    run(halved)
    run(dataclasses.replace(saved_config(halved.directory), steps=6), resume=True)
    return whole, halved


def test_resuming_repeats_the_run_exactly(runs: tuple[TrainConfig, TrainConfig]) -> None:
    whole, halved = (log_lines(config) for config in runs)
    assert len(whole) == 6
    assert whole == halved


def test_the_log_names_branches_and_tasks(runs: tuple[TrainConfig, TrainConfig]) -> None:
    keys = {key for line in log_lines(runs[0]) for key in line}
    assert {"loss", "denoise", "decode", "tokens", "denoise/translate"} <= keys


def test_only_the_newest_checkpoints_are_kept(runs: tuple[TrainConfig, TrainConfig]) -> None:
    kept = sorted(p.name for p in (runs[1].directory / "checkpoints").iterdir())
    assert kept == ["step-00000003", "step-00000006"][-checkpoint.KEEP :]


def test_a_fresh_run_does_not_overwrite(runs: tuple[TrainConfig, TrainConfig]) -> None:
    with pytest.raises(ElfError, match="already has checkpoints"):
        run(runs[0])


def test_export_loads_with_its_own_numbers(
    runs: tuple[TrainConfig, TrainConfig], tmp_path: Path
) -> None:
    export(runs[0].directory, tmp_path / "model")
    files = model_dir.load(tmp_path / "model")
    assert files.config.network == runs[0].network
    assert files.config.layout.tasks["infill"] == 6
    assert files.config.encoder.latent_std != runs[0].encoder.latent_std
    from training.export import load_run

    average = flatten(load_run(runs[0].directory)[1].average)
    assert set(average) == set(files.network)
    for name, value in files.network.items():
        np.testing.assert_allclose(value, average[name], rtol=1e-3, atol=1e-4)


def test_a_damaged_checkpoint_is_named(runs: tuple[TrainConfig, TrainConfig]) -> None:
    from training.step import initial_state

    wider = dataclasses.replace(
        runs[0], network=dataclasses.replace(runs[0].network, bottleneck=24)
    )
    last = checkpoint.latest(runs[0].directory / "checkpoints")
    with pytest.raises(ElfError, match="text_proj"):
        checkpoint.load(last, initial_state(wider))


def test_a_nan_stops_the_run(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", 0)
    with pytest.raises(ElfError, match="not finite"):
        log.add(None, {"loss": float("nan")}, 0)  # type: ignore[arg-type]


def test_command_line_says_what_is_missing(tmp_path: Path) -> None:
    for words, message in (
        ([], "say what to train"),
        (["--config", "startr"], "no training config 'startr'"),
        (["resume", str(tmp_path)], "is no run"),
    ):
        with pytest.raises(ElfError, match=message):
            act(parser().parse_args(words))


def test_configs_are_strict(tmp_path: Path) -> None:
    assert configs.load("starter").network.vocab == 8192
    file = tmp_path / "x.yml"
    file.write_text("name: x\nstep: 3\n")
    with pytest.raises(ElfError, match="unknown key 'step'; did you mean 'steps'"):
        configs.load(str(file))


def test_averaging_forgets_the_start() -> None:
    from training.optimizer import ema

    average = {"a": np.zeros(3, np.float32)}
    for step in range(50):
        average = ema(average, {"a": np.ones(3, np.float32)}, 0.9999, step)
    assert np.asarray(average["a"]).min() > 0.9
    assert jax.tree.structure(average) == jax.tree.structure({"a": 0})
