"""The trainer against reference losses, gradients and one whole step, where they are at hand.

`python -m tests.golden` compares every case; here, of the largest file, one of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden import train, train_torch
from tests.golden.__main__ import main
from tests.golden.archive import read_npz
from tests.golden.compare import Tolerance, compare_all

SHARED = Path(__file__).parents[3] / "shared" / "golden"
OPTIM = Path(__file__).parents[1] / "golden" / "files" / "optim.npz"
CASES = {
    "train_main": ("denoiser_uncond_pad", "denoiser_cond_drop_eos", "decoder_cond_drop_eos"),
    "train_nosctok": ("denoiser_cond_drop_eos",),
    "train_noselfcond": ("denoiser_cond_drop_pad", "decoder_cond_drop_pad"),
    "train_hight": None,
}


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_the_references(name: str) -> None:
    file = SHARED / f"{name}.npz"
    if not file.is_file():
        pytest.skip("the reference arrays are not beside the repository")
    rows = list(train.check(read_npz(file), "jax", CASES[name]))
    assert {"encoder_mask", "latents", "loss", "gradients"} <= {row.quantity for row in rows}
    assert [row for row in rows if not row.ok] == []


@pytest.mark.parametrize("name", CASES)
def test_the_torch_step_has_the_same_losses_and_gradients(name: str) -> None:
    file = SHARED / f"{name}.npz"
    if not file.is_file():
        pytest.skip("the reference arrays are not beside the repository")
    rows = list(train_torch.check(read_npz(file), CASES[name]))
    assert {"loss", "gradients"} == {row.quantity for row in rows}
    assert [row for row in rows if not row.ok] == []


def test_the_torch_step_has_the_same_muon() -> None:
    rows = list(train_torch.check_muon(read_npz(OPTIM)))
    assert {row.case for row in rows} == {"muon", "muon_noclip", "muon_warmup2"}
    assert [row for row in rows if not row.ok] == []


def test_one_wrong_gradient_is_seen() -> None:
    stored = {"a": np.ones(3), "b": np.ones((2, 2))}
    found: dict[str, Any] = {"a": jnp.ones(3), "b": jnp.ones((2, 2)).at[1, 0].add(1e-3)}
    where = ("case", "gradients", "jax")
    row = compare_all(where, found, stored, Tolerance(1e-4))
    assert not row.ok
    assert "worst of 2: b" in row.note
    assert not compare_all(
        where, found | {"b": jnp.full((2, 2), jnp.nan)}, stored, row.tolerance
    ).ok
    assert not compare_all(where, {"a": stored["a"]}, stored, row.tolerance).ok


def test_a_wrong_update_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("params0/", "grads", "adamw_nowd/")
    stored = read_npz(OPTIM).arrays.items()
    arrays: dict[str, Any] = {name: a for name, a in stored if name.startswith(kept)}
    arrays["adamw_nowd/params2/tokens"] = arrays["adamw_nowd/params2/tokens"] + np.float32(3e-6)
    np.savez(tmp_path / "renamed.npz", **arrays)
    assert main([str(tmp_path / "renamed.npz"), "--backend", "jax"]) == 1
    past = [line for line in capsys.readouterr().out.splitlines() if "PAST" in line]
    assert [line.split()[1] for line in past] == ["adamw_nowd/params2"]
    assert past[0].endswith("tokens")
