"""`python -m benchmarks.training`: a denoise step of the trainer against a plain transcription of
the same maths, in one run: gradients, Muon, and both. Medians of interleaved repeats; the ratio is
the transcription's time over ours. Prints how far the two results are apart."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import transcription
from benchmarks.measure import in_turn
from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import FlowSpec, NetworkSpec
from training.config import ObjectiveConfig, OptimizerConfig
from training.objective import Inputs, Split, draw, losses
from training.optimizer import idle, make_optimizer

RATE = 0.002
PUBLISHED = ObjectiveConfig(branch="step", padding="attended", decode_condition="noised")
OURS = OptimizerConfig(
    learning_rate=RATE, adam_learning_rate=RATE, warmup=0, adam_for=(), untaken="keep"
)
Pair = tuple[Callable[[], Any], Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One network, one batch with its draws, half of its rows self-conditioned."""

    net: ELFNetwork
    params: Any
    inputs: Inputs
    draws: Any
    split: Split
    flow: FlowSpec


def make_case(spec: NetworkSpec, rows: int, length: int) -> Case:
    """Random weights everywhere, fresh heads included, which start at zero."""
    net, split = ELFNetwork(spec), Split(0, rows // 2, rows)
    shape = (rows, length, spec.embedding_dim)
    one = jnp.zeros((1,))
    both = jnp.zeros((1, 1, 2 * spec.embedding_dim))
    params = jax.jit(net.init)(jax.random.key(0), both, one, one, None, one)["params"]
    params["final_layer"]["linear"]["kernel"] += 0.02 * jax.random.normal(
        jax.random.key(1), params["final_layer"]["linear"]["kernel"].shape
    )
    no = jnp.zeros((rows, length), bool)
    ids = jnp.zeros((rows, length), jnp.int32)
    inputs = Inputs(ids, jax.random.normal(jax.random.key(2), shape), no, ~no, no[:, 0])
    draws = draw(jax.random.key(3), shape, split, FlowSpec(), PUBLISHED)
    return Case(net, params, inputs, draws, split, FlowSpec())


def gradients(case: Case) -> Pair:
    """(transcription, ours): gradients of the same loss."""
    plain = partial(
        transcription.loss, net=case.net, inputs=case.inputs, draws=case.draws,
        split=case.split, flow=case.flow,
    )  # fmt: skip

    def own(params: Any) -> Any:
        return losses(params, case.net, case.inputs, case.draws, case.split, case.flow, PUBLISHED)[
            0
        ]

    first, second = jax.jit(jax.grad(plain)), jax.jit(jax.grad(own))
    return lambda: first(case.params), lambda: second(case.params)


def updates(case: Case, grads: Any) -> Pair:
    """(optax's Muon, ours) with its clipping, from fresh moments."""
    theirs, ours = transcription.optimizer(RATE), make_optimizer(OURS, 1000)
    still = idle(OURS, case.split)
    states = [jax.jit(rule.init)(case.params) for rule in (theirs, ours)]
    first = jax.jit(theirs.update)
    second = jax.jit(partial(ours.update, idle=still))
    return (
        lambda: first(grads, states[0], case.params)[0],
        lambda: second(grads, states[1], case.params)[0],
    )


def seconds(pair: Pair, repeats: int) -> list[float]:
    """Median time of each."""

    def waits(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            jax.block_until_ready(call())

        return run

    return in_turn([waits(call) for call in pair], repeats)


def distance(one: Any, two: Any) -> float:
    """Largest absolute difference of two trees."""
    far = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), one, two)
    return max(float(a) for a in jax.tree.leaves(far))


def main(arguments: list[str] | None = None) -> None:
    """Measure and print one Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small network, to see that it runs")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    small = NetworkSpec(hidden=96, depth=2, heads=4, vocab=512, embedding_dim=64)
    spec, rows, length = (small, 4, 32) if options.quick else (NetworkSpec(), 8, 128)
    case = make_case(spec, rows, length)
    pair = gradients(case)
    grads = pair[0]()
    scale = float(optax.tree.norm(grads))
    apart = distance(grads, pair[1]()) / scale
    rows_of = {"gradients": seconds(pair, options.repeats)}
    pair = updates(case, grads)
    changes = [dict(call()) for call in pair]
    moved = distance(*changes) / RATE
    del changes
    rows_of["Muon update"] = seconds(pair, options.repeats)
    both = np.sum(list(rows_of.values()), axis=0)
    rows_of["whole step"] = [float(x) for x in both]
    print(f"{os.cpu_count()} cores; jax {jax.__version__}; float32; {rows} x {length}; medians\n")
    print("| part | transcription s | ours s | ratio |\n| --- | --- | --- | --- |")
    for name, (theirs, ours) in rows_of.items():
        print(f"| {name} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.2f} |")
    print(f"\ngradients differ by {apart:.1e} of their norm, updates by {moved:.1e} of the rate")


if __name__ == "__main__":
    main()
