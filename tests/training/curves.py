"""Child of the mesh tests.

`python -m tests.training.curves DIR MESH...` prints the losses of 8 steps on each mesh ("4x2") of
virtual devices. With a coordinator it is one of several processes of a run:
`python -m tests.training.curves DIR PROCESS COUNT PORT [resume]`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import jax

from tests.training.small import QUICK, ready, small
from training import loop, mesh, step
from training.config import MeshConfig
from training.embeddings import load_encoder

ENDLESS = 100_000


def curve(directory: Path, shape: str) -> list[float]:
    """Losses of a run of 8 steps."""
    data, fsdp = map(int, shape.split("x"))
    config = small(directory, "mesh", mesh=MeshConfig(data, fsdp))
    config, encoder = load_encoder(config)
    stepper, source = step.Stepper(config, encoder), loop.open_source(config)
    state, losses = stepper.start(), []
    for number in range(8):
        state, metrics = stepper(state, source.draw(number), number)
        losses.append(float(metrics["loss"]))
    kernel = state.params["blocks_0"]["mlp"]["w12"]["kernel"]
    parts = {tuple(part.data.shape) for part in kernel.addressable_shards}
    assert parts == {(kernel.shape[0], kernel.shape[1] // fsdp)}, "fsdp splits weights"
    return losses


def process(directory: Path, index: int, count: int, port: str, resume: bool) -> None:
    """One process of a run without end; alone (count 1) it goes 3 steps on."""
    if count > 1:
        mesh.connect(mesh.Processes(f"127.0.0.1:{port}", count, index))
    config = small(directory, "pair", steps=ENDLESS, save_steps=3)
    if resume:
        with loop.Checkpoints(config.directory) as store:
            done = store.steps[-1]
        config = dataclasses.replace(config, steps=done + 3)
    print("ready", flush=True)
    loop.run(config, resume)
    print(f"trained to {config.steps}", flush=True)


def main(words: list[str]) -> None:
    jax.config.update("jax_compilation_cache_dir", str(Path(words[0]) / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    step.COMPILER.update(dict(QUICK))
    loop.peak_flops = lambda dtype: 0.0
    if "x" in words[1]:
        ready(Path(words[0]), "mesh")
        print(json.dumps({shape: curve(Path(words[0]), shape) for shape in words[1:]}))
    else:
        process(Path(words[0]), int(words[1]), int(words[2]), words[3], "resume" in words)


if __name__ == "__main__":
    main(sys.argv[1:])
