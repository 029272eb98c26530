"""A NumPy backend whose network is the exact posterior mean of Gaussian data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from elf_engine.config import FlowSpec, ModelConfig


class GaussianNetwork:
    """E[x | z_t] for x ~ N(mean, std^2) and noise of scale k: the best any network can predict.

    With sigma(t)^2 = (t std)^2 + ((1 - t) k)^2 the ODE's exact solution is
    z_1 = mean + (std / k) z_0.
    """

    def __init__(self, mean: float, std: float, noise_scale: float):
        self.mean, self.std, self.noise_scale = mean, std, noise_scale
        self.calls: list[int] = []

    def denoise(
        self, z: Any, x_prev: Any, t: Any, w: Any, valid: Any, positions: Any = None
    ) -> Any:
        self.calls.append(len(z))
        t = t[:, None, None]
        signal, noise = (t * self.std) ** 2, ((1 - t) * self.noise_scale) ** 2
        return self.mean + t * self.std**2 / (signal + noise) * (z - t * self.mean)

    def logits(self, z: Any, w: Any, valid: Any, positions: Any = None) -> Any:
        return z

    def solution(self, start: Any) -> Any:
        return self.mean + self.std / self.noise_scale * start


class NumpyBackend:
    """The protocol on NumPy in float64 arrays, for laws that need exact arithmetic."""

    name = "numpy"
    xp = np
    fixed_shapes = False

    def __init__(self, network: Any, flow: FlowSpec | None = None):
        self.network = network
        self.config = ModelConfig(name="closed-form", flow=flow or FlowSpec())

    def asarray(self, a: Any) -> Any:
        return np.asarray(a, np.float64) if np.issubdtype(a.dtype, np.floating) else a

    def to_numpy(self, a: Any) -> Any:
        return np.asarray(a)

    def encode(self, ids: Any, visible: Any) -> Any:
        raise AssertionError("no test of the flow runs an encoder")

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: fn(self.network, *args)
