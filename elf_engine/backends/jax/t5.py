"""T5 encoder in Flax: relative position buckets, unscaled scores, pre-RMSNorm."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from elf_engine.backends.jax.layers import RMSNorm
from elf_engine.config import EncoderSpec

BUCKETS, MAX_DISTANCE = 32, 128
LOWEST = float(np.finfo(np.float32).min)


def relative_buckets(offsets: Int[np.ndarray, "*A"]) -> Int[np.ndarray, "*A"]:
    """Bucket of key minus query position: half the buckets per sign, exact up to a quarter of
    them, then logarithmic up to MAX_DISTANCE (T5, Raffel et al. 2020, section 2.1)."""
    half, exact = BUCKETS // 2, BUCKETS // 4
    distance = np.abs(offsets)
    # float32 as in the published tables, so that bucket borders fall on the same offsets.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    ratio = ratio / np.float32(math.log(MAX_DISTANCE / exact)) * np.float32(half - exact)
    far = np.minimum(exact + ratio.astype(np.int32), half - 1)
    bucket = np.where(distance < exact, distance, far) + np.where(offsets > 0, half, 0)
    return np.asarray(bucket, np.int32)


class RelativeBias(nn.Module):
    """Learned bias per head and bucket, shared by all blocks."""

    heads: int

    @nn.compact
    def __call__(self, length: int) -> Float[Array, "N S S"]:
        table = self.param("rel_embedding", nn.initializers.normal(0.05), (BUCKETS, self.heads))
        position = np.arange(length)
        buckets = relative_buckets(position[None, :] - position[:, None])
        return jnp.transpose(table[buckets], (2, 0, 1))


class SelfAttention(nn.Module):
    """T5 self-attention: no scaling, no biases; the first block owns the position bias."""

    spec: EncoderSpec
    first: bool
    dtype: jnp.dtype

    def setup(self) -> None:
        e, inner = self.spec, self.spec.heads * self.spec.d_kv
        scale = nn.initializers.normal
        self.q = nn.Dense(
            inner, use_bias=False, kernel_init=scale((e.d_model * e.d_kv) ** -0.5), dtype=self.dtype
        )
        self.k = nn.Dense(
            inner, use_bias=False, kernel_init=scale(e.d_model**-0.5), dtype=self.dtype
        )
        self.v = nn.Dense(
            inner, use_bias=False, kernel_init=scale(e.d_model**-0.5), dtype=self.dtype
        )
        self.o = nn.Dense(
            e.d_model, use_bias=False, kernel_init=scale(inner**-0.5), dtype=self.dtype
        )
        if self.first:
            self.relative_attention_bias = RelativeBias(e.heads)

    def __call__(
        self, h: Float[Array, "B S D"], bias: Array | None, seen: Bool[Array, "B Q S"]
    ) -> tuple[Float[Array, "B S D"], Array]:
        b, s, _ = h.shape
        if bias is None:
            bias = self.relative_attention_bias(s)
        q, k, v = (p(h).reshape(b, s, self.spec.heads, -1) for p in (self.q, self.k, self.v))
        scores = jnp.einsum("bqnk,bsnk->bnqs", q, k, preferred_element_type=jnp.float32) + bias
        # The lowest finite number, not -inf: a row that may see nothing attends evenly.
        scores = jnp.where(seen[:, None], scores, LOWEST)
        weights = jax.nn.softmax(scores, axis=-1).astype(self.dtype)
        out = jnp.einsum("bnqs,bsnk->bqnk", weights, v).reshape(b, s, -1)
        return self.o(out), bias


class AttentionLayer(nn.Module):
    """h + attention(norm(h))."""

    spec: EncoderSpec
    first: bool
    dtype: jnp.dtype

    def setup(self) -> None:
        self.layer_norm = RMSNorm()
        self.SelfAttention = SelfAttention(self.spec, self.first, self.dtype)

    def __call__(
        self, h: Float[Array, "B S D"], bias: Array | None, seen: Bool[Array, "B Q S"]
    ) -> tuple[Float[Array, "B S D"], Array]:
        out, bias = self.SelfAttention(self.layer_norm(h), bias, seen)
        return h + out, bias


class DenseReluDense(nn.Module):
    """relu(h wi) wo, or gelu(h wi_0) * (h wi_1) wo when gated."""

    spec: EncoderSpec
    dtype: jnp.dtype

    def setup(self) -> None:
        e = self.spec
        wide = nn.initializers.normal(e.d_model**-0.5)
        if e.gated:
            self.wi_0 = nn.Dense(e.d_ff, use_bias=False, kernel_init=wide, dtype=self.dtype)
            self.wi_1 = nn.Dense(e.d_ff, use_bias=False, kernel_init=wide, dtype=self.dtype)
        else:
            self.wi = nn.Dense(e.d_ff, use_bias=False, kernel_init=wide, dtype=self.dtype)
        narrow = nn.initializers.normal(e.d_ff**-0.5)
        self.wo = nn.Dense(e.d_model, use_bias=False, kernel_init=narrow, dtype=self.dtype)

    def __call__(self, h: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        if self.spec.gated:
            inner = jax.nn.gelu(self.wi_0(h), approximate=True) * self.wi_1(h)
        else:
            inner = jax.nn.relu(self.wi(h))
        out: Array = self.wo(inner)
        return out


class FeedForwardLayer(nn.Module):
    """h + feed_forward(norm(h))."""

    spec: EncoderSpec
    dtype: jnp.dtype

    def setup(self) -> None:
        self.layer_norm = RMSNorm()
        self.DenseReluDense = DenseReluDense(self.spec, self.dtype)

    def __call__(self, h: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        out: Array = h + self.DenseReluDense(self.layer_norm(h))
        return out


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward."""

    spec: EncoderSpec
    first: bool
    dtype: jnp.dtype

    def setup(self) -> None:
        self.layer_0 = AttentionLayer(self.spec, self.first, self.dtype)
        self.layer_1 = FeedForwardLayer(self.spec, self.dtype)

    def __call__(
        self, h: Float[Array, "B S D"], bias: Array | None, seen: Bool[Array, "B Q S"]
    ) -> tuple[Float[Array, "B S D"], Array]:
        h, bias = self.layer_0(h, bias, seen)
        return self.layer_1(h), bias


class Stack(nn.Module):
    """Blocks and the final norm."""

    spec: EncoderSpec
    dtype: jnp.dtype

    def setup(self) -> None:
        self.block = [EncoderBlock(self.spec, i == 0, self.dtype) for i in range(self.spec.layers)]
        self.final_layer_norm = RMSNorm()

    def __call__(
        self, h: Float[Array, "B S D"], seen: Bool[Array, "B Q S"]
    ) -> Float[Array, "B S D"]:
        bias = None
        for block in self.block:
            h, bias = block(h, bias, seen)
        out: Array = self.final_layer_norm(h)
        return out


class Embedding(nn.Module):
    """Token table."""

    vocab: int
    width: int

    @nn.compact
    def __call__(self, ids: Int[Array, "B S"]) -> Float[Array, "B S D"]:
        init = nn.initializers.normal(1.0)
        table = self.param("embedding", init, (self.vocab, self.width))
        out: Array = table[ids]
        return out


class T5Encoder(nn.Module):
    """ids (B,S) -> last hidden state (B,S,D), float32.

    visible: (B,S) columns every row may see, or (B,S,S) per row; None means all.
    """

    spec: EncoderSpec
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        self.shared = Embedding(self.spec.vocab, self.spec.d_model)
        self.encoder = Stack(self.spec, self.dtype)

    def __call__(
        self, ids: Int[Array, "B S"], visible: Array | None = None
    ) -> Float[Array, "B S D"]:
        if visible is None:
            visible = jnp.ones(ids.shape, jnp.bool_)
        seen = visible.astype(jnp.bool_)
        seen = seen[:, None, :] if seen.ndim == 2 else seen
        h = self.encoder(self.shared(ids).astype(self.dtype), seen)
        return jnp.asarray(h, jnp.float32)
