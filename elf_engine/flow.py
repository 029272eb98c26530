"""The equations of the flow and nothing else (ELF.md, "Flow").

`t` and `gap` are anything that broadcasts against (B,S,D): a float, or an array such as (B,1,1).
"""

from __future__ import annotations

from elf_engine.types import Array


def interpolate(x: Array, noise: Array, t: Array | float) -> Array:
    """z_t = t x + (1 - t) noise, with `noise` already multiplied by the noise scale."""
    return t * x + (1 - t) * noise


def velocity_from_x(x: Array, z: Array, gap: Array | float) -> Array:
    """v = (x - z) / gap, where the caller floors gap = max(1 - t, t_eps)."""
    return (x - z) / gap


def euler(z: Array, v: Array, dt: Array | float) -> Array:
    """z + dt v: one step of the probability-flow ODE."""
    return z + dt * v


def renoise(z: Array, noise: Array, alpha: Array | float) -> Array:
    """alpha z + (1 - alpha) noise: the SDE's step back from t to alpha t, as published.

    The two noises add in quadrature, so the marginal is not kept exactly (ELF.md, "Behaviour").
    """
    return alpha * z + (1 - alpha) * noise


def jump_back(z: Array, noise: Array, t: Array, t_back: Array) -> Array:
    """z_t taken back to t_back < t with just the fresh noise that keeps the marginal: the noise of
    (t_back / t) z_t and the fresh one add in quadrature to that of t_back."""
    alpha = t_back / t
    fresh = (1 - t_back) ** 2 - (alpha * (1 - t)) ** 2
    return alpha * z + fresh**0.5 * noise


def mix(without: Array, with_: Array, scale: Array | float) -> Array:
    """Classifier-free guidance: without + scale (with - without)."""
    return without + scale * (with_ - without)
