"""Muon's orthogonalisation of many matrices at once, cheaper than one by one (Jordan 2024).

Newton-Schulz maps X to a X + b (X X^T) X + c (X X^T)^2 X, five times. Every factor is a polynomial
in the first Gram matrix, so for a matrix much longer than it is wide the long products are needed
only at the start and the end: X_5 = Q X_0 with Q and the Gram matrix updated at the short size.
All of these are symmetric; only the blocks on and above the diagonal are multiplied.
"""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp

from elf_engine.types import Array

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
EPS = 1e-8
BLOCK = 192  # smallest side of a block that is worth a product of its own
MOST_BLOCKS = 4
LONG = 1.5  # sides' ratio from which the short form is cheaper


def symmetric_product(x: Array, y: Array) -> Array:
    """x y^T (N,M,M) of x and y (N,M,K), known to be symmetric."""
    size = x.shape[1]
    blocks = min(MOST_BLOCKS, max(size // BLOCK, 1))
    edges = [size * i // blocks for i in range(blocks + 1)]
    parts = list(pairwise(edges))
    grid: list[list[Array]] = [[] for _ in parts]
    for i, (a, b) in enumerate(parts):
        # One product for a whole row of blocks, from the diagonal on.
        row = x[:, a:b] @ jnp.swapaxes(y[:, a:], 1, 2)
        for j in range(i):
            c, d = parts[j]
            above = grid[j][i]
            grid[i].append(jnp.swapaxes(above, 1, 2))
            assert above.shape[1:] == (d - c, b - a)
        grid[i] += [row[:, :, c - a : d - a] for c, d in parts[i:]]
    return jnp.concatenate([jnp.concatenate(row, axis=2) for row in grid], axis=1)


def orthogonalise(x: Array, steps: int = 5) -> Array:
    """Stacked matrices (N,M,K), M <= K, each near-orthogonal after `steps` iterations."""
    x = x / (jnp.linalg.norm(x, axis=(1, 2), keepdims=True) + EPS)
    if x.shape[2] < LONG * x.shape[1]:
        return _plain(x, steps)
    a, b, c = COEFFICIENTS
    gram, total = symmetric_product(x, x), None
    for step in range(steps):
        p = b * gram + c * symmetric_product(gram, gram) + a * jnp.eye(x.shape[1])
        total = p if total is None else symmetric_product(p, total)
        if step + 1 < steps:
            gram = symmetric_product(p, symmetric_product(p, gram))
    return total @ x


def _plain(x: Array, steps: int) -> Array:
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = symmetric_product(x, x)
        x = a * x + (b * gram + c * symmetric_product(gram, gram)) @ x
    return x
