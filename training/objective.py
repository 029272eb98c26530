"""The training objective (ELF.md, "Training"): velocity error in denoise mode, cross-entropy in
decode mode, from one forward pass over the whole batch and one more over its self-conditioned part.

A batch is laid out in rows as [decode | self-conditioned | plain denoise], so shapes never change
and no pass is made for a row that does not use it. The guided target reuses both passes: the
self-conditioned rows' own output (gradient stopped) is `v_cond`, the first pass is `v_uncond`.
A batch of one branch is the same with the other part empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import FlowSpec
from elf_engine.errors import ElfError
from elf_engine.flow import interpolate, velocity_from_x
from elf_engine.types import Array
from training.config import ObjectiveConfig

BRANCH_STREAM = 1  # keeps the choice of branch apart from the batch's own randomness
NO_OPTIONS = ObjectiveConfig()


class Inputs(NamedTuple):
    """One batch: token ids (B,S), clean latents x (B,S,D), known and valid (B,S), drop (B,), true
    where the condition is dropped, and rotary positions (B,S), None where they count from 0."""

    ids: Array
    x: Array
    known: Array
    valid: Array
    drop: Array
    positions: Array | None = None


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
    """Both branches in one batch, at least one row of each kind. Raises ElfError where the config
    wants one branch a step: `split_step` then knows which."""
    if config.branch != "example":
        raise ElfError("objective.branch 'step' has no split by rows; use 'example' here")
    decode = max(round(rows * config.decode_share), 1)
    return Split(decode, max(round((rows - decode) * config.self_cond_share), 1), rows)


def split_step(rows: int, config: ObjectiveConfig, seed: int, step: int) -> Split:
    """The split of step `step`, which fixes its branch where `config.branch` is "step"."""
    if config.branch == "example":
        return split_rows(rows, config)
    if np.random.default_rng([seed, step, BRANCH_STREAM]).random() < config.decode_share:
        return Split(rows, 0, rows)
    return Split(0, round(rows * config.self_cond_share), rows)


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


class _States(NamedTuple):
    """What the network sees of a batch, and the data's velocity: z and clean (B,S,D), clean being
    the known latents and zero elsewhere; velocity (N,S,D) and gap (N,1,1) of the denoise rows."""

    z: Array
    clean: Array
    velocity: Array
    gap: Array


def _states(
    inputs: Inputs, draws: Draws, split: Split, flow: FlowSpec, config: ObjectiveConfig
) -> _States:
    m, hold = split.decode, inputs.known[:, :, None]
    # A dropped condition is zero wherever it would be read.
    kept = jnp.where(hold & inputs.drop[:, None, None], 0.0, inputs.x)
    z_decode = interpolate(kept[:m], draws.decode_noise, draws.lam[:, :, None])
    t = draws.t[:, None, None]
    z = interpolate(inputs.x[m:], draws.noise, t)
    gap = jnp.maximum(1.0 - t, flow.t_eps)
    velocity = velocity_from_x(inputs.x[m:], z, gap)
    clean = jnp.where(hold, kept, 0.0)
    z = jnp.where(hold[m:], clean[m:], z)
    if config.decode_condition == "clean":
        z_decode = jnp.where(hold[:m], clean[:m], z_decode)
    return _States(jnp.concatenate([z_decode, z]), clean, velocity, gap)


def targets(inputs: Inputs, config: ObjectiveConfig) -> Array:
    """(B,S) float32, 1 at positions the losses average over: free ones, and with the "pad" mask
    only valid ones (EOS fill of a free region is valid)."""
    free = ~inputs.known if config.loss_mask == "eos" else inputs.valid & ~inputs.known
    return free.astype(jnp.float32)


def losses(
    params: Any,
    net: ELFNetwork,
    inputs: Inputs,
    draws: Draws,
    split: Split,
    flow: FlowSpec,
    config: ObjectiveConfig = NO_OPTIONS,
) -> tuple[Array, dict[str, Array]]:
    """(denoise + decode loss weighted by their rows, per-row losses and the two means).

    Both are averaged over `targets`. Of `config` only the options that are not draws are read.
    """
    m, n = split.decode, split.self_cond if net.spec.self_conditioning else 0
    conditioned, plain = slice(m, m + n), slice(m + n, None)
    z, clean, velocity, gap = _states(inputs, draws, split, flow, config)
    times = jnp.concatenate([jnp.ones((m,), jnp.float32), draws.t])
    decode = (jnp.arange(split.rows) < m).astype(jnp.float32)
    seen = inputs.valid if config.padding == "masked" else None

    def hidden(rows: slice, x_prev: Array) -> Array:
        both = jnp.concatenate([z[rows], x_prev], -1) if net.spec.self_conditioning else z[rows]
        valid, places = (None if a is None else a[rows] for a in (seen, inputs.positions))
        return net.apply(
            {"params": params}, both, times[rows], draws.w[rows], valid, decode[rows],
            positions=places, method="hidden",
        )  # fmt: skip

    def predict(h: Array) -> Array:
        return net.apply({"params": params}, h, method="predict_x")

    x_prev = x_init = clean[conditioned]
    if n:
        x_init = jax.lax.stop_gradient(predict(hidden(conditioned, x_prev)))
        x_prev = jnp.where(inputs.known[conditioned, :, None], x_prev, x_init)
    # Decoding sees a zero self-condition at every position, as at inference.
    previous = jnp.concatenate([jnp.zeros_like(clean[:m]), x_prev, clean[plain]])
    h = hidden(slice(None), previous)

    v, aim = velocity_from_x(predict(h[m:]), z[m:], gap), velocity
    if net.spec.guidance_tokens:
        v_uncond = velocity_from_x(x_init, z[conditioned], gap[:n])
        scale = (1.0 - 1.0 / draws.w[conditioned])[:, None, None]
        guided = velocity[:n] + scale * (jax.lax.stop_gradient(v[:n]) - v_uncond)
        aim = jnp.concatenate([guided, velocity[n:]])
    error = jnp.mean((v - aim) ** 2, axis=-1)
    plain_error = jnp.mean((v - velocity) ** 2, axis=-1)
    logits = net.apply({"params": params}, h[:m], method="predict_logits")
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, inputs.ids[:m])
    return _means((nll, error, plain_error), targets(inputs, config), split)


def _means(
    errors: tuple[Array, Array, Array], target: Array, split: Split
) -> tuple[Array, dict[str, Array]]:
    """Total loss and metrics from per-position errors: cross-entropy of the decode rows, guided
    and plain velocity error of the denoise rows."""
    nll, error, plain_error = errors
    m = split.decode
    decode_rows = (nll * target[:m]).sum(1)
    # A branch without a single target adds nothing.
    denoise = (error * target[m:]).sum() / jnp.maximum(target[m:].sum(), 1.0)
    decode = decode_rows.sum() / jnp.maximum(target[:m].sum(), 1.0)
    share = m / split.rows
    return (1.0 - share) * denoise + share * decode, {
        "denoise": denoise,
        "decode": decode,
        "per_row": jnp.concatenate([decode_rows, (plain_error * target[m:]).sum(1)]),
        "targets": target.sum(1),
    }
