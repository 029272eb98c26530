"""Child of the kill test: starts runs by forking, and kills each of them with SIGKILL.

`python -m tests.training.killed DIR COUNT` prints, as JSON, how many were killed, how many while a
checkpoint was being written, and whether the run that went on after all of them ended in the same
bits as one that was never stopped.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import jax

from tests.training.small import FakeStepper, ready
from training import loop
from training.checkpoint import Checkpoints
from training.config import TrainConfig

AFTER_MS = 60  # latest kill behind the event that it waits for


def child(config: TrainConfig, resume: bool) -> int:
    """Process id of a forked run."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        loop.run(config, resume)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def writing(config: TrainConfig) -> bool:
    """Whether a checkpoint is being written."""
    return any("tmp" in p.name for p in (config.directory / "checkpoints").glob("*"))


def newest(config: TrainConfig) -> int:
    steps = [int(p.name[5:]) for p in (config.directory / "checkpoints").glob("step_*")
             if p.name[5:].isdecimal()]  # fmt: skip
    return max(steps, default=-1)


def kill(config: TrainConfig, process: int, rng: random.Random) -> bool:
    """Kill at a random moment: half of them when a save has just begun, half after some progress.
    Whether a save was under way."""
    start, during = newest(config), rng.random() < 0.5
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if (writing(config) and newest(config) >= start) if during else newest(config) > start:
            break
        time.sleep(0.002)
    else:
        raise SystemExit("the run ended by itself")
    time.sleep(rng.random() * AFTER_MS / 1000)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return writing(config)


def last_state(config: TrainConfig) -> list[bytes]:
    with Checkpoints(config.directory) as store:
        state, _ = store.restore(FakeStepper(config, {}).like)
    return [jax.device_get(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def main(directory: Path, count: int) -> None:
    loop.Stepper = FakeStepper  # type: ignore[misc, assignment]
    loop.peak_flops = lambda dtype: 0.0
    rng = random.Random(5)
    killed = ready(directory, "killed", steps=10**6, save_steps=2, log_every=50)
    process, during = child(killed, resume=False), 0
    for number in range(count):
        during += kill(killed, process, rng)
        if number + 1 < count:
            process = child(killed, resume=True)
    # Steps of the end: some past what the killed runs reached.
    stop = newest(killed) + 5
    whole = dataclasses.replace(killed, name="whole", steps=stop, save_steps=0)
    (directory / "whole").mkdir()
    for name in (loop.ENCODER, loop.LATENTS):
        (whole.directory / name).write_bytes((killed.directory / name).read_bytes())
    for config, resume in ((dataclasses.replace(killed, steps=stop), True), (whole, False)):
        _, status = os.waitpid(child(config, resume), 0)
        assert status == 0, config.name
    print(json.dumps({"killed": count, "during": during, "steps": stop,
                      "equal": last_state(killed) == last_state(whole)}))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
