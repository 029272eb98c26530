"""The one-command run: planned from measured speed, checked first, packed into small files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elf_engine import model_dir
from elf_engine.errors import ElfError
from tests.training.small import FakeStepper, ready
from training import accelerator, parts
from training.config import WatchConfig

pytestmark = pytest.mark.usefixtures("quick_steps")


def test_a_few_seconds_of_training_give_report_samples_and_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = WatchConfig(validate_batches=2, samples=3, sample_steps=2, tensorboard=False)
    config = ready(tmp_path, log_every=5, watch=watch)
    out = tmp_path / "out"
    said = accelerator.train_for(config, 0.1, out)
    report = json.loads((out / "report.json").read_text())
    assert f"trained {report['step']} of " in said
    assert report["step"] >= 1
    assert {"decode", "denoise/translate"} <= set(report["validation"])
    assert report["pilot"]["seconds_per_step"] > 0
    assert (out / "samples.md").read_text().count("- written:") == 3
    assert (out / "log.jsonl").read_text().count("\n") >= 1
    assert "planned:" in capsys.readouterr().out
    assert all(file.stat().st_size < 16 * 2**20 for file in out.iterdir())
    files = model_dir.load(parts.join(out, tmp_path / "model"))
    assert files.config.network == config.network
    with pytest.raises(ElfError, match="is not empty"):
        accelerator.train_for(config, 0.1, out)


def test_a_pilot_that_is_not_sane_stops_before_the_minutes_are_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ready(tmp_path)

    for change, message in (
        ({"decode": np.float32(90.0)}, r"first decode loss is 90, guessing gives 9\.01"),
        ({"decode": np.float32(9.0), "ok": False}, "step 0 is not finite; not trained"),
    ):

        class Stepper(FakeStepper):
            def __call__(self, *arguments: Any, change: Any = change, **named: Any) -> Any:
                state, metrics = super().__call__(*arguments, **named)
                return state, metrics | change

        monkeypatch.setattr(accelerator, "Stepper", Stepper)
        with pytest.raises(ElfError, match=message):
            accelerator.train_for(config, 1.0, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_parts_come_together_again_or_say_what_is_wrong(tmp_path: Path) -> None:
    source = tmp_path / "m"
    source.mkdir()
    (source / "a").write_bytes(bytes(range(256)) * 90)
    written = parts.split(source, tmp_path / "out", size=10_000)
    assert len(written) == 5
    assert all(file.stat().st_size <= 10_000 for file in written)
    joined = parts.join(tmp_path / "out", tmp_path / "again")
    assert (joined / "a").read_bytes() == (source / "a").read_bytes()
    with pytest.raises(ElfError, match="exists already"):
        parts.join(tmp_path / "out", tmp_path / "again")
    written[1].write_bytes(b"x")
    with pytest.raises(ElfError, match=r"m\.tar\.001: is missing or damaged"):
        parts.join(tmp_path / "out", tmp_path / "other")
