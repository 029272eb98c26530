"""Killed at any moment a run goes on; a damaged checkpoint is found out, whatever file of it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf_engine.errors import ElfError
from tests.training.small import ROOT, FakeStepper, ready
from training import loop
from training.checkpoint import Checkpoints, marks
from training.config import TrainConfig


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Stepper", FakeStepper)
    monkeypatch.setattr(loop, "peak_flops", lambda dtype: 0.0)


def bits(config: TrainConfig) -> list[bytes]:
    with Checkpoints(config.directory) as store:
        state, _ = store.restore(FakeStepper(config, {}).like)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    """A finished run with checkpoints of steps 4 and 6; copied, never written."""
    config = ready(tmp_path_factory.mktemp("saved"), steps=6, save_steps=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Stepper", FakeStepper)
        patch.setattr(loop, "peak_flops", lambda dtype: 0.0)
        loop.run(config)
    return config


def copied(saved: TrainConfig, to: Path) -> TrainConfig:
    shutil.copytree(saved.directory, to / "run")
    return dataclasses.replace(saved, runs=str(to))


def files_of(config: TrainConfig, step: int) -> list[Path]:
    folder = config.directory / "checkpoints" / f"step_{step}"
    return sorted(p for p in folder.rglob("*") if p.is_file())


# Notes of Orbax on when and how it wrote: without them nothing is lost.
NOTES = {"commit_success.txt", "_CHECKPOINT_METADATA"}


def damage(file: Path, how: str) -> None:
    raw = bytearray(file.read_bytes())
    if how == "removed":
        file.unlink()
        return
    if how == "cut":
        raw = raw[: len(raw) // 2]
    else:
        raw[len(raw) // 2] ^= 0x10
    file.write_bytes(bytes(raw))


# A read that fails leaves futures of Orbax behind, which speak up when they are collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["cut", "flipped", "removed"])
def test_damage_to_any_file_of_the_newest_checkpoint_never_changes_what_is_resumed(
    saved: TrainConfig, tmp_path: Path, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Either the checkpoint before is used, loudly, or the file held nothing and all is equal."""
    newest, before = bits(saved), None
    fallen, harmless = set(), set()
    for number, name in enumerate(p.relative_to(saved.directory) for p in files_of(saved, 6)):
        config = copied(saved, tmp_path / str(number))
        damage(config.directory / name, how)
        capfd.readouterr()
        with Checkpoints(config.directory) as store:
            state, record = store.restore(FakeStepper(config, {}).like)
        found = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]
        told = capfd.readouterr().err
        if record["step"] == 4:
            before = before or found
            assert found == before != newest
            assert "checkpoint of step 6 is damaged" in told
            assert "going back to step 4" in told
            assert (config.directory / "checkpoints" / "damaged_6").is_dir()
            fallen.add("/".join(name.parts[2:]))
        else:
            assert found == newest
            harmless.add(name.name)
    assert any("/d/" in name for name in fallen), "array data"
    if how != "removed":
        assert {"record/metadata", "state/manifest.ocdbt"} <= fallen
    assert harmless <= NOTES | {"_METADATA", "_sharding", "process_0", "manifest.ocdbt"} | {
        name
        for name in harmless
        if len(name) == 32  # a B-tree node that nothing points to
    }


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_falling_back_the_run_goes_on_as_if_nothing_had_been(
    saved: TrainConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = copied(saved, tmp_path)
    for file in files_of(config, 6):
        if file.parent.name == "d" and file.stat().st_size > 400:
            damage(file, "flipped")
    loop.run(dataclasses.replace(config, steps=9), resume=True)
    assert "going back to step 4" in capfd.readouterr().err
    whole = copied(saved, tmp_path / "whole")
    loop.run(dataclasses.replace(whole, steps=9), resume=True)
    assert bits(config) == bits(whole)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_without_a_whole_checkpoint_nothing_starts_from_scratch(
    saved: TrainConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = copied(saved, tmp_path)
    for step in (4, 6):
        (config.directory / f"checkpoints/step_{step}/record/metadata").write_text("{")
    with pytest.raises(ElfError, match="nothing is started from scratch"):
        loop.run(dataclasses.replace(config, steps=9), resume=True)
    assert capfd.readouterr().err.count("is damaged") == 2
    with pytest.raises(ElfError, match="nothing is started from scratch"):
        loop.run(dataclasses.replace(config, steps=9), resume=True)
    with pytest.raises(ElfError, match="already has checkpoints"):
        loop.run(config)


def test_a_run_killed_before_its_first_checkpoint_says_that_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ready(tmp_path, steps=2)
    loop.save_config(config)
    loop.run(config, resume=True)
    assert "no checkpoint was written yet: starting at step 0" in capsys.readouterr().err


def test_a_lost_tokenizer_comes_out_of_the_checkpoint(saved: TrainConfig, tmp_path: Path) -> None:
    config = copied(saved, tmp_path)
    gone = dataclasses.replace(config, tokenizer=str(tmp_path / "gone.model"), steps=8)
    loop.run(gone, resume=True)
    kept = config.directory / "tokenizer" / Path(saved.tokenizer).name
    assert kept.read_bytes() == Path(saved.tokenizer).read_bytes()
    assert loop.saved_config(config.directory).tokenizer == str(kept)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(ElfError, match="is not the one this run was trained with"):
        loop.run(dataclasses.replace(gone, tokenizer=str(kept), steps=9), resume=True)


def test_a_cut_log_line_is_dropped_and_later_ones_are_written_again(
    saved: TrainConfig, tmp_path: Path
) -> None:
    config = copied(saved, tmp_path)
    shutil.rmtree(config.directory / "checkpoints" / "step_6")
    log = config.directory / "log.jsonl"
    log.write_text(log.read_text() + '{"step": 7, "lo')
    loop.run(config, resume=True)
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]


@given(st.integers(0, 59), st.integers(0, 31))
@settings(max_examples=60, deadline=None)
def test_a_mark_tells_every_flipped_bit(place: int, bit: int) -> None:
    a = np.linspace(-3, 3, 60, dtype=np.float32).reshape(3, 20)
    b = a.copy()
    b.view(np.uint32).reshape(-1)[place] ^= np.uint32(1 << bit)
    assert int(marks(a)) != int(marks(b))


@pytest.mark.slow
def test_twenty_kills_at_random_moments_leave_no_trace(tmp_path: Path) -> None:
    """SIGKILL during steps and during saves; the run then ends in the bits of one never stopped."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.killed", str(tmp_path), "20"],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["equal"]
    assert found["killed"] == 20
    assert found["during"] > 0, "some were killed while a checkpoint was being written"
