"""Runs small enough for tests: a config, an encoder made on the spot, and a step without a network
for tests of what is around the step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elf_engine.config import EncoderSpec, NetworkSpec
from training import settings
from training.config import OptimizerConfig, TrainConfig, WatchConfig
from training.data import TrainBatch
from training.embeddings import make_encoder
from training.mesh import everywhere, make_mesh, state_shardings
from training.objective import Split, split_step
from training.step import State

ROOT = Path(__file__).parents[2]
NETWORK = NetworkSpec(
    embedding_dim=8, hidden=16, depth=1, heads=2, bottleneck=8, vocab=8192, max_length=32,
    time_tokens=1, guidance_tokens=1, mode_tokens=1,
)  # fmt: skip
QUICK = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)
ENCODER = EncoderSpec(vocab=8192, d_model=8, d_kv=4, d_ff=8, layers=1, heads=2)


def small(runs: Path, name: str = "run", **changes: Any) -> TrainConfig:
    """A run on the built-in lines with a random token table, logged at every step."""
    config = settings.load("tiny")
    config = dataclasses.replace(
        config,
        name=name,
        runs=str(runs),
        tokenizer=str(ROOT / "assets/starter/tokenizer.model"),
        embeddings="random",
        network=NETWORK,
        encoder=ENCODER,
        optimizer=OptimizerConfig(
            learning_rate=0.01, adam_learning_rate=0.01, warmup=3, ns_steps=2, ema=0.9
        ),
        batches=dataclasses.replace(config.batches, batch_tokens=256),
        watch=WatchConfig(tensorboard=False),
        log_every=1,
    )
    return dataclasses.replace(config, **changes)


def ready(runs: Path, name: str = "run", **changes: Any) -> TrainConfig:
    """`small` with its encoder in place."""
    config = small(runs, name, **changes)
    make_encoder(config)
    return config


class FakeStepper:
    """In place of `training.step.Stepper`: each step mixes the batch into a few arrays."""

    def __init__(self, config: TrainConfig, encoder: Any, mesh: Any = None) -> None:
        self.config, self.mesh = config, mesh or make_mesh(config.mesh)
        shapes = jax.eval_shape(self._first)
        self.shardings = state_shardings(self.mesh, shapes)
        self.like = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=everywhere(self.mesh)),
            shapes,
        )
        self._mix = jax.jit(_mix, donate_argnums=(0,))

    @staticmethod
    def _first() -> State:
        params = {"a": jnp.zeros((64, 64)), "b": {"c": jnp.ones(5)}}
        return State(params, params, {"m": jnp.zeros((64, 64))}, jnp.zeros((), jnp.int32))

    def start(self) -> State:
        return jax.tree.map(jnp.copy, self._first())

    def split(self, step: int, batch: TrainBatch) -> Split:
        return split_step(len(batch.tasks), self.config.objective, self.config.seed, step)

    def flops(self, *_: Any) -> float:
        return 0.0

    def __call__(
        self, state: State, batch: TrainBatch, step: int, limit: float = np.inf, ok: Any = None
    ) -> tuple[State, dict[str, Any]]:
        assert int(state.step) == step
        state, loss = self._mix(state, batch.batch.ids)
        rows = np.ones(len(batch.tasks), np.float32)
        return state, {
            "loss": loss, "grad_norm": loss, "ok": True, "per_row": rows, "targets": rows,
        }  # fmt: skip


def _mix(state: State, ids: jax.Array) -> tuple[State, jax.Array]:
    seen = ids[:, :8].astype(jnp.float32).mean() / 8192
    a = jnp.sin(state.params["a"] * 1.7 + seen + jnp.arange(64.0))
    params = {"a": a, "b": {"c": state.params["b"]["c"] * 0.99 + seen}}
    average = jax.tree.map(lambda x, y: 0.9 * x + 0.1 * y, state.average, params)
    return State(params, average, {"m": state.optimizer["m"] + a}, state.step + 1), 1.0 + seen
