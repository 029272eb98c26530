"""Axis letters and array aliases used in every signature.

`B` batch, `S` sequence, `D` embedding width, `H` hidden width, `V` vocabulary.
Symbols: `z` noisy state, `x` clean estimate, `v` velocity, `t` time (0 noise, 1 data),
`eps` unit Gaussian noise, `w` self-conditioning guidance scale, `c` condition guidance scale.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# An array of whichever backend is running: jax.Array or torch.Tensor. The engine's equations use
# only +, -, * and the few functions of `backends.protocol.Backend.xp` on it.
Array: TypeAlias = Any

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
NumpyArray: TypeAlias = npt.NDArray[Any]

# The engine's one naming of weights: "blocks_0/attn/qkv/kernel" -> array, kernels stored (in, out).
Weights: TypeAlias = dict[str, npt.NDArray[Any]]
