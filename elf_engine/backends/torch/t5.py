"""The T5 encoder in PyTorch (Raffel et al. 2020; the v1.1 gated form of Shazeer 2020).

Own rather than transformers' for start-up time and because rows may look at different columns
(3-D visibility). Attribute names give the engine's weight names. Always float32.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elf_engine.backends.torch.layers import RmsNorm
from elf_engine.config import EncoderSpec

BUCKETS = 32
MAX_DISTANCE = 128
# Finite, so a row that sees nothing attends evenly instead of giving NaN; large enough that
# adding any score leaves it unchanged in float32.
HIDDEN = -1e30


def position_buckets(offset: Int[Tensor, " ..."]) -> Int[Tensor, " ..."]:
    """Bucket of key position minus query position: half the buckets per sign, of these half
    exact and half log-spaced up to MAX_DISTANCE."""
    half = BUCKETS // 2
    exact = half // 2
    distance = offset.abs()
    log_ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact)
    far = (exact + (log_ratio * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(distance < exact, distance, far) + half * (offset > 0)


def empty_embedding(rows: int, width: int) -> nn.Embedding:
    """A table without initial values: drawing them on the meta device imports torch._dynamo,
    which takes longer than loading the whole bundled model."""
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))


class SelfAttention(nn.Module):
    """T5 attention: no biases, scores unscaled, `bias` added to them."""

    def __init__(self, spec: EncoderSpec, relative: bool) -> None:
        super().__init__()
        self.heads = spec.heads
        inner = spec.heads * spec.d_kv
        self.q = nn.Linear(spec.d_model, inner, bias=False)
        self.k = nn.Linear(spec.d_model, inner, bias=False)
        self.v = nn.Linear(spec.d_model, inner, bias=False)
        self.o = nn.Linear(inner, spec.d_model, bias=False)
        if relative:
            self.relative_attention_bias = empty_embedding(BUCKETS, spec.heads)

    def forward(
        self, x: Float[Tensor, "B S d_model"], bias: Float[Tensor, "#B heads S S"]
    ) -> Float[Tensor, "B S d_model"]:
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(-2))
        return out


class FeedForward(nn.Module):
    """ReLU, or gated GELU (tanh approximation)."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.gated = spec.gated
        if spec.gated:
            self.wi_0 = nn.Linear(spec.d_model, spec.d_ff, bias=False)
            self.wi_1 = nn.Linear(spec.d_model, spec.d_ff, bias=False)
        else:
            self.wi = nn.Linear(spec.d_model, spec.d_ff, bias=False)
        self.wo = nn.Linear(spec.d_ff, spec.d_model, bias=False)

    def forward(self, x: Float[Tensor, "B S d_model"]) -> Float[Tensor, "B S d_model"]:
        if self.gated:
            inner = F.gelu(self.wi_0(x), approximate="tanh") * self.wi_1(x)
        else:
            inner = F.relu(self.wi(x))
        out: Tensor = self.wo(inner)
        return out


class AttentionLayer(nn.Module):
    """Pre-norm attention with residual."""

    def __init__(self, spec: EncoderSpec, relative: bool) -> None:
        super().__init__()
        self.layer_norm = RmsNorm(spec.d_model)
        self.SelfAttention = SelfAttention(spec, relative)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = x + self.SelfAttention(self.layer_norm(x), bias)
        return out


class FeedForwardLayer(nn.Module):
    """Pre-norm feed-forward with residual."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.layer_norm = RmsNorm(spec.d_model)
        self.DenseReluDense = FeedForward(spec)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.DenseReluDense(self.layer_norm(x))
        return out


class EncoderBlock(nn.Module):
    """Attention, then feed-forward."""

    def __init__(self, spec: EncoderSpec, relative: bool) -> None:
        super().__init__()
        self.layer = nn.ModuleList([AttentionLayer(spec, relative), FeedForwardLayer(spec)])

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        attend, feed = self.layer
        out: Tensor = feed(attend(x, bias))
        return out


class EncoderStack(nn.Module):
    """Blocks and final norm; block 0 holds the position bias all blocks share."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.block = nn.ModuleList(EncoderBlock(spec, i == 0) for i in range(spec.layers))
        self.final_layer_norm = RmsNorm(spec.d_model)

    def position_bias(self, size: int) -> Float[Tensor, "1 heads S S"]:
        """Added to every block's scores for rows of `size` tokens."""
        embedding = self.get_submodule("block.0.layer.0.SelfAttention.relative_attention_bias")
        places = torch.arange(size, device=self.final_layer_norm.weight.device)
        bias: Tensor = embedding(position_buckets(places[None, :] - places[:, None]))
        return bias.permute(2, 0, 1)[None]

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        for block in self.block:
            x = block(x, bias)
        out: Tensor = self.final_layer_norm(x)
        return out


class T5Encoder(nn.Module):
    """Token ids to hidden states."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.shared = empty_embedding(spec.vocab, spec.d_model)
        self.encoder = EncoderStack(spec)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        visible: Bool[Tensor, "B S"] | Bool[Tensor, "B S S"] | None,
    ) -> Float[Tensor, "B S d_model"]:
        """Last hidden state. visible hides columns from all rows (2-D) or per row (3-D); a row
        that sees nothing attends to every column alike."""
        bias = self.encoder.position_bias(ids.shape[1])
        if visible is not None:
            per_row = visible if visible.ndim == 3 else visible[:, None, :]
            bias = bias + torch.where(per_row, 0.0, HIDDEN)[:, None]
        out: Tensor = self.encoder(self.shared(ids), bias)
        return out
