"""The ELF network in Flax (ELF.md, "Network")."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from elf_engine.backends.jax.layers import (
    NORMAL,
    XAVIER,
    Block,
    Bottleneck,
    FinalLayer,
    ScalarEmbedder,
    rope_tables,
)
from elf_engine.config import NetworkSpec


class ELFNetwork(nn.Module):
    """One network, two modes: predicts the clean x, or token logits.

    Sequence inside: time, guidance, mode tokens, then text. Nothing rotates before the text.
    """

    spec: NetworkSpec
    dtype: jnp.dtype = jnp.float32  # compute type; parameters stay as given
    remat: bool = False  # in training, recompute each block's activations for its gradient

    def setup(self) -> None:
        n, dtype = self.spec, self.dtype
        if n.self_conditioning:
            self.self_cond_proj = nn.Dense(n.embedding_dim, kernel_init=XAVIER, dtype=dtype)
        self.text_proj = Bottleneck(n.bottleneck, n.hidden, dtype)
        self.t_embedder = ScalarEmbedder(n.hidden, dtype)
        self.t_emb_tokens = self.param("t_emb_tokens", NORMAL, (1, n.time_tokens, n.hidden))
        if n.guidance_tokens:
            self.self_cond_cfg_embedder = ScalarEmbedder(n.hidden, dtype)
            self.self_cond_cfg_tokens = self.param(
                "self_cond_cfg_tokens", NORMAL, (1, n.guidance_tokens, n.hidden)
            )
        self.mode_tokens = self.param("mode_tokens", NORMAL, (1, n.mode_tokens, n.hidden))
        block = nn.remat(Block, static_argnums=(4,)) if self.remat else Block
        self.blocks = [
            block(n.hidden, n.heads, n.mlp_hidden, self._dropout(i), dtype) for i in range(n.depth)
        ]
        self.final_layer = FinalLayer(n.embedding_dim, dtype)
        self.proj_kernel = self.param("proj_kernel", XAVIER, (n.hidden, n.embedding_dim))
        self.proj_bias = self.param("proj_bias", nn.initializers.zeros, (n.embedding_dim,))
        self.unembed_kernel = self.param("unembed_kernel", XAVIER, (n.embedding_dim, n.vocab))
        self.unembed_bias = self.param("unembed_bias", nn.initializers.zeros, (n.vocab,))

    def _dropout(self, block: int) -> float:
        """Dropout only in the middle half of the blocks."""
        quarter = self.spec.depth // 4
        return self.spec.dropout if quarter <= block < self.spec.depth - quarter else 0.0

    def hidden(
        self,
        inputs: Float[Array, "B S C"],
        t: Float[Array, " B"],
        w: Float[Array, " B"] | None,
        valid: Bool[Array, "B S"] | None,
        decode: Float[Array, " B"],
        deterministic: bool = True,
        positions: Int[Array, "B S"] | None = None,
    ) -> Float[Array, "B S H"]:
        """Final hidden states of the text positions.

        inputs     [z, x_prev] on the last axis (C = 2D), or z alone without self-conditioning
        decode     1 for rows in decode mode, 0 in denoise mode
        valid      false hides a text position from attention
        positions  those of RoPE; 0 to S - 1 where None
        """
        n, batch = self.spec, inputs.shape[0]
        h = inputs.astype(self.dtype)
        if n.self_conditioning:
            h = self.self_cond_proj(h)
        h = self.text_proj(h)
        front = [self.t_emb_tokens + self.t_embedder(t)[:, None]]
        if n.guidance_tokens:
            assert w is not None, "a network with guidance tokens needs w"
            front.append(self.self_cond_cfg_tokens + self.self_cond_cfg_embedder(w)[:, None])
        front.append(self.mode_tokens * decode[:, None, None])
        h = jnp.concatenate([*(f.astype(self.dtype) for f in front), h], axis=1)
        if valid is not None:
            seen = jnp.ones((batch, n.prefix), jnp.bool_)
            valid = jnp.concatenate([seen, valid.astype(jnp.bool_)], axis=1)
        places = jnp.arange(inputs.shape[1]) if positions is None else positions
        # The prefix is at 0 too: it does not rotate.
        places = jnp.pad(places, [(0, 0)] * (places.ndim - 1) + [(n.prefix, 0)])
        rope = rope_tables(places, n.hidden // n.heads)
        for block in self.blocks:
            h = block(h, rope, valid, deterministic)
        return h[:, n.prefix :]

    def predict_x(self, hidden: Float[Array, "B S H"]) -> Float[Array, "B S D"]:
        """Denoise head: the clean estimate, float32."""
        return jnp.asarray(self.final_layer(hidden), jnp.float32)

    def predict_logits(self, hidden: Float[Array, "B S H"]) -> Float[Array, "B S V"]:
        """Decode head on the un-normed hidden state, float32."""
        dt = self.dtype
        y = hidden @ self.proj_kernel.astype(dt) + self.proj_bias.astype(dt)
        y = jax.nn.gelu(y, approximate=True)
        out = y @ self.unembed_kernel.astype(dt) + self.unembed_bias.astype(dt)
        return jnp.asarray(out, jnp.float32)

    def __call__(
        self,
        inputs: Float[Array, "B S C"],
        t: Float[Array, " B"],
        w: Float[Array, " B"] | None,
        valid: Bool[Array, "B S"] | None,
        decode: Float[Array, " B"],
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B S D"], Float[Array, "B S V"]]:
        """Both heads on the same hidden states: (x, logits)."""
        hidden = self.hidden(inputs, t, w, valid, decode, deterministic)
        return self.predict_x(hidden), self.predict_logits(hidden)
