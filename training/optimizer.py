"""Muon with Adam, or AdamW; clipping, warm-up, accumulation; the moving average of the weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from training.config import OptimizerConfig
from training.muon import Rates, muon
from training.objective import Split

DENOISE_ONLY = (
    "final_layer/linear/kernel",
    "final_layer/linear/bias",
    "final_layer/norm_final/weight",
)
DECODE_ONLY = ("mode_tokens", "proj_kernel", "proj_bias", "unembed_kernel", "unembed_bias")


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
        rule = optax.GradientTransformationExtraArgs(several.init, several.update)
    return optax.chain(clip, rule)


def _adamw(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    rate = schedule(config, config.adam_learning_rate, steps)
    return optax.adamw(rate, b2=config.adam_b2, weight_decay=config.weight_decay)


def _muon(config: OptimizerConfig, steps: int) -> optax.GradientTransformationExtraArgs:
    def is_matrix(name: str, weight: Any) -> bool:
        return weight.ndim == 2 and not name.endswith(config.adam_for)

    rates = Rates(
        schedule(config, config.learning_rate, steps),
        schedule(config, config.adam_learning_rate, steps),
    )
    return muon(rates, is_matrix, config.ns_steps, config.adam_b2, config.weight_decay)


def idle(config: OptimizerConfig, split: Split) -> tuple[str, ...]:
    """Parameters that a step of this split does not reach and that are to stay where they are:
    the other branch's head, and, without decode rows, what marks decode mode."""
    if config.kind != "muon" or config.untaken == "move" or config.accumulate > 1:
        return ()
    if split.decode == split.rows:
        return DENOISE_ONLY
    return DECODE_ONLY if split.decode == 0 else ()


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
