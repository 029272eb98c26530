"""The matrix products of one network pass, and running them with nothing in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from elf_engine.config import NetworkSpec

TIME_FEATURES = 256  # sinusoidal features of a time or a scale


@dataclass(frozen=True)
class Product:
    """(batch, rows, inner) x (batch, inner, columns); a batch of 0 is a plain 2-D product."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flop(self) -> int:
        """Multiplications and additions."""
        return 2 * max(self.batch, 1) * self.rows * self.inner * self.columns


def denoise_products(spec: NetworkSpec, batch: int, length: int) -> list[Product]:
    """Every product of one denoising pass over `batch` rows of `length` text tokens."""
    return [*_trunk(spec, batch, length), Product(0, batch * length, spec.hidden, _d(spec))]


def decode_products(spec: NetworkSpec, batch: int, length: int) -> list[Product]:
    """Every product of one decoding pass."""
    tokens, d = batch * length, _d(spec)
    heads = [Product(0, tokens, spec.hidden, d), Product(0, tokens, d, spec.vocab)]
    return [*_trunk(spec, batch, length), *heads]


def _d(spec: NetworkSpec) -> int:
    return spec.embedding_dim


def _trunk(spec: NetworkSpec, batch: int, length: int) -> Iterator[Product]:
    tokens, h, d = batch * length, spec.hidden, _d(spec)
    if spec.self_conditioning:
        yield Product(0, tokens, 2 * d, d)
    yield Product(0, tokens, d, spec.bottleneck)
    yield Product(0, tokens, spec.bottleneck, h)
    for embedded in (spec.time_tokens, spec.guidance_tokens):
        if embedded:
            yield Product(0, batch, TIME_FEATURES, h)
            yield Product(0, batch, h, h)
    whole = spec.prefix + length
    for _ in range(spec.depth):
        yield Product(0, batch * whole, h, 3 * h)
        yield Product(batch * spec.heads, whole, h // spec.heads, whole)
        yield Product(batch * spec.heads, whole, whole, h // spec.heads)
        yield Product(0, batch * whole, h, h)
        yield Product(0, batch * whole, h, 2 * spec.mlp_hidden)
        yield Product(0, batch * whole, spec.mlp_hidden, h)


def runner(library: str, products: list[Product]) -> Callable[[], None]:
    """A function that does all `products` in float32 with `library` and waits for them.

    Every product has a right-hand side of its own, as every layer has its own weights; products
    of one shape share their left-hand side.
    """
    draw = np.random.default_rng(0)
    lefts: dict[tuple[int, ...], Any] = {}
    pairs = []
    for p in products:
        front = (p.batch,) if p.batch else ()
        left = lefts.setdefault((*front, p.rows, p.inner), None)
        if left is None:
            left = draw.standard_normal((*front, p.rows, p.inner), dtype=np.float32)
            lefts[(*front, p.rows, p.inner)] = left
        right = draw.standard_normal((*front, p.inner, p.columns), dtype=np.float32)
        pairs.append((left, right))
    return _RUNNERS[library](pairs)


def _jax(pairs: list[tuple[Any, Any]]) -> Callable[[], None]:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def everything(pairs: list[tuple[Any, Any]]) -> list[Any]:
        # The barrier keeps each product whole although one number of it is used.
        return [jax.lax.optimization_barrier(a @ b)[..., :1, :1] for a, b in pairs]

    put: dict[int, Any] = {}
    held = [(put.setdefault(id(a), jnp.asarray(a)), jnp.asarray(b)) for a, b in pairs]
    return lambda: jax.block_until_ready(everything(held)) and None


def _torch(pairs: list[tuple[Any, Any]]) -> Callable[[], None]:
    import torch

    held = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in pairs]

    def run() -> None:
        with torch.inference_mode():
            for a, b in held:
                torch.matmul(a, b)

    return run


_RUNNERS: dict[str, Callable[[list[tuple[Any, Any]]], Callable[[], None]]] = {
    "jax": _jax,
    "torch": _torch,
}
