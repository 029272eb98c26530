"""Pre-trains the text encoder from scratch on masked tokens, before the ELF itself.

Each row is read under one of the visibility masks it will later meet: everything visible, known
tokens seeing only known ones, or free tokens that see no known one (a dropped condition).
"""

from __future__ import annotations

import dataclasses
import json
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from elf_engine import tensor_file
from elf_engine.backends.jax.t5 import T5Encoder
from elf_engine.config import EncoderSpec
from elf_engine.tokens import MASK_ID, Tokenizer
from elf_engine.types import Array, FloatArray, IntArray, Weights
from elf_engine.weights import flatten, unflatten
from training import cooccurrence, table
from training.config import TrainConfig, open_tokenizer
from training.data import BatchSource, TrainBatch
from training.optimizer import average_step, make_optimizer

# Rows under each visibility: all see all, known see known, free see only free.
VISIBILITY = (0.45, 0.45, 0.1)


def visibility(batch: TrainBatch, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """(B,S,S) bool, each row under one of the three masks."""
    b = batch.batch
    everything = np.broadcast_to(b.valid[:, None, :], b.visible.shape)
    free_only = b.visible & ~(~b.known[:, :, None] & b.known[:, None, :])
    kind = rng.choice(3, len(b.ids), p=VISIBILITY)[:, None, None]
    return np.where(kind == 0, everything, np.where(kind == 1, b.visible, free_only))


def masked(
    batch: TrainBatch, rng: np.random.Generator, share: float, eos_id: int, weight: float
) -> tuple[IntArray, IntArray, FloatArray]:
    """(ids with masks (B,S), scored positions (B,K), their loss weights (B,K)). K is fixed for a
    length; masked positions are scored first, then some visible ones with `weight`."""
    b = batch.batch
    mask = (rng.random(b.ids.shape) < share) & b.valid
    mask &= (b.ids != eos_id) | (rng.random(b.ids.shape) < 0.2)  # runs of EOS teach little
    ids = np.where(mask, np.int32(MASK_ID), b.ids)
    order = rng.random(b.ids.shape) + mask * 2.0 + b.valid
    count = int(b.ids.shape[1] * (share + 0.02))
    where = np.argsort(-order, axis=1)[:, :count].astype(np.int32)
    picked = np.take_along_axis(mask, where, 1)
    valid = np.take_along_axis(b.valid, where, 1)
    weights = np.where(picked, 1.0, weight) * valid
    return ids, where, weights.astype(np.float32)


def masked_loss(
    params: Any, module: T5Encoder, ids: Array, visible: Array, labels: Array, where: Array,
    weights: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Cross-entropy at the scored positions with the output tied to the token table; also the
    loss of masked positions alone."""
    h: Any = module.apply({"params": params}, ids, visible)
    h = jnp.take_along_axis(h, where[:, :, None], 1)
    logits = h @ params["shared"]["embedding"].T * module.spec.d_model**-0.5
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    hard = weights == 1.0
    return (loss * weights).sum() / weights.sum(), (loss * hard).sum() / hard.sum()


def make_update(config: TrainConfig, start: FloatArray | None = None) -> tuple[Any, Any]:
    """(jitted step, its first state). `start` (V,D) is where the token table starts, random
    without."""
    plan, module = config.encoder_training, T5Encoder(config.encoder)
    params = module.init(jax.random.key(config.seed), jnp.zeros((1, 8), jnp.int32))["params"]
    if start is not None:
        params["shared"]["embedding"] = jnp.asarray(start)
    optimizer = make_optimizer(plan.optimizer, plan.steps)

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(params: Any, average: Any, state: Any, step: Array, *batch: Array) -> Any:
        grad = jax.value_and_grad(masked_loss, has_aux=True)
        (loss, hard), grads = grad(params, module, *batch)
        change, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, change)
        average = average_step(plan.optimizer, average, params, step)
        return params, average, state, loss, hard

    return update, (params, jax.tree.map(jnp.copy, params), jax.jit(optimizer.init)(params))


def draw(config: TrainConfig, source: BatchSource, step: int) -> tuple[Any, ...]:
    """What the step takes of batch `step`: ids, visibility, labels, where, weights."""
    plan, batch = config.encoder_training, source.draw(step)
    rng = np.random.default_rng([config.seed, step, 1])
    eos = source.tokenizer.eos_id
    ids, where, weights = masked(batch, rng, plan.mask, eos, plan.unmasked_weight)
    labels = np.take_along_axis(batch.batch.ids, where, 1)
    return ids, visibility(batch, rng), labels, where, weights


def train(config: TrainConfig, source: BatchSource, start: FloatArray | None = None) -> Weights:
    """Encoder weights (moving average), in the engine's naming; see `make_update`."""
    update, (params, average, state) = make_update(config, start)
    config.directory.mkdir(parents=True, exist_ok=True)
    began, losses = time.time(), []
    with (config.directory / "encoder.jsonl").open("w") as log:
        for step in range(config.encoder_training.steps):
            batch = draw(config, source, step)
            params, average, state, _, hard = update(params, average, state, step, *batch)
            losses.append(hard)
            if step % 20 == 19:
                line = {"step": step + 1, "masked_loss": float(np.mean(losses)),
                        "seconds": round(time.time() - began, 1)}  # fmt: skip
                print(json.dumps(line), file=log, flush=True)
                losses = []
    return {name: np.asarray(a, np.float32) for name, a in flatten(average).items()}


def seconds_per_step(config: TrainConfig, rows: table.Table, steps: int = 12) -> float:
    """Measured time of a step of the pre-training, its quickest quarter: steps that compiled are
    no measure."""
    source = encoder_source(config, rows)
    update, (params, average, state) = make_update(config)
    times = []
    for step in range(steps):
        began = time.monotonic()
        batch = draw(config, source, step)
        params, average, state, _, hard = update(params, average, state, step, *batch)
        hard.block_until_ready()
        times.append(time.monotonic() - began)
    return sorted(times)[steps // 4]


def latent_statistics(
    spec: EncoderSpec, weights: Weights, source: BatchSource, batches: int = 40
) -> tuple[float, float]:
    """Mean and standard deviation of the latents over valid positions of training rows."""
    encode = jax.jit(T5Encoder(spec).apply)
    params = {"params": unflatten(weights)}
    total, square, count = 0.0, 0.0, 0
    for step in range(batches):
        b = source.draw(1_000_000 + step).batch
        h = np.asarray(encode(params, b.ids, b.visible), np.float64)[b.valid]
        total, square, count = total + h.sum(), square + (h * h).sum(), count + h.size
    mean = total / count
    return float(mean), float(np.sqrt(square / count - mean * mean))


def pretrain(config: TrainConfig, rows: table.Table) -> str:
    """Train the encoder of a config, measure its latents and write both into the run's
    directory; one line about the result."""
    source = encoder_source(config, rows)
    weights = train(config, source, counted(config, rows, source.tokenizer))
    mean, std = latent_statistics(config.encoder, weights, source)
    tensor_file.write_file(config.directory / "encoder.safetensors", weights, "float32")
    (config.directory / "latents.json").write_text(json.dumps({"mean": mean, "std": std}))
    return f"latent mean {mean:.4f}, std {std:.4f}; wrote {config.directory}/encoder.safetensors"


def encoder_source(config: TrainConfig, rows: table.Table) -> BatchSource:
    """Batches of the pre-training, other ones than the network's."""
    plan = dataclasses.replace(config.batches, batch_tokens=config.encoder_training.batch_tokens)
    return BatchSource(rows, open_tokenizer(config), config.layout, plan, config.seed + 1)


def counted(config: TrainConfig, rows: table.Table, tokenizer: Tokenizer) -> FloatArray | None:
    """The token table from co-occurrence counts, kept in the run's directory."""
    most, file = config.encoder_training.counted_examples, config.directory / "embedding.npy"
    if not most:
        return None
    if not file.exists():
        config.directory.mkdir(parents=True, exist_ok=True)
        counts = cooccurrence.count(rows, tokenizer, most, config.seed)
        np.save(file, cooccurrence.embedding(counts, config.encoder.d_model, config.seed))
    return np.asarray(np.load(file, allow_pickle=False), np.float32)
