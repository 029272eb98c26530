"""The autoregressive baseline in PyTorch: the ELF network's blocks with causal attention, between
one token table that reads and names tokens (Press and Wolf 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elf_engine.backends.protocol import Choose
from elf_engine.backends.torch.backend import DTYPES, choose_device
from elf_engine.backends.torch.layers import Block, Cache, RmsNorm, rope_table
from elf_engine.backends.torch.weights import load
from elf_engine.config import DecoderSpec
from elf_engine.errors import ElfError
from elf_engine.types import FloatArray, IntArray, Weights

# Rotations are kept for lengths that are a multiple of this.
ROPE_STRIDE = 64


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
        caches: Sequence[Cache] | None = None,
    ) -> Float[Tensor, "B S H"]:
        """Normed hidden state of each position.

        seen    which keys each position attends to, itself among them; K is S and the tokens that
                `caches` already hold, before them
        caches  one a block; they then also hold these tokens
        Rotation depends on distances alone, so a text may begin anywhere in its row.
        """
        total, width = seen.shape[2], self.spec.hidden // self.spec.heads
        h = self.shared(ids) * math.sqrt(self.spec.hidden)
        table = rope_table(0, -(-total // ROPE_STRIDE) * ROPE_STRIDE, width, ids.device)
        rope = table[total - ids.shape[1] : total]
        mask = torch.zeros(seen.shape, dtype=h.dtype, device=ids.device)
        mask = mask.masked_fill_(~seen, float("-inf"))[:, None]
        for i, block in enumerate(self.blocks):
            h = block(h, rope, mask, caches[i] if caches else None)
        out: Tensor = self.norm_final(h)
        return out

    def logits(self, h: Float[Tensor, "*axes H"]) -> Float[Tensor, "*axes V"]:
        """Scores of every token, float32."""
        return F.linear(h, self.shared.weight).float()

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S V"]:
        """Logits of the token behind each position of rows that hold one text each. Raises
        ElfError beyond the model's length."""
        size = ids.shape[1]
        if size > self.spec.max_length:
            raise ElfError(
                f"{size} tokens are too many for this model; at most {self.spec.max_length}"
            )
        seen = torch.ones(size, size, dtype=torch.bool, device=ids.device).tril()
        return self.logits(self.trunk(ids, seen.expand(len(ids), -1, -1)))


def load_decoder(
    spec: DecoderSpec, weights: Weights, device: torch.device, dtype: torch.dtype
) -> Decoder:
    """The network with engine weights. Raises ElfError when they do not fit."""
    with torch.device("meta"):
        module = Decoder(spec)
    return load(module, weights, device, dtype, "network")


def make_decoder(spec: DecoderSpec, weights: Weights, dtype: str) -> TorchDecoder:
    """See `protocol.DecoderFactory`."""
    return TorchDecoder(load_decoder(spec, weights, choose_device(), DTYPES[dtype]))


class TorchDecoder:
    """`protocol.LeftToRight` over the module."""

    def __init__(self, module: Decoder) -> None:
        self.module = module

    @torch.inference_mode()
    def write(self, prompts: Sequence[Sequence[int]], most: int, choose: Choose) -> list[list[int]]:
        """See `protocol.LeftToRight.write`."""
        net, longest = self.module, max(map(len, prompts))
        ids, seen, real = _left_padded(prompts, net.shared.weight.device)
        caches = [Cache(longest + most) for _ in net.blocks]
        h = net.trunk(ids, seen, caches)[:, -1]
        written: list[list[int]] = [[] for _ in prompts]
        going = [True] * len(prompts)
        for number in range(most):
            tokens = choose(net.logits(h).cpu().numpy(), number)
            for row, token in enumerate(tokens.tolist()):
                going[row] = going[row] and token >= 0
                if going[row]:
                    written[row].append(token)
            if not any(going) or number + 1 == most:
                break
            real = F.pad(real, (0, 1), value=True)
            last = torch.from_numpy(tokens).long().clamp(min=0).to(ids.device)
            h = net.trunk(last[:, None], real[:, None], caches)[:, 0]
        return written

    @torch.inference_mode()
    def token_nll(self, ids: IntArray) -> FloatArray:
        """See `protocol.LeftToRight.token_nll`."""
        rows = torch.from_numpy(ids).long().to(self.module.shared.weight.device)
        logits = self.module(rows[:, :-1])
        nll = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
        return nll.cpu().numpy()


def _left_padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S S"], Bool[Tensor, "B S"]]:
    """Ids of prompts that end together, which positions each one sees, and which are no filling;
    filling is seen by itself alone."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    real = torch.zeros(ids.shape, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        real[row, longest - len(prompt) :] = True
    own = torch.eye(longest, dtype=torch.bool)
    seen = own | (real[:, None, :] & torch.ones_like(own).tril())
    return ids.to(device), seen.to(device), real.to(device)
