"""Building blocks of the ELF network in PyTorch (ELF.md, "Network").

Linear layers run in the compute dtype (that of their weights); norm statistics, rotation and
softmax in float32. Dropout is a training matter and lives in the JAX trainer only.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor, nn

FREQUENCIES = 128  # sinusoidal features: 128 cosines, then 128 sines
MAX_PERIOD = 10000.0
ROPE_THETA = 10000.0
NORM_EPS = 1e-6


def rms_norm(
    x: Float[Tensor, "*axes W"], weight: Float[Tensor, "*#axes W"]
) -> Float[Tensor, "*axes W"]:
    """`x / sqrt(mean(x^2) + 1e-6) * weight` over the last axis, in float32."""
    x = x.float()
    # The norm in one pass; `F.rms_norm` squares into a temporary on the CPU.
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.rsqrt(size.square() / x.shape[-1] + NORM_EPS) * weight


class RmsNorm(nn.Module):
    """`rms_norm` with its weight, back in the type of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*axes W"]) -> Float[Tensor, "*axes W"]:
        return rms_norm(x, self.weight).to(x.dtype)


class ScalarEmbedder(nn.Module):
    """Embeds one number per row (time, or guidance scale) into H features."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * FREQUENCIES, hidden), nn.SiLU(), nn.Linear(hidden, hidden)
        )

    def forward(self, value: Float[Tensor, " B"], dtype: torch.dtype) -> Float[Tensor, "B H"]:
        steps = torch.arange(FREQUENCIES, dtype=torch.float32, device=value.device)
        angles = value.float()[:, None] * torch.exp(steps * (-math.log(MAX_PERIOD) / FREQUENCIES))
        features = torch.cat([angles.cos(), angles.sin()], dim=-1)
        # A lone row would go through another matrix routine and differ in its last bits from the
        # same row in company.
        rows = len(features)
        embedded: Tensor = self.mlp(features.expand(max(rows, 2), -1).to(dtype))[:rows]
        return embedded


@lru_cache(maxsize=32)
def rope_table(
    prefix: int, length: int, head_dim: int, device: torch.device
) -> Complex[Tensor, "N 1 1 pairs"]:
    """Unit complex rotations (prefix + length, 1, 1, head_dim / 2).

    Prefix rows are 1 (no rotation); text positions count from 0.
    """
    frequencies = ROPE_THETA ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.arange(length)[:, None] * frequencies
    table = np.concatenate([np.ones((prefix, head_dim // 2)), np.exp(1j * angles)])
    # A cached table may first be asked for in inference mode; keep it usable outside.
    with torch.inference_mode(False):
        return torch.from_numpy(table.astype(np.complex64)[:, None, None]).to(device)


def rotate(
    x: Float[Tensor, "B N 2 heads head_dim"], table: Complex[Tensor, "*#B N 1 1 pairs"]
) -> Float[Tensor, "B N 2 heads head_dim"]:
    """Rotary embedding (RoPE) of interleaved pairs (x0, x1), (x2, x3), ... of float32 q and k."""
    pairs = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(-2)


class Cache:
    """Keys and values of the tokens one attention layer has seen, at most `capacity` a row."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.size = capacity, 0
        self._held: list[Tensor] = []

    def extend(
        self, k: Float[Tensor, "B heads N W"], v: Float[Tensor, "B heads N W"]
    ) -> tuple[Float[Tensor, "B heads K W"], Float[Tensor, "B heads K W"]]:
        """All keys and values, these last."""
        if not self._held:
            shape = (*k.shape[:2], self.capacity, k.shape[3])
            self._held = [k.new_empty(shape), v.new_empty(shape)]
        start, self.size = self.size, self.size + k.shape[2]
        for held, new in zip(self._held, (k, v), strict=True):
            held[:, :, start : self.size] = new
        keys, values = (held[:, :, : self.size] for held in self._held)
        return keys, values


class Attention(nn.Module):
    """Multi-head self-attention with RMSNorm on every head's q and k, and RoPE."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.q_norm = RmsNorm(hidden // heads)
        self.k_norm = RmsNorm(hidden // heads)
        self.proj = nn.Linear(hidden, hidden)

    def forward(
        self,
        x: Float[Tensor, "B N H"],
        rope: Complex[Tensor, "*#B N 1 1 pairs"],
        mask: Float[Tensor, "B 1 #N K"] | None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B N H"]:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        weight = torch.stack([self.q_norm.weight, self.k_norm.weight])[:, None]
        # q and k together: (B, N, 2, heads, head_dim) halves the number of small kernels.
        q, k = rotate(rms_norm(qkv[:, :, :2], weight), rope).to(x.dtype).transpose(1, 3).unbind(2)
        v = qkv[:, :, 2].transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        projected: Tensor = self.proj(mixed.transpose(1, 2).flatten(-2))
        return projected


class SwiGlu(nn.Module):
    """`w3(silu(a) * b)` with `a, b` the halves of `w12(x)`."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(hidden, 2 * inner)
        self.w3 = nn.Linear(inner, hidden)

    def forward(self, x: Float[Tensor, "B N H"]) -> Float[Tensor, "B N H"]:
        gate, value = self.w12(x).chunk(2, dim=-1)
        out: Tensor = self.w3(F.silu(gate) * value)
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm1 = RmsNorm(hidden)
        self.attn = Attention(hidden, heads)
        self.norm2 = RmsNorm(hidden)
        self.mlp = SwiGlu(hidden, inner)

    def forward(
        self,
        x: Float[Tensor, "B N H"],
        rope: Complex[Tensor, "*#B N 1 1 pairs"],
        mask: Float[Tensor, "B 1 #N K"] | None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B N H"]:
        x = x + self.attn(self.norm1(x), rope, mask, cache)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out
