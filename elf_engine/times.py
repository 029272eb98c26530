"""Time grids: tuples of floats from 0 (noise) to 1 (data), computed before the loop starts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from elf_engine import noise
from elf_engine.config import FlowSpec, SampleSpec
from elf_engine.errors import ElfError

Grid = tuple[float, ...]


def uniform(steps: int) -> Grid:
    """0, 1/N, ..., 1."""
    return tuple(i / steps for i in range(steps + 1))


def logit_normal(normals: Iterable[float], p_mean: float, p_std: float) -> Grid:
    """0, sorted sigmoid(p_mean + p_std n) of the N - 1 unit normals, 1 (ELF.md, "Sampling")."""
    inner = sorted(1 / (1 + math.exp(-(p_mean + p_std * n))) for n in normals)
    return (0.0, *inner, 1.0)


def quantile(steps: int, p_mean: float, p_std: float) -> Grid:
    """The logit-normal grid of the distribution's own quantiles i/N: no draw, no luck."""
    return logit_normal((NormalDist().inv_cdf(i / steps) for i in range(1, steps)), p_mean, p_std)


def grid(spec: SampleSpec, flow: FlowSpec) -> Grid:
    """The N + 1 times of `spec`. "logit-normal" draws depend on the seed alone."""
    if spec.grid == "uniform":
        return uniform(spec.steps)
    if spec.grid == "quantile":
        return quantile(spec.steps, flow.p_mean, flow.p_std)
    normals = noise.grid_normals(spec.seed, spec.steps - 1).tolist()
    return logit_normal(normals, flow.p_mean, flow.p_std)


def start_at(times: Grid, t_start: float) -> Grid:
    """The part of a grid after t_start, begun exactly there; its length says how many steps are
    really run. Raises ElfError when t_start is not in [0, 1)."""
    if not 0 <= t_start < 1:
        raise ElfError(f"start time {t_start} is outside 0 to 1 (1 excluded)")
    # A grid time that 1 - strength misses by rounding is no step of its own.
    return (t_start, *(t for t in times if t > t_start + 1e-6))
