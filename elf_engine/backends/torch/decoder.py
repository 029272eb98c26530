"""The autoregressive baseline in PyTorch: the ELF network's blocks with causal attention, between
one token table that reads and names tokens (Press and Wolf 2017).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elf_engine.backends.torch.layers import Block, Cache, RmsNorm, rope_table
from elf_engine.config import DecoderSpec
from elf_engine.errors import ElfError


class Decoder(nn.Module):
    """Token ids to the logits of each next token."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.spec = spec
        self.shared = nn.Embedding(spec.vocab, spec.hidden)
        self.blocks = nn.ModuleList(
            Block(spec.hidden, spec.heads, spec.mlp_hidden) for _ in range(spec.depth)
        )
        self.norm_final = RmsNorm(spec.hidden)

    def trunk(
        self,
        ids: Int[Tensor, "B S"],
        seen: Bool[Tensor, "B S K"],
        caches: list[Cache] | None = None,
    ) -> Float[Tensor, "B S H"]:
        """Normed hidden state of each position, float32 or the type autocast gives.

        seen    which keys each position attends to, itself among them; K is S and the tokens that
                `caches` already hold, before them
        caches  one a block; they then also hold these tokens
        Rotation depends on distances alone, so a text may begin anywhere in its row. Raises
        ElfError beyond the model's length.
        """
        total = seen.shape[2]
        if total > self.spec.max_length:
            raise ElfError(
                f"{total} tokens are too many for this model; at most {self.spec.max_length}"
            )
        h = self.shared(ids) * math.sqrt(self.spec.hidden)
        rope = rope_table(0, total, self.spec.hidden // self.spec.heads, ids.device)
        rope = rope[total - ids.shape[1] :]
        mask = torch.zeros(seen.shape, device=ids.device).masked_fill_(~seen, float("-inf"))
        mask = mask[:, None]
        for i, block in enumerate(self.blocks):
            h = block(h, rope, mask, caches[i] if caches else None)
        out: Tensor = self.norm_final(h)
        return out

    def logits(self, h: Float[Tensor, "*axes H"]) -> Float[Tensor, "*axes V"]:
        """Scores of every token, float32."""
        return F.linear(h, self.shared.weight).float()

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S V"]:
        """Logits of the token behind each position of rows that hold one text each."""
        size = ids.shape[1]
        seen = torch.ones(size, size, dtype=torch.bool, device=ids.device).tril()
        return self.logits(self.trunk(ids, seen.expand(len(ids), -1, -1)))
