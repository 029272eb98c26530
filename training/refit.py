"""Refit the unembedding of a run to the encoder's token table: `python -m training.refit DIR`.

The decode head sees few tokens a step, so in a short run the columns of rare tokens stay where they
were drawn: the bundled run's head named 1 text token in 10 where a linear map of its own latents
named 7. One ridge regression from the head's hidden activations y (N,D) to the encoder's token
table (V,D) gives every token a column at once; training goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elf_engine.errors import ElfError
from elf_engine.flow import interpolate
from elf_engine.types import Array, FloatArray, IntArray, Weights
from elf_engine.weights import unflatten
from training.checkpoint import Checkpoints
from training.config import TrainConfig, open_tokenizer
from training.loop import load_encoder, open_source, saved_config
from training.objective import logit_normal
from training.sources import Source
from training.step import State, Stepper, latents, network

RIDGE = 10.0  # of unit-norm targets; far below the count of examples


def activations(
    config: TrainConfig, params: Any, encoder: Weights, source: Source, batches: int
) -> tuple[FloatArray, IntArray]:
    """y (N,D) of the decode head, after GELU, on noised training rows, and their tokens (N,)."""
    net, frozen = network(config), jax.tree.map(jnp.asarray, unflatten(encoder))
    plan = config.objective

    @jax.jit
    def hidden(key: Array, ids: Array, known: Array, valid: Array) -> Array:
        drop = jnp.zeros((ids.shape[0],), jnp.bool_)
        x = latents(config.encoder, frozen, ids, known, valid, drop)
        k_lambda, k_noise = jax.random.split(key)
        lam = jax.random.normal(k_lambda, ids.shape)
        lam = logit_normal(lam, plan.lambda_mean, plan.lambda_std)[:, :, None]
        noise = plan.decode_noise * jax.random.normal(k_noise, x.shape)
        z = jnp.where(known[:, :, None], x, interpolate(x, noise, lam))
        one = jnp.ones((ids.shape[0],), jnp.float32)
        both = jnp.concatenate([z, jnp.zeros_like(z)], -1)
        h = net.apply({"params": params}, both, one, one, valid, one, method="hidden")
        y = h @ params["proj_kernel"] + params["proj_bias"]
        return jax.nn.gelu(y, approximate=True)

    found, tokens = [], []
    for step in range(batches):
        b = source.draw(2_000_000 + step).batch
        y = np.asarray(hidden(jax.random.key(step), b.ids, b.known, b.valid))
        # Fill is most of a batch; one in eight keeps it from ruling the fit.
        rare = np.random.default_rng(step).random(b.ids.shape) < 0.125
        free = b.valid & ~b.known & ((b.ids != open_tokenizer(config).eos_id) | rare)
        found.append(y[free])
        tokens.append(b.ids[free])
    return np.concatenate(found), np.concatenate(tokens)


def fit(y: FloatArray, tokens: IntArray, table: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Unembedding (D,V), bias (V,) and their cross-entropy on the last fifth of the examples.

    Rows of `table` (V,D) are centred and normalised; y is regressed onto them and the sharpness
    that gives the held-out examples the lowest cross-entropy is taken.
    """
    table = table - table.mean(axis=0)
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    rows = np.concatenate([y, np.ones((len(y), 1))], axis=1).astype(np.float64)
    kept = len(rows) * 4 // 5
    gram = rows[:kept].T @ rows[:kept] + RIDGE * np.eye(rows.shape[1])
    weights = np.linalg.solve(gram, rows[:kept].T @ table[tokens[:kept]]) @ table.T
    held, answers = rows[kept:] @ weights, tokens[kept:]
    sharpness = min((10.0, 20.0, 30.0, 40.0, 60.0, 80.0), key=lambda s: _nll(s * held, answers))
    kernel, bias = np.split(np.asarray(sharpness * weights, np.float32), [len(weights) - 1])
    return kernel, bias[0], _nll(sharpness * held, answers)


def _nll(logits: Any, tokens: IntArray) -> float:
    top = logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return float((log_sum - logits[np.arange(len(tokens)), tokens]).mean())


def refit(directory: Path, batches: int = 60) -> str:
    """Refit parameters and their average in the run's newest checkpoint; one line about it."""
    config, encoder = load_encoder(saved_config(directory))
    source = open_source(config)
    with Checkpoints(directory, config.keep) as store:
        state, record = store.restore(Stepper(config, encoder).like)
        report, trees = _refitted(config, state, encoder, source, batches)
        progress = {key: record[key] for key in ("tokens", "usual", "data")}
        store.save(config, state._replace(**trees), progress, wait=True)
    return f"refitted step {int(state.step)}: " + "; ".join(report)


def _refitted(
    config: TrainConfig, state: State, encoder: Weights, source: Source, batches: int
) -> tuple[list[str], dict[str, Any]]:
    table = np.asarray(encoder["shared/embedding"], np.float32)
    report = []
    trees = {}
    for field in ("params", "average"):
        params = dict(getattr(state, field))
        y, tokens = activations(config, params, encoder, source, batches)
        before = _nll(y @ params["unembed_kernel"] + params["unembed_bias"], tokens)
        kernel, bias, after = fit(y, tokens, table)
        params |= {"unembed_kernel": jnp.asarray(kernel), "unembed_bias": jnp.asarray(bias)}
        trees[field] = params
        report.append(f"{field}: decode loss {before:.3f} -> {after:.3f}")
    return report, trees


def main() -> None:
    """Exit with 2 and one line on bad input."""
    parser = argparse.ArgumentParser(prog="python -m training.refit", description=__doc__)
    parser.add_argument("directory", type=Path)
    try:
        print(refit(parser.parse_args().directory))
    except ElfError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
