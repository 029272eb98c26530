"""Muon with Adam, or AdamW; clipping, warm-up, accumulation; the moving average of the weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers, muon

from elf_engine.weights import flatten, unflatten
from training.config import OptimizerConfig


def schedule(config: OptimizerConfig, rate: float, steps: int) -> optax.Schedule:
    """Linear warm-up, constant, then (if wanted) a fall over the last of `steps` updates."""
    first = 0.0 if config.warmup_start == "zero" else rate / max(config.warmup, 1)
    warm = optax.linear_schedule(first, rate, config.warmup)
    constant = optax.constant_schedule(rate)
    if config.decay_from < 0:
        return optax.join_schedules([warm, constant], [config.warmup])
    last = max(steps - config.decay_from, 1)
    if config.decay == "cosine":
        fall = optax.cosine_decay_schedule(rate, last, alpha=config.final)
    else:
        fall = optax.linear_schedule(rate, rate * config.final, last)
    return optax.join_schedules([warm, constant, fall], [config.warmup, config.decay_from])


def make_optimizer(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """Clip by global norm, then Muon for two-dimensional weights and Adam for the rest, or AdamW;
    once every `accumulate` steps, on the mean of their clipped gradients."""
    steps //= config.accumulate
    clip = optax.clip_by_global_norm(config.clip) if config.clip > 0 else optax.identity()
    rule = _adamw(config, steps) if config.kind == "adamw" else _muon(config, steps)
    if config.accumulate > 1:
        several = optax.MultiSteps(rule, config.accumulate)
        rule = optax.GradientTransformation(several.init, several.update)
    return optax.chain(clip, rule)


def _adamw(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    rate = schedule(config, config.adam_learning_rate, steps)
    return optax.adamw(rate, b2=config.adam_b2, weight_decay=config.weight_decay)


def _muon(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
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

    return muon(
        schedule(config, config.learning_rate, steps),
        ns_steps=config.ns_steps,
        weight_decay=config.weight_decay,
        adam_b2=config.adam_b2,
        adam_weight_decay=config.weight_decay,
        adam_learning_rate=schedule(config, config.adam_learning_rate, steps),
        muon_weight_dimension_numbers=muon_weights,
    )


def ema(average: Any, params: Any, decay: float, step: Any = None) -> Any:
    """Moving average. With `step` the decay grows with it so that the start is forgotten."""
    kept = decay if step is None else jnp.minimum(decay, (1.0 + step) / (10.0 + step))
    return jax.tree.map(lambda a, p: a + (1.0 - kept) * (p - a), average, params)


def average_step(config: OptimizerConfig, average: Any, params: Any, step: Any) -> Any:
    """The average after step `step` (from 0) left `params`; it moves only when they did."""
    updates = step if config.accumulate == 1 else step // config.accumulate
    moved = ema(average, params, config.ema, updates if config.ema_ramp else None)
    if config.accumulate == 1:
        return moved
    last = (step + 1) % config.accumulate == 0
    return jax.tree.map(lambda new, old: jnp.where(last, new, old), moved, average)
