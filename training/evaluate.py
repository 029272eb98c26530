"""Validation losses of a run, per task: `python -m training.evaluate runs/starter`."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elf_engine.types import Weights
from elf_engine.weights import unflatten
from training.config import TrainConfig
from training.data import BatchSource
from training.export import load_run
from training.loop import load_encoder, open_source
from training.objective import losses, split_rows
from training.step import arrays, network, prepare


def evaluate(
    config: TrainConfig, params: Any, encoder: Weights, source: BatchSource, batches: int
) -> dict[str, float]:
    """Mean losses over the first `batches` batches of `source`, with fixed noise: "denoise" and
    "decode", and each per task. The denoise loss is against the data's velocity, unguided."""
    net, frozen = network(config), unflatten(encoder)
    # Both branches of every batch, also where training takes one at a time.
    config = replace(config, objective=replace(config.objective, branch="example"))

    @jax.jit
    def measure(params: Any, frozen: Any, key: Any, batch: Any) -> Any:
        split = split_rows(batch[0].shape[0], config.objective)
        inputs, draws = prepare(config, frozen, key, batch, split)
        return losses(params, net, inputs, draws, split, config.flow, config.objective)[1]

    sums: dict[str, Any] = defaultdict(lambda: np.zeros(2))
    for step in range(batches):
        batch = source.draw(step)
        key = jax.random.fold_in(jax.random.key(0), step)
        found = measure(params, frozen, key, arrays(batch))
        rows, targets = np.asarray(found["per_row"]), np.asarray(found["targets"])
        decode_rows = split_rows(len(rows), config.objective).decode
        for i, task in enumerate(batch.tasks):
            branch = "decode" if i < decode_rows else "denoise"
            for name in (branch, f"{branch}/{task}"):
                sums[name] += (rows[i], targets[i])
    return {name: round(float(a / b), 4) for name, (a, b) in sorted(sums.items())}


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--batches", type=int, default=40)
    options = parser.parse_args()
    config, state = load_run(options.directory)
    config, encoder = load_encoder(config)
    source = open_source(config, "validation")
    params = jax.tree.map(jnp.asarray, state.average)
    found = evaluate(config, params, encoder, source, options.batches)
    print(json.dumps({"step": int(state.step), **found}, indent=2))


if __name__ == "__main__":
    main()
