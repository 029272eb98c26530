"""The training objective (ELF.md, "Training"): velocity error in denoise mode, cross-entropy in
decode mode, from one forward pass over the whole batch and one more over its self-conditioned part.

A batch is laid out in rows as [decode | self-conditioned | plain denoise], so shapes never change
and no pass is made for a row that does not use it. The guided target reuses both passes: the
self-conditioned rows' own output (gradient stopped) is `v_cond`, the first pass is `v_uncond`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import FlowSpec
from elf_engine.flow import interpolate, velocity_from_x
from elf_engine.types import Array
from training.config import ObjectiveConfig


class Inputs(NamedTuple):
    """One batch: token ids (B,S), clean latents x (B,S,D), known and valid (B,S), and drop (B,),
    true where the condition is dropped."""

    ids: Array
    x: Array
    known: Array
    valid: Array
    drop: Array


class Draws(NamedTuple):
    """All randomness of a step: w (B,); t (N,) and noise (N,S,D) of the N denoise rows; lam (M,S)
    and decode_noise (M,S,D) of the M decode rows. Noises are already scaled."""

    t: Array
    w: Array
    noise: Array
    lam: Array
    decode_noise: Array


@dataclass(frozen=True)
class Split:
    """How many rows of a batch decode, are self-conditioned, and are in it at all."""

    decode: int
    self_cond: int
    rows: int


def split_rows(rows: int, config: ObjectiveConfig) -> Split:
    """At least one row of each kind."""
    decode = max(round(rows * config.decode_share), 1)
    return Split(decode, max(round((rows - decode) * config.self_cond_share), 1), rows)


def logit_normal(normals: Array, mean: float, std: float) -> Array:
    """Values in (0, 1) whose logit is N(mean, std), from unit normals."""
    return jax.nn.sigmoid(mean + std * normals)


def guidance_scale(u: Array, low: float, high: float) -> Array:
    """w in [low, high], log-uniform in 1 + w, from u uniform in [0, 1)."""
    start, stop = jnp.log1p(low), jnp.log1p(high)
    return jnp.expm1(start + u * (stop - start))


def draw(key: Array, shape: tuple[int, int, int], split: Split, flow: FlowSpec,
         config: ObjectiveConfig) -> Draws:  # fmt: skip
    """Random numbers for a batch of `shape` (B,S,D)."""
    _, s, d = shape
    n = split.rows - split.decode
    kt, kw, kn, kl, kd = jax.random.split(key, 5)
    t = logit_normal(jax.random.normal(kt, (n,)), flow.p_mean, flow.p_std)
    w = guidance_scale(jax.random.uniform(kw, (split.rows,)), config.w_min, config.w_max)
    lam = jax.random.normal(kl, (split.decode, s))
    return Draws(
        t,
        w,
        flow.noise_scale * jax.random.normal(kn, (n, s, d)),
        logit_normal(lam, config.lambda_mean, config.lambda_std),
        config.decode_noise * jax.random.normal(kd, (split.decode, s, d)),
    )


def losses(
    params: Any, net: ELFNetwork, inputs: Inputs, draws: Draws, split: Split, flow: FlowSpec
) -> tuple[Array, dict[str, Array]]:
    """(denoise + decode loss weighted by their rows, per-row losses and the two means).

    Both are averaged over target positions: free and valid, EOS fill included.
    """
    variables = {"params": params}
    m, k = split.decode, split.decode + split.self_cond
    hold = inputs.known[:, :, None]
    clean = jnp.where(hold & ~inputs.drop[:, None, None], inputs.x, 0.0)
    target = (inputs.valid & ~inputs.known).astype(jnp.float32)

    lam = draws.lam[:, :, None]
    z_decode = interpolate(inputs.x[:m], draws.decode_noise, lam)
    t = draws.t[:, None, None]
    z = interpolate(inputs.x[m:], draws.noise, t)
    gap = jnp.maximum(1.0 - t, flow.t_eps)
    velocity = velocity_from_x(inputs.x[m:], z, gap)
    z = jnp.where(hold, clean, jnp.concatenate([z_decode, z]))

    times = jnp.concatenate([jnp.ones((m,), jnp.float32), draws.t])
    decode = (jnp.arange(split.rows) < m).astype(jnp.float32)
    first = jnp.where(hold, clean, 0.0)

    def hidden(rows: slice, x_prev: Array) -> Array:
        both = jnp.concatenate([z[rows], x_prev], -1)
        return net.apply(
            variables, both, times[rows], draws.w[rows], inputs.valid[rows], decode[rows],
            method="hidden",
        )  # fmt: skip

    def predict(h: Array) -> Array:
        return net.apply(variables, h, method="predict_x")

    conditioned = slice(m, k)
    x_init = jax.lax.stop_gradient(predict(hidden(conditioned, first[conditioned])))
    x_prev = jnp.where(hold[conditioned], clean[conditioned], x_init)
    # Decoding sees a zero self-condition at every position, as at inference.
    previous = jnp.concatenate([jnp.zeros_like(first[:m]), x_prev, first[k:]])
    h = hidden(slice(0, split.rows), previous)

    v = velocity_from_x(predict(h[m:]), z[m:], gap)
    n = split.self_cond
    v_uncond = velocity_from_x(x_init, z[conditioned], gap[:n])
    scale = (1.0 - 1.0 / draws.w[conditioned])[:, None, None]
    guided = velocity[:n] + scale * (jax.lax.stop_gradient(v[:n]) - v_uncond)
    error = jnp.mean((v - jnp.concatenate([guided, velocity[n:]])) ** 2, axis=-1)
    plain_error = jnp.mean((v - velocity) ** 2, axis=-1)
    logits = net.apply(variables, h[:m], method="predict_logits")
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, inputs.ids[:m])

    return _means((nll, error, plain_error), target, split)


def _means(
    errors: tuple[Array, Array, Array], target: Array, split: Split
) -> tuple[Array, dict[str, Array]]:
    """Total loss and metrics from per-position errors: cross-entropy of the decode rows, guided
    and plain velocity error of the denoise rows."""
    nll, error, plain_error = errors
    m = split.decode
    decode_rows = (nll * target[:m]).sum(1)
    denoise = (error * target[m:]).sum() / target[m:].sum()
    decode = decode_rows.sum() / target[:m].sum()
    share = m / split.rows
    return (1.0 - share) * denoise + share * decode, {
        "denoise": denoise,
        "decode": decode,
        "per_row": jnp.concatenate([decode_rows, (plain_error * target[m:]).sum(1)]),
        "targets": target.sum(1),
    }
