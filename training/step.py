"""One optimizer step, jitted: encode, draw, differentiate, update, average."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.backends.jax.t5 import T5Encoder
from elf_engine.config import EncoderSpec
from elf_engine.types import Array, Weights
from elf_engine.weights import unflatten
from training.config import TrainConfig
from training.data import TrainBatch
from training.objective import Inputs, Split, draw, losses, split_step
from training.optimizer import average_step, make_optimizer

Metrics = dict[str, Array]


class State(NamedTuple):
    """Everything a step changes; with the config, everything a resumed run needs."""

    params: Any
    average: Any
    optimizer: Any
    step: Array


def network(config: TrainConfig) -> ELFNetwork:
    """The network of a run, float32."""
    return ELFNetwork(config.network)


def initial_state(config: TrainConfig) -> State:
    """Fresh parameters; their average starts equal to them."""
    spec = config.network
    width = spec.embedding_dim * (2 if spec.self_conditioning else 1)
    one = jnp.zeros((1,))
    params = network(config).init(
        jax.random.key(config.seed), jnp.zeros((1, 1, width)), one, one, None, one
    )["params"]
    optimizer = make_optimizer(config.optimizer, config.steps).init(params)
    return State(params, jax.tree.map(jnp.copy, params), optimizer, jnp.zeros((), jnp.int32))


def visible(known: Array, valid: Array, drop: Array) -> Array:
    """What each token sees in the encoder, (B,S,S). Known tokens see known ones, the others every
    valid token, or, where the condition is dropped, only each other (ELF.md, "Latents")."""
    columns_known, columns_valid = (known & valid)[:, None, :], valid[:, None, :]
    others = columns_valid & ~(columns_known & drop[:, None, None])
    return jnp.where(known[:, :, None], columns_known, others)


def latents(
    spec: EncoderSpec, encoder: Any, ids: Array, known: Array, valid: Array, drop: Array
) -> Array:
    """Normalised latents (B,S,D)."""
    h: Any = T5Encoder(spec).apply({"params": encoder}, ids, visible(known, valid, drop))
    return (h - spec.latent_mean) / spec.latent_std


def prepare(
    config: TrainConfig, encoder: Any, key: Array, batch: tuple[Array, Array, Array], split: Split
) -> tuple[Inputs, Any]:
    """Inputs and random draws of one batch (ids, known, valid)."""
    ids, known, valid = batch
    kd, kr = jax.random.split(key)
    drop = jax.random.bernoulli(kd, config.objective.label_drop, (split.rows,))
    x = latents(config.encoder, encoder, ids, known, valid, drop)
    draws = draw(kr, (*ids.shape, x.shape[-1]), split, config.flow, config.objective)
    return Inputs(ids, x, known, valid, drop), draws


def arrays(batch: TrainBatch) -> tuple[Any, Any, Any]:
    """What a step takes of a batch."""
    return batch.batch.ids, batch.batch.known, batch.batch.valid


def make_update(
    config: TrainConfig, encoder: Weights
) -> Callable[[State, tuple[Any, Any, Any]], tuple[State, Metrics]]:
    """The jitted step, compiled once per bucket, and per branch where a step has only one. Its
    randomness follows from (seed, step)."""
    net, optimizer = network(config), make_optimizer(config.optimizer, config.steps)
    frozen = jax.tree.map(jnp.asarray, unflatten(encoder))

    @partial(jax.jit, static_argnames="split", donate_argnums=(0,))
    def update(state: State, encoder: Any, batch: Any, split: Split) -> tuple[State, Metrics]:
        key = jax.random.fold_in(jax.random.key(config.seed + 1), state.step)
        inputs, draws = prepare(config, encoder, key, batch, split)
        grad = jax.value_and_grad(losses, has_aux=True)
        (total, metrics), grads = grad(
            state.params, net, inputs, draws, split, config.flow, config.objective
        )
        change, opt = optimizer.update(grads, state.optimizer, state.params)
        params = optax.apply_updates(state.params, change)
        average = average_step(config.optimizer, state.average, params, state.step)
        metrics |= {"loss": total, "grad_norm": optax.tree.norm(grads)}
        return State(params, average, opt, state.step + 1), metrics

    def step(state: State, batch: tuple[Any, Any, Any]) -> tuple[State, Metrics]:
        split = split_step(len(batch[0]), config.objective, config.seed, int(state.step))
        return update(state, frozen, batch, split)

    return step
