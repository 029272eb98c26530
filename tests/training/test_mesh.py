"""Many devices give the curve of one; a lost process ends the other in one line, and the run goes
on with fewer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from elf_engine.errors import ElfError
from tests.training.small import ROOT, ready
from training.config import MeshConfig
from training.mesh import PEER_LOST, make_mesh, put_rows

PATIENCE_S = 900  # only against hanging for ever


def start(directory: Path, *words: str, devices: int = 1) -> subprocess.Popen[str]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.curves", str(directory), *words],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


@pytest.mark.slow
def test_eight_devices_give_the_losses_of_one(tmp_path: Path) -> None:
    child = start(tmp_path, "1x1", "4x2", devices=8)
    out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0, err[-3000:]
    curves = json.loads(out.splitlines()[-1])
    one = np.asarray(curves["1x1"])
    assert len(set(one)) == 8
    np.testing.assert_allclose(curves["4x2"], one, rtol=1e-5)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def newest(directory: Path) -> int:
    found = (directory / "pair" / "checkpoints").glob("step_*")
    return max((int(p.name[5:]) for p in found if p.name[5:].isdecimal()), default=-1)


@pytest.mark.slow
def test_a_killed_process_ends_the_other_and_the_run_goes_on_alone(tmp_path: Path) -> None:
    ready(tmp_path, "pair")
    port = free_port()
    pair = [start(tmp_path, str(i), "2", port) for i in range(2)]
    deadline = time.monotonic() + PATIENCE_S
    while newest(tmp_path) < 6:
        assert all(child.poll() is None for child in pair), pair[0].communicate()[1][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pair[1].kill()
    _, err = pair[0].communicate(timeout=PATIENCE_S)
    pair[1].communicate()
    assert pair[0].returncode == PEER_LOST, err[-3000:]
    told = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(told) == 1
    assert "another process of this run is gone" in told[0]
    assert "elf-train resume" in told[0]
    assert "Traceback" not in err
    reached = newest(tmp_path)
    alone = start(tmp_path, "0", "1", "", "resume")
    out, err = alone.communicate(timeout=PATIENCE_S)
    assert alone.returncode == 0, err[-3000:]
    assert f"trained to {reached + 3}" in out
    assert "damaged" not in err


def test_a_mesh_that_does_not_fit_is_refused() -> None:
    have = jax.device_count()
    for config in (MeshConfig(have + 1, 1), MeshConfig(0, have + 1), MeshConfig(1, have + 1)):
        with pytest.raises(ElfError, match=f"does not fit {have} device"):
            make_mesh(config)
    assert make_mesh(MeshConfig()).size == have


def test_rows_that_do_not_divide_are_named() -> None:
    class Mesh:
        size = 3

    with pytest.raises(ElfError, match="a batch of 8 rows does not divide among 3 devices"):
        put_rows(Mesh(), (np.zeros((8, 4)),))  # type: ignore[arg-type]
