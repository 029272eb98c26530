"""One optimizer step, jitted: encode, draw, differentiate, update, average."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.backends.jax.t5 import T5Encoder
from elf_engine.config import EncoderSpec
from elf_engine.layout import rotary_positions
from elf_engine.types import Array, Weights
from elf_engine.weights import unflatten
from training.config import TrainConfig
from training.data import TrainBatch
from training.mesh import everywhere, make_mesh, put_everywhere, put_rows, state_shardings
from training.objective import Inputs, Split, draw, losses, split_step
from training.optimizer import average_step, idle, make_optimizer

Metrics = dict[str, Array]
COMPILER: dict[str, Any] = {}  # options of XLA; the tests compile fast, not well
TABLE = "shared"  # where a learned token table lies among the parameters and in the encoder


class State(NamedTuple):
    """Everything a step changes; with the config, everything a resumed run needs."""

    params: Any
    average: Any
    optimizer: Any
    step: Array


def network(config: TrainConfig) -> ELFNetwork:
    """The network of a run, computing in `config.compute`."""
    return ELFNetwork(config.network, jnp.dtype(config.compute), config.remat)


def initial_state(config: TrainConfig, encoder: Weights | None = None) -> State:
    """Fresh parameters; their average starts equal to them. A learned token table starts as the
    encoder's, and so does the unembedding where the config says so (random without an encoder)."""
    spec = config.network
    width = spec.embedding_dim * (2 if spec.self_conditioning else 1)
    one, key = jnp.zeros((1,)), jax.random.key(config.seed)
    params = network(config).init(key, jnp.zeros((1, 1, width)), one, one, None, one)["params"]
    if config.embeddings == "learned":
        table: Any = jax.random.normal(key, (config.encoder.vocab, config.encoder.d_model))
        if encoder is not None:
            table = jnp.asarray(encoder[f"{TABLE}/embedding"])
        params[TABLE] = {"embedding": table}
    if config.unembedding == "encoder" and encoder is not None:
        params["unembed_kernel"] = unembedding(jnp.asarray(encoder[f"{TABLE}/embedding"]))
    optimizer = make_optimizer(config.optimizer, config.steps).init(params)
    return State(params, jax.tree.map(jnp.copy, params), optimizer, jnp.zeros((), jnp.int32))


def unembedding(table: Array) -> Array:
    """A token table (V,D) as the start of the unembedding (D,V): centred, each column of length 1,
    so that rare tokens have a direction before the decode head has seen them."""
    centred = table - table.mean(axis=0)
    return (centred / jnp.linalg.norm(centred, axis=1, keepdims=True)).T


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
    return Inputs(ids, x, known, valid, drop, rotary_positions(config.layout, ids)), draws


def arrays(batch: TrainBatch) -> tuple[Any, Any, Any]:
    """What a step takes of a batch."""
    return batch.batch.ids, batch.batch.known, batch.batch.valid


class Stepper:
    """The jitted step on a mesh, compiled once per bucket, and per branch where a step has only
    one. Its randomness follows from (seed, step) alone, not from the devices.

    A step whose loss or gradient is not finite, or whose loss is above `limit`, changes nothing,
    and nor does any step after it (`ok`), so the last good state is never lost, although the loss
    is looked at only when the next step is under way.
    """

    def __init__(self, config: TrainConfig, encoder: Weights, mesh: Mesh | None = None) -> None:
        self.config, self.mesh = config, mesh or make_mesh(config.mesh)
        self._start = partial(initial_state, config, encoder)
        shapes = jax.eval_shape(self._start)
        self.shardings = state_shardings(self.mesh, shapes)
        self.like = jax.tree.map(
            lambda a, where: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where),
            shapes,
            self.shardings,
        )
        self._frozen = put_everywhere(self.mesh, unflatten(encoder))
        self._true = put_everywhere(self.mesh, np.bool_(True))
        one = everywhere(self.mesh)
        self._update = jax.jit(
            partial(_update, config),
            static_argnames="split",
            donate_argnums=(0,),
            out_shardings=(self.shardings, one),
            compiler_options=COMPILER or None,
        )

    def start(self) -> State:
        """The state of step 0, each device making its own part."""
        state: State = jax.jit(
            self._start, out_shardings=self.shardings, compiler_options=COMPILER or None
        )()
        return state

    def __call__(
        self,
        state: State,
        batch: TrainBatch,
        step: int,
        limit: float = float("inf"),
        ok: Array | None = None,
    ) -> tuple[State, Metrics]:
        """The state after step `step` (from 0) on this process's rows, and its metrics. The given
        state's memory is reused."""
        return self._update(
            *self._arguments(state, batch, limit, ok), split=self.split(step, batch)
        )

    def split(self, step: int, batch: TrainBatch) -> Split:
        """Which of the global batch's rows train what."""
        rows = len(batch.tasks) * jax.process_count()
        return split_step(rows, self.config.objective, self.config.seed, step)

    def flops(self, state: State, batch: TrainBatch, step: int) -> float:
        """Floating-point operations of a step, as XLA counts them; 0 where it does not."""
        arguments = self._arguments(state, batch, 0.0, None)
        lowered = self._update.lower(*arguments, split=self.split(step, batch))
        counted = lowered.cost_analysis() or {}
        return float(counted.get("flops", 0.0))

    def _arguments(
        self, state: State, batch: TrainBatch, limit: float, ok: Array | None
    ) -> tuple[Any, ...]:
        good = self._true if ok is None else ok
        rows = put_rows(self.mesh, arrays(batch))
        return state, self._frozen, rows, np.float32(limit), good


def _update(
    config: TrainConfig,
    state: State,
    frozen: Any,
    batch: Any,
    limit: Array,
    ok: Array,
    split: Split,
) -> tuple[State, Metrics]:
    net = network(config)
    optimizer = make_optimizer(config.optimizer, config.steps)
    key = jax.random.fold_in(jax.random.key(config.seed + 1), state.step)

    def objective(params: Any) -> tuple[Array, Metrics]:
        # A learned table is differentiated through both losses.
        encoder = {**frozen, TABLE: params[TABLE]} if TABLE in params else frozen
        inputs, draws = prepare(config, encoder, key, batch, split)
        own = {name: value for name, value in params.items() if name != TABLE}
        return losses(own, net, inputs, draws, split, config.flow, config.objective)

    (total, metrics), grads = jax.value_and_grad(objective, has_aux=True)(state.params)
    still = idle(config.optimizer, split)
    change, opt = optimizer.update(grads, state.optimizer, state.params, idle=still)
    params = optax.apply_updates(state.params, change)
    average = average_step(config.optimizer, state.average, params, state.step)
    norm = optax.tree.norm(grads)
    good = ok & jnp.isfinite(total) & jnp.isfinite(norm) & (total <= limit)
    new = State(params, average, opt, state.step + 1)
    kept: State = jax.tree.map(lambda new, old: jnp.where(good, new, old), new, state)
    return kept, metrics | {"loss": total, "grad_norm": norm, "ok": good}
