"""The transcription that the training benchmark runs against computes the trainer's own step."""

from __future__ import annotations

import jax

from benchmarks.training import OURS, distance, gradients, make_case, updates
from elf_engine.config import NetworkSpec
from training.optimizer import DECODE_ONLY

SMALL = NetworkSpec(hidden=48, depth=1, heads=2, vocab=64, embedding_dim=16, bottleneck=8)


def test_gradients_and_updates_agree() -> None:
    case = make_case(SMALL, 4, 8)
    theirs, ours = (call() for call in gradients(case))
    largest = max(float(abs(g).max()) for g in jax.tree.leaves(theirs))
    assert largest > 1e-3
    assert distance(theirs, ours) < 1e-5 * largest
    one, two = (call() for call in updates(case, theirs))
    assert OURS.untaken == "keep"
    for name in DECODE_ONLY:  # left alone by ours; without momentum optax does not move them either
        del one[name], two[name]
    assert 0 < distance(one, two) < 1e-5
