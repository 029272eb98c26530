"""Validation losses of a run, per task: `elf-train evaluate runs/starter`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from elf_engine.types import Weights
from elf_engine.weights import unflatten
from training.config import TrainConfig
from training.export import load_run
from training.mesh import everywhere, make_mesh, put_everywhere
from training.objective import losses, split_rows
from training.sources import Source, open_source
from training.step import COMPILER, TABLE, arrays, network, prepare


class Validator:
    """Validation losses of one run, compiled once. The denoise loss is against the data's velocity,
    unguided."""

    def __init__(self, config: TrainConfig, encoder: Weights, mesh: Mesh | None = None) -> None:
        self.mesh = mesh or make_mesh(config.mesh)
        # Both branches of every batch, also where training takes one at a time.
        objective = replace(config.objective, branch="example")
        self.config = replace(config, objective=objective)
        self._frozen = put_everywhere(self.mesh, unflatten(encoder))
        self._measure = jax.jit(
            self._losses, out_shardings=everywhere(self.mesh), compiler_options=COMPILER or None
        )

    def _losses(self, params: Any, frozen: Any, key: Any, batch: Any) -> Any:
        config = self.config
        split = split_rows(batch[0].shape[0], config.objective)
        own = {name: value for name, value in params.items() if name != TABLE}
        frozen = {**frozen, TABLE: params[TABLE]} if TABLE in params else frozen
        inputs, draws = prepare(config, frozen, key, batch, split)
        net = network(config)
        return losses(own, net, inputs, draws, split, config.flow, config.objective)[1]

    def __call__(self, params: Any, source: Source, batches: int) -> dict[str, float]:
        """Mean losses over the first `batches` batches of `source`, with fixed noise: "denoise" and
        "decode", and each per task. `source` gives whole batches, on every process."""
        sums: dict[str, Any] = defaultdict(lambda: np.zeros(2))
        for step in range(batches):
            batch = source.draw(step)
            key = jax.random.fold_in(jax.random.key(0), step)
            rows = put_everywhere(self.mesh, arrays(batch))
            found = self._measure(params, self._frozen, key, rows)
            errors, targets = np.asarray(found["per_row"]), np.asarray(found["targets"])
            decode_rows = split_rows(len(errors), self.config.objective).decode
            for i, task in enumerate(batch.tasks):
                branch = "decode" if i < decode_rows else "denoise"
                for name in (branch, f"{branch}/{task}"):
                    sums[name] += (errors[i], targets[i])
        return {name: round(float(a / max(b, 1.0)), 4) for name, (a, b) in sorted(sums.items())}


def validate(
    config: TrainConfig, params: Any, encoder: Weights, mesh: Mesh | None = None, batches: int = 0
) -> dict[str, float]:
    """`Validator` on the validation split, by default on as many batches as the config says."""
    source = open_source(config, "validation")
    count = batches or config.watch.validate_batches
    return Validator(config, encoder, mesh)(params, source, count)


def evaluate_run(directory: Path, batches: int = 40) -> dict[str, float]:
    """Validation losses of a run's newest checkpoint, averaged weights, and its step."""
    config, encoder, state = load_run(directory)
    found = validate(config, state.average, encoder, None, batches)
    return {"step": int(state.step), **found}
