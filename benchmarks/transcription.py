"""One denoise step as the method is written down, pass by pass: what `training.step` is measured
against. Same losses, same update; every pass over every row, Muon one matrix after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers, muon

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import FlowSpec
from elf_engine.flow import interpolate, velocity_from_x
from elf_engine.types import Array
from training.objective import Draws, Inputs, Split


def loss(
    params: Any, net: ELFNetwork, inputs: Inputs, draws: Draws, split: Split, flow: FlowSpec
) -> Array:
    """ELF.md, "Training": denoise loss with self-condition and guided target, all rows denoised."""
    t = draws.t[:, None, None]
    gap = jnp.maximum(1.0 - t, flow.t_eps)
    z = interpolate(inputs.x, draws.noise, t)
    use = (jnp.arange(split.rows) < split.self_cond)[:, None, None]
    zeros, mode = jnp.zeros_like(z), jnp.zeros_like(draws.t)

    def predict(x_prev: Array) -> Array:
        both = jnp.concatenate([z, x_prev], -1)
        x: Array = net.apply({"params": params}, both, draws.t, draws.w, None, mode)[0]
        return x

    x_prev = jnp.where(use, jax.lax.stop_gradient(predict(zeros)), 0.0)
    v_cond = velocity_from_x(predict(x_prev), z, gap)
    v_uncond = velocity_from_x(predict(zeros), z, gap)
    change = (1.0 - 1.0 / draws.w)[:, None, None] * (v_cond - v_uncond)
    target = velocity_from_x(inputs.x, z, gap) + jnp.where(use, change, 0.0)
    v = velocity_from_x(predict(x_prev), z, gap)
    return ((v - jax.lax.stop_gradient(target)) ** 2).mean()


def optimizer(rate: float) -> optax.GradientTransformation:
    """Clipping and optax's Muon for every matrix, Adam for the rest."""

    def dims(tree: Any) -> Any:
        return jax.tree.map(lambda a: MuonDimensionNumbers() if a.ndim == 2 else None, tree)

    rule = muon(rate, adam_learning_rate=rate, muon_weight_dimension_numbers=dims)
    return optax.chain(optax.clip_by_global_norm(1.0), rule)
