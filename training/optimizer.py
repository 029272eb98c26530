"""Muon with Adam, clipping and warm-up; the exponential moving average of the weights."""

from __future__ import annotations

from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers, muon

from elf_engine.weights import flatten, unflatten
from training.config import OptimizerConfig


def schedule(config: OptimizerConfig, rate: float, steps: int) -> optax.Schedule:
    """Linear warm-up, constant, then (if wanted) a linear fall over the last steps."""
    warm = optax.linear_schedule(rate / max(config.warmup, 1), rate, config.warmup)
    if config.decay_from < 0:
        return optax.join_schedules([warm, optax.constant_schedule(rate)], [config.warmup])
    fall = optax.linear_schedule(rate, rate * config.final, max(steps - config.decay_from, 1))
    return optax.join_schedules(
        [warm, optax.constant_schedule(rate), fall], [config.warmup, config.decay_from]
    )


def make_optimizer(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """Clip by global norm, then Muon for two-dimensional weights and Adam for the rest."""

    def muon_weights(params: Any) -> Any:
        flat = flatten(params)
        return unflatten(
            {
                name: MuonDimensionNumbers()
                if getattr(a, "ndim", 0) == 2 and not name.endswith(config.adam_for)
                else None
                for name, a in flat.items()
            }
        )

    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        muon(
            schedule(config, config.learning_rate, steps),
            ns_steps=config.ns_steps,
            adam_learning_rate=schedule(config, config.adam_learning_rate, steps),
            muon_weight_dimension_numbers=muon_weights,
        ),
    )


def ema(average: Any, params: Any, decay: float, step: Any) -> Any:
    """Moving average; the decay grows with the step so that the start is forgotten."""
    kept = jax.numpy.minimum(decay, (1.0 + step) / (10.0 + step))
    return jax.tree.map(lambda a, p: a + (1.0 - kept) * (p - a), average, params)
