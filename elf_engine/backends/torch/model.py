"""The ELF network in PyTorch (ELF.md, "Network"): one trunk, a denoise and a decode head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elf_engine.backends.torch.layers import Block, RmsNorm, ScalarEmbedder, rope_table
from elf_engine.config import NetworkSpec
from elf_engine.errors import ElfError


class TextProjection(nn.Module):
    """Bottleneck in front of the trunk: D -> bottleneck -> H."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.proj1 = nn.Linear(spec.embedding_dim, spec.bottleneck, bias=False)
        self.proj2 = nn.Linear(spec.bottleneck, spec.hidden)

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S H"]:
        out: Tensor = self.proj2(self.proj1(x))
        return out


class DenoiseHead(nn.Module):
    """RMSNorm, then H -> D."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.norm_final = RmsNorm(spec.hidden)
        self.linear = nn.Linear(spec.hidden, spec.embedding_dim)

    def forward(self, h: Float[Tensor, "B S H"]) -> Float[Tensor, "B S D"]:
        out: Tensor = self.linear(self.norm_final(h))
        return out


class Elf(nn.Module):
    """The network. `spec.guidance_tokens` 0 leaves out the guidance embedding,
    `spec.self_conditioning` False the self-condition input."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        hidden, width = spec.hidden, spec.embedding_dim
        if spec.self_conditioning:
            self.self_cond_proj = nn.Linear(2 * width, width)
        self.text_proj = TextProjection(spec)
        self.t_embedder = ScalarEmbedder(hidden)
        self.t_emb_tokens = nn.Parameter(torch.zeros(1, spec.time_tokens, hidden))
        if spec.guidance_tokens:
            self.self_cond_cfg_embedder = ScalarEmbedder(hidden)
            self.self_cond_cfg_tokens = nn.Parameter(torch.zeros(1, spec.guidance_tokens, hidden))
        self.mode_tokens = nn.Parameter(torch.zeros(1, spec.mode_tokens, hidden))
        self.blocks = nn.ModuleList(
            Block(hidden, spec.heads, spec.mlp_hidden) for _ in range(spec.depth)
        )
        self.final_layer = DenoiseHead(spec)
        self.proj_kernel = nn.Parameter(torch.zeros(hidden, width))
        self.proj_bias = nn.Parameter(torch.zeros(width))
        self.unembed_kernel = nn.Parameter(torch.zeros(width, spec.vocab))
        self.unembed_bias = nn.Parameter(torch.zeros(spec.vocab))

    def trunk(
        self,
        x: Float[Tensor, "B S C"],
        t: Float[Tensor, " B"],
        w: Float[Tensor, " B"] | None,
        valid: Bool[Tensor, "B S"] | None,
        decode: bool | Float[Tensor, " B"],
        positions: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B S H"]:
        """Final hidden state of the text positions, before any norm.

        x is `[z, x_prev]` (C = 2 D), or `z` alone (C = D) without self-conditioning; w is read
        only by models with guidance tokens; decode is the mode of all rows, or 1 or 0 for each;
        positions are those of RoPE, 0 to S - 1 where None. Raises ElfError beyond the model's
        length.
        """
        size, spec = x.shape[1], self.spec
        if size > spec.max_length:
            raise ElfError(f"{size} tokens are too many for this model; at most {spec.max_length}")
        dtype = self.proj_kernel.dtype
        text = x.to(dtype)
        if spec.self_conditioning:
            text = self.self_cond_proj(text)
        h = torch.cat([*self._prefix(t, w, decode), self.text_proj(text)], dim=1)
        rope = self._rope(size, positions, h.device)
        mask = None if valid is None else self._key_mask(valid, dtype)
        for block in self.blocks:
            h = block(h, rope, mask)
        return h[:, spec.prefix :]

    def clean_estimate(self, h: Float[Tensor, "B S H"]) -> Float[Tensor, "B S D"]:
        """Denoise head: x in float32."""
        x: Tensor = self.final_layer(h)
        return x.float()

    def token_logits(self, h: Float[Tensor, "B S H"]) -> Float[Tensor, "B S V"]:
        """Decode head: logits in float32."""
        embedding = F.gelu(h @ self.proj_kernel + self.proj_bias, approximate="tanh")
        return (embedding @ self.unembed_kernel + self.unembed_bias).float()

    def _prefix(self, t: Tensor, w: Tensor | None, decode: bool | Tensor) -> list[Tensor]:
        batch, dtype = t.shape[0], self.proj_kernel.dtype
        tokens = [self.t_emb_tokens + self.t_embedder(t, dtype)[:, None]]
        if self.spec.guidance_tokens:
            if w is None:
                raise ElfError("this model has guidance tokens; give a guidance scale")
            scale = self.self_cond_cfg_embedder(w, dtype)
            tokens.append(self.self_cond_cfg_tokens + scale[:, None])
        on = decode[:, None, None] if isinstance(decode, Tensor) else float(decode)
        return [*tokens, (self.mode_tokens * on).expand(batch, -1, -1)]

    def _rope(self, size: int, positions: Tensor | None, device: torch.device) -> Tensor:
        spec = self.spec
        width = spec.hidden // spec.heads
        if positions is None:
            return rope_table(spec.prefix, size, width, device)
        # Position 0 is no rotation, which is what the prefix has.
        every = rope_table(0, spec.max_length, width, device)
        return every[F.pad(positions, (spec.prefix, 0))]

    def _key_mask(self, valid: Tensor, dtype: torch.dtype) -> Tensor:
        """Added to the scores: -inf hides a key from every query; prefix keys are always seen."""
        seen = F.pad(valid, (self.spec.prefix, 0), value=True)
        zeros = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return zeros.masked_fill(~seen, float("-inf"))[:, None, None, :]
