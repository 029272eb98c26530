"""A start for the token table from counts alone: which tokens stand near each other, and which
stand across from each other in a pair.

Positive pointwise mutual information, then a truncated singular value decomposition (Levy and
Goldberg, "Neural Word Embedding as Implicit Matrix Factorization", 2014). Counting across pairs
puts a German word near its English one before any training; it costs about a minute.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elf_engine.tokens import CONTROL, Tokenizer
from elf_engine.types import FloatArray
from training.data import PAIR_TASKS
from training.table import Table

WINDOW = 5
LONGEST_SIDE = 48
SMOOTHING = 0.75
# Share of each vector's energy that is random, so that no two tokens are alike.
RANDOM_SHARE = 0.3


def count(table: Table, tokenizer: Tokenizer, most: int = 400_000, seed: int = 0) -> FloatArray:
    """(V,V) weighted co-occurrence counts over up to `most` examples, 1/distance within a text
    and 1/length across a pair."""
    size = tokenizer.vocab_size
    counts = np.zeros(size * size, np.float32)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(table))[:most]
    gap = [-1] * WINDOW
    run: list[int] = []
    for number, i in enumerate(chosen):
        source = tokenizer.encode(table.source(int(i)))[:256]
        target = tokenizer.encode(table.target(int(i)))[:256]
        run += source + gap + target + gap
        across = table.tasks[table.group[i]] in PAIR_TASKS
        if across and max(len(source), len(target)) <= LONGEST_SIDE:
            left = np.repeat(np.asarray(source, np.int64), len(target))
            right = np.tile(np.asarray(target, np.int64), len(source))
            np.add.at(counts, left * size + right, np.float32(WINDOW / max(len(source), 4)))
        if len(run) > 2_000_000 or number + 1 == len(chosen):
            _count_near(counts, np.asarray(run, np.int64), size)
            run = []
    square = counts.reshape(size, size)
    return square + square.T


def _count_near(counts: FloatArray, run: npt.NDArray[np.int64], size: int) -> None:
    for distance in range(1, WINDOW + 1):
        left, right = run[:-distance], run[distance:]
        both = (left >= 0) & (right >= 0)
        np.add.at(counts, left[both] * size + right[both], np.float32(1.0 / distance))


def embedding(counts: FloatArray, width: int, seed: int = 0) -> FloatArray:
    """(V, width) vectors of unit variance per coordinate from co-occurrence counts (V,V)."""
    rng = np.random.default_rng(seed)
    size = len(counts)
    row = counts.sum(axis=1)
    column = row**SMOOTHING
    expected = np.maximum(row, 1e-6)[:, None] * (column / column.sum())[None, :]
    information = np.log(np.maximum(counts / np.maximum(expected, 1e-9), 1.0)).astype(np.float32)
    # Randomised SVD (Halko, Martinsson and Tropp, 2011) with two power iterations.
    basis = information @ rng.standard_normal((size, width + 32)).astype(np.float32)
    for _ in range(2):
        basis, _ = np.linalg.qr(basis)
        basis, _ = np.linalg.qr(information.T @ basis)
        basis = information @ basis
    basis, _ = np.linalg.qr(basis)
    u, s, _ = np.linalg.svd(basis.T @ information, full_matrices=False)
    vectors = (basis @ u[:, :width]) * np.sqrt(s[:width])
    vectors -= vectors.mean(axis=0)
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    unseen = (row < 1.0) | (np.arange(size) < len(CONTROL))
    vectors = np.sqrt(width) * vectors / np.maximum(norm, 1e-6)
    noise = rng.standard_normal((size, width))
    mixed = np.sqrt(1 - RANDOM_SHARE) * vectors + np.sqrt(RANDOM_SHARE) * noise
    return np.asarray(np.where(unseen[:, None], noise, mixed), np.float32)
