"""What the engine asks of an array library: one network, and a few array functions.

The equations (`flow`, `guidance`, `samplers`) are written once over opaque arrays, with +, -, *
and `xp.where`, `xp.concat`, `xp.clip`, `xp.zeros_like`, `xp.exp`, `xp.log`, `xp.sum`, `xp.amax`,
which `jax.numpy` and `torch` share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from elf_engine.config import DecoderSpec, ModelConfig
from elf_engine.types import Array, FloatArray, IntArray, NumpyArray, Weights

Choose = Callable[[NumpyArray, int], IntArray]
DecoderFactory = Callable[[DecoderSpec, Weights, str], "LeftToRight"]


@runtime_checkable
class Network(Protocol):
    """The two modes of the ELF network. All arguments are arrays of the backend."""

    def denoise(
        self,
        z: Array,
        x_prev: Array,
        t: Array,
        w: Array,
        valid: Array | None,
        positions: Array | None = None,
    ) -> Array:
        """Clean estimate x (B,S,D) float32 of z (B,S,D) at t (B,), self-conditioned on x_prev
        (B,S,D), guidance scale w (B,). valid (B,S) bool hides padding from attention; None
        attends everywhere. positions (B,S) are those of RoPE; None counts from 0."""
        ...

    def logits(
        self, z: Array, w: Array, valid: Array | None, positions: Array | None = None
    ) -> Array:
        """Decode mode: token logits (B,S,V) float32 of z (B,S,D) at t = 1 with zero
        self-condition."""
        ...


@runtime_checkable
class LeftToRight(Protocol):
    """A loaded autoregressive baseline. Only NumPy arrays go in and out."""

    def write(self, prompts: Sequence[Sequence[int]], most: int, choose: Choose) -> list[list[int]]:
        """Token by token behind each of the B prompts, at most `most` tokens each.

        choose  (logits (B,V) float32, number of the token from 0) -> the token of every row (B,),
                -1 where the row is finished; what it gives such a row later is not kept
        """
        ...

    def token_nll(self, ids: IntArray) -> FloatArray:
        """Negative natural log-likelihood of tokens 1 on of rows (B,S), (B,S-1)."""
        ...


@runtime_checkable
class Backend(Protocol):
    """One loaded model on one array library."""

    name: str
    xp: Any
    config: ModelConfig
    fixed_shapes: bool  # compiles one program per batch size, so batches are padded to few sizes

    def asarray(self, a: NumpyArray) -> Array:
        """NumPy array -> device array, dtype kept."""
        ...

    def to_numpy(self, a: Array) -> NumpyArray:
        """Device array -> NumPy array."""
        ...

    def encode(self, ids: Array, visible: Array | None) -> Array:
        """Normalised latents (B,S,D) of ids (B,S). visible (B,S) or (B,S,S), rows look at
        columns where it is true; None means all."""
        ...

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Bind the network as first argument of pure `fn(net, *arrays)` and make it fast: one
        jitted program per argument shape in JAX, inference mode in torch."""
        ...


@runtime_checkable
class BackendFactory(Protocol):
    """`elf_engine.backends.load(name)` returns the package's `make_backend` of this type."""

    def __call__(
        self, config: ModelConfig, network: Weights, encoder: Weights, dtype: str
    ) -> Backend:
        """Weights are in the engine's naming (see `types.Weights`); dtype is the compute type
        of the network, "float32" or "bfloat16" (parameters follow it, norms and softmax stay
        float32, results are float32)."""
        ...
