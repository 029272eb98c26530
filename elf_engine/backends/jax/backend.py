"""The JAX backend: one jitted program per argument shape, weights passed as arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elf_engine import encoders
from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.backends.jax.t5 import T5Encoder
from elf_engine.config import EncoderSpec, ModelConfig
from elf_engine.errors import ElfError
from elf_engine.model_dir import missing_encoder
from elf_engine.types import Array, NumpyArray, Weights
from elf_engine.weights import check_shapes, flatten, unflatten

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclass(frozen=True)
class JaxNetwork:
    """The network bound to one set of parameters (traced inside `compile`)."""

    module: ELFNetwork
    params: Any

    def denoise(
        self,
        z: Array,
        x_prev: Array,
        t: Array,
        w: Array,
        valid: Array | None,
        positions: Array | None = None,
    ) -> Array:
        """See `protocol.Network.denoise`."""
        inputs = jnp.concatenate([z, x_prev], -1) if self.module.spec.self_conditioning else z
        hidden = self._hidden(inputs, t, w, valid, jnp.zeros_like(t), positions)
        return self.module.apply(self.params, hidden, method="predict_x")

    def logits(
        self, z: Array, w: Array, valid: Array | None, positions: Array | None = None
    ) -> Array:
        """See `protocol.Network.logits`."""
        one = jnp.ones((z.shape[0],), jnp.float32)
        zeros = jnp.zeros_like(z)
        inputs = jnp.concatenate([z, zeros], -1) if self.module.spec.self_conditioning else z
        hidden = self._hidden(inputs, one, w, valid, one, positions)
        return self.module.apply(self.params, hidden, method="predict_logits")

    def _hidden(
        self,
        inputs: Array,
        t: Array,
        w: Array,
        valid: Array | None,
        mode: Array,
        positions: Array | None,
    ) -> Array:
        given = (inputs, t, w, valid, mode)
        return self.module.apply(self.params, *given, positions=positions, method="hidden")


class JaxBackend:
    """One loaded model on JAX; see `protocol.Backend`."""

    name = "jax"
    xp = jnp
    fixed_shapes = True

    def __init__(self, config: ModelConfig, network: Weights, encoder: Weights, dtype: str):
        if dtype not in DTYPES:
            raise ElfError(f"dtype '{dtype}' is unknown; choose one of {', '.join(DTYPES)}")
        self.config = config
        self._module = ELFNetwork(config.network, DTYPES[dtype])
        shapes = _network_shapes(self._module)
        self._params = {"params": _on_device(network, shapes, DTYPES[dtype], "network")}
        self._encode = _encoder(config.encoder, encoder)

    def asarray(self, a: NumpyArray) -> Array:
        """NumPy -> device."""
        return jnp.asarray(a)

    def to_numpy(self, a: Array) -> NumpyArray:
        """Device -> NumPy."""
        return np.asarray(a)

    def encode(self, ids: Array, visible: Array | None) -> Array:
        """Normalised latents; see `protocol.Backend.encode`."""
        if self._encode is None:
            raise missing_encoder(self.config.name)
        spec = self.config.encoder
        return (self._encode(ids, visible) - spec.latent_mean) / spec.latent_std

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Jit `fn(net, *arrays)` with the parameters as an argument, not as constants."""
        module = self._module
        jitted = jax.jit(lambda params, *args: fn(JaxNetwork(module, params), *args))
        return lambda *args: jitted(self._params, *args)


def make_backend(config: ModelConfig, network: Weights, encoder: Weights, dtype: str) -> JaxBackend:
    """See `protocol.BackendFactory`."""
    return JaxBackend(config, network, encoder, dtype)


def _network_shapes(module: ELFNetwork) -> dict[str, tuple[int, ...]]:
    n = module.spec
    width = n.embedding_dim * (2 if n.self_conditioning else 1)
    one, w = jnp.zeros((1,)), jnp.zeros((1,))
    shapes = jax.eval_shape(
        lambda: module.init(jax.random.key(0), jnp.zeros((1, 1, width)), one, w, None, one)
    )
    return {name: tuple(a.shape) for name, a in flatten(shapes["params"]).items()}


def _on_device(
    weights: Weights, shapes: dict[str, tuple[int, ...]], dtype: Any, where: str
) -> dict[str, Any]:
    check_shapes(weights, shapes, where)
    return unflatten({name: jnp.asarray(a, dtype) for name, a in weights.items()})


def _encoder(spec: EncoderSpec, weights: Weights) -> Callable[..., Array] | None:
    """The jitted text encoder in float32, or None when the model directory has none."""
    if spec.kind != "t5":
        return encoders.get(spec.kind, "jax")(spec, weights)
    if not weights:
        return None
    module = T5Encoder(spec)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32)))
    expected = {name: tuple(a.shape) for name, a in flatten(shapes["params"]).items()}
    params = {"params": _on_device(weights, expected, jnp.float32, "encoder")}
    jitted = jax.jit(module.apply)
    return lambda ids, visible: jitted(params, ids, visible)
