"""Muon for matrices and Adam for the rest, with Nesterov momentum, as optax writes them (Jordan
2024), in less work: matrices of one shape are orthogonalised together (`training.newton_schulz`),
and parameters that a step does not reach can be left out of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from elf_engine.types import Array
from elf_engine.weights import flatten, unflatten
from training.newton_schulz import orthogonalise

BETA, ADAM_B1, ADAM_EPS = 0.95, 0.9, 1e-8
Named = dict[str, Array]


class MuonState(NamedTuple):
    """First moments of all parameters, second ones of those Adam updates, how often each was
    updated (trees like the parameters'), and the number of updates in all, which the rates
    follow."""

    mu: Any
    nu: Any
    updates: Any
    count: Array


class Rates(NamedTuple):
    """Learning rates by update, of matrices and of the rest."""

    muon: optax.Schedule
    adam: optax.Schedule


def muon(
    rates: Rates,
    is_matrix: Callable[[str, Array], bool],
    ns_steps: int = 5,
    adam_b2: float = 0.999,
    weight_decay: float = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """The rule. `update(..., idle=names)` leaves the named parameters and their moments as they
    are; without it they move on by momentum, as published."""

    def init(params: Any) -> MuonState:
        flat = flatten(params)
        rest = {k: jnp.zeros_like(p) for k, p in flat.items() if not is_matrix(k, p)}
        zero = jnp.zeros((), jnp.int32)
        mu = {k: jnp.zeros_like(p) for k, p in flat.items()}
        counts = dict.fromkeys(flat, zero)
        return MuonState(unflatten(mu), unflatten(rest), unflatten(counts), zero)

    def update(
        grads: Any, state: MuonState, params: Any = None, *, idle: tuple[str, ...] = (), **_: Any
    ) -> tuple[Any, MuonState]:
        flat = flatten(grads)
        moving = {k: g for k, g in flat.items() if k not in idle}
        updates = {k: n + (k in moving) for k, n in flatten(state.updates).items()}
        mu, nu = dict(flatten(state.mu)), dict(flatten(state.nu))
        matrices: Named = {}
        change: Named = {k: jnp.zeros_like(g) for k, g in flat.items() if k in idle}
        for name, g in moving.items():
            n, matrix = updates[name], name not in nu
            beta = BETA if matrix else ADAM_B1
            mu[name] = beta * mu[name] + (1 - beta) * g
            ahead = _look_ahead(mu[name], g, beta, n)
            if matrix:
                matrices[name] = ahead
                continue
            nu[name] = adam_b2 * nu[name] + (1 - adam_b2) * g * g
            root = jnp.sqrt(nu[name] / (1 - adam_b2**n)) + ADAM_EPS
            change[name] = -rates.adam(state.count) * ahead / root
        for name, step in orthogonal(matrices, ns_steps).items():
            change[name] = -rates.muon(state.count) * step
        if weight_decay:
            for name, p in flatten(params).items():
                if name in idle:
                    continue
                rate = (rates.adam if name in nu else rates.muon)(state.count)
                change[name] -= weight_decay * rate * p
        moved = MuonState(unflatten(mu), unflatten(nu), unflatten(updates), state.count + 1)
        return unflatten(change), moved

    return optax.GradientTransformationExtraArgs(init, update)


def _look_ahead(mu: Array, g: Array, beta: float, n: Array) -> Array:
    """Nesterov's momentum after update `n` (from 1), bias-corrected."""
    return mu * (beta / (1 - beta ** (n + 1))) + g * ((1 - beta) / (1 - beta**n))


def orthogonal(matrices: Named, ns_steps: int) -> Named:
    """Each matrix (in, out) near-orthogonal, times sqrt(max(1, out / in)); those of the same two
    sides in one batch, the short side first."""
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, m in matrices.items():
        groups[tuple(sorted(m.shape))].append(name)
    done: Named = {}
    for names in groups.values():
        stack = [matrices[k] if _lies(matrices[k]) else matrices[k].T for k in names]
        for name, x in zip(names, orthogonalise(jnp.stack(stack), ns_steps), strict=True):
            rows, columns = matrices[name].shape
            x = x if _lies(matrices[name]) else x.T
            done[name] = max(1.0, columns / rows) ** 0.5 * x
    return done


def _lies(matrix: Array) -> bool:
    return bool(matrix.shape[0] <= matrix.shape[1])
