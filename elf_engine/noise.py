"""Noise addressed by (seed, sample, step): counter-based, so no draw depends on any other.

Philox is keyed by (seed, sample) and its counter starts at (0, 0, purpose, step). Positions are
drawn in order, so a longer row begins with the shorter row's noise, and neither batch size, batch
order, padding, backend nor device count can change a value.
"""

from __future__ import annotations

import numpy as np

from elf_engine.types import FloatArray

STATE, GRID, TOKENS = 0, 1, 2  # purposes


def normal(seed: int, sample: int, step: int, length: int, width: int) -> FloatArray:
    """Unit Gaussian noise (length, width) of one sample; step 0 is the start state."""
    draw = _generator(seed, sample, STATE, step)
    return draw.standard_normal((length, width), dtype=np.float32)


def grid_normals(seed: int, count: int) -> FloatArray:
    """The unit normals behind a logit-normal time grid."""
    return _generator(seed, 0, GRID, 0).standard_normal(count, dtype=np.float32)


def uniforms(seed: int, sample: int, count: int) -> FloatArray:
    """Numbers in [0, 1) that choose the tokens of one sample, in their order."""
    return _generator(seed, sample, TOKENS, 0).random(count, dtype=np.float32)


def _generator(seed: int, sample: int, purpose: int, step: int) -> np.random.Generator:
    key = np.array([seed, sample], np.uint64)
    counter = np.array([0, 0, purpose, step], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
