"""Layers of the ELF network in Flax; names and shapes are the engine's weight names."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

EPS = 1e-6
XAVIER = nn.initializers.xavier_uniform()
NORMAL = nn.initializers.normal(0.02)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, statistics in float32."""

    @nn.compact
    def __call__(self, x: Float[Array, "*A H"]) -> Float[Array, "*A H"]:
        weight = self.param("weight", nn.initializers.ones, (x.shape[-1],))
        x32 = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + EPS)
        return (x32 * scale * weight).astype(x.dtype)


class ScalarEmbedder(nn.Module):
    """Embeds a scalar: [cos, sin] of 128 frequencies each on the raw value -> MLP."""

    hidden: int
    dtype: jnp.dtype

    def setup(self) -> None:
        self.mlp_0 = nn.Dense(self.hidden, kernel_init=NORMAL, dtype=self.dtype)
        self.mlp_2 = nn.Dense(self.hidden, kernel_init=NORMAL, dtype=self.dtype)

    def __call__(self, value: Float[Array, " B"]) -> Float[Array, "B H"]:
        half = 128
        freqs = jnp.exp(-math.log(10000.0) * jnp.arange(half, dtype=jnp.float32) / half)
        angles = value.astype(jnp.float32)[:, None] * freqs
        features = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        out: Array = self.mlp_2(nn.silu(self.mlp_0(features)))
        return out


class Bottleneck(nn.Module):
    """Input projection D -> bottleneck (no bias) -> H."""

    bottleneck: int
    hidden: int
    dtype: jnp.dtype

    def setup(self) -> None:
        self.proj1 = nn.Dense(self.bottleneck, use_bias=False, kernel_init=XAVIER, dtype=self.dtype)
        self.proj2 = nn.Dense(self.hidden, kernel_init=XAVIER, dtype=self.dtype)

    def __call__(self, x: Float[Array, "B S D"]) -> Float[Array, "B S H"]:
        out: Array = self.proj2(self.proj1(x))
        return out


def rope_tables(positions: Int[Array, "*B S"], width: int) -> tuple[Array, Array]:
    """cos and sin (*B, S, width/2) of the angles at `positions`; at 0 nothing is rotated."""
    freqs = 10000.0 ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angles = positions[..., None].astype(jnp.float32) * freqs
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Float[Array, "B S N K"], cos: Array, sin: Array) -> Float[Array, "B S N K"]:
    """Rotary embedding on interleaved pairs (x0, x1), (x2, x3), ..., in float32."""
    pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    cos, sin = cos[..., None, :], sin[..., None, :]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


class Attention(nn.Module):
    """Multi-head attention with q/k RMSNorm and rotary positions; softmax in float32."""

    hidden: int
    heads: int
    dropout: float
    dtype: jnp.dtype

    def setup(self) -> None:
        self.qkv = nn.Dense(3 * self.hidden, kernel_init=XAVIER, dtype=self.dtype)
        self.proj = nn.Dense(self.hidden, kernel_init=XAVIER, dtype=self.dtype)
        self.q_norm = RMSNorm()
        self.k_norm = RMSNorm()
        self.drop = nn.Dropout(self.dropout)

    def __call__(
        self,
        h: Float[Array, "B S H"],
        rope: tuple[Array, Array],
        valid: Bool[Array, "B S"] | None,
        deterministic: bool,
    ) -> Float[Array, "B S H"]:
        b, s, _ = h.shape
        qkv = self.qkv(h).reshape(b, s, 3, self.heads, self.hidden // self.heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        q = rotate(self.q_norm(q), *rope).astype(self.dtype)
        k = rotate(self.k_norm(k), *rope).astype(self.dtype)
        scores = jnp.einsum("bqnk,bsnk->bnqs", q, k, preferred_element_type=jnp.float32)
        scores = scores * (self.hidden // self.heads) ** -0.5
        if valid is not None:
            scores = jnp.where(valid[:, None, None, :], scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(self.dtype)
        out = jnp.einsum("bnqs,bsnk->bqnk", weights, v).reshape(b, s, self.hidden)
        dropped: Array = self.drop(self.proj(out), deterministic=deterministic)
        return dropped


class SwiGLU(nn.Module):
    """w3(silu(a) * b) with [a, b] = w12(h)."""

    hidden: int
    inner: int
    dropout: float
    dtype: jnp.dtype

    def setup(self) -> None:
        self.w12 = nn.Dense(2 * self.inner, kernel_init=XAVIER, dtype=self.dtype)
        self.w3 = nn.Dense(self.hidden, kernel_init=XAVIER, dtype=self.dtype)
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, h: Float[Array, "B S H"], deterministic: bool) -> Float[Array, "B S H"]:
        a, b = jnp.split(self.w12(h), 2, axis=-1)
        out: Array = self.drop(self.w3(nn.silu(a) * b), deterministic=deterministic)
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    hidden: int
    heads: int
    inner: int
    dropout: float
    dtype: jnp.dtype

    def setup(self) -> None:
        self.norm1 = RMSNorm()
        self.attn = Attention(self.hidden, self.heads, self.dropout, self.dtype)
        self.norm2 = RMSNorm()
        self.mlp = SwiGLU(self.hidden, self.inner, self.dropout, self.dtype)

    def __call__(
        self,
        h: Float[Array, "B S H"],
        rope: tuple[Array, Array],
        valid: Bool[Array, "B S"] | None,
        deterministic: bool,
    ) -> Float[Array, "B S H"]:
        h = h + self.attn(self.norm1(h), rope, valid, deterministic)
        out: Array = h + self.mlp(self.norm2(h), deterministic)
        return out


class FinalLayer(nn.Module):
    """Denoise head: RMSNorm -> Linear H -> D, zero at initialisation."""

    embedding_dim: int
    dtype: jnp.dtype

    def setup(self) -> None:
        self.norm_final = RMSNorm()
        self.linear = nn.Dense(
            self.embedding_dim, kernel_init=nn.initializers.zeros, dtype=self.dtype
        )

    def __call__(self, h: Float[Array, "B S H"]) -> Float[Array, "B S D"]:
        out: Array = self.linear(self.norm_final(h))
        return out
