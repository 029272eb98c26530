"""forward_sample_*: one guided evaluation of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from elf_engine.backends.protocol import Backend, Network
from elf_engine.config import NetworkSpec
from elf_engine.constraint import Constraint
from elf_engine.flow import velocity_from_x
from elf_engine.guidance import Guidance, Passes, guided_estimate
from elf_engine.types import Array, FloatArray
from tests.golden.archive import Archive, Case
from tests.golden.compare import Row, Tolerance, compare
from tests.golden.models import network_backend, row_length

Steps = dict[tuple[Passes, float], Callable[..., tuple[Array, Array]]]
X, V = Tolerance(1e-4), Tolerance(2e-3)


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Clean estimate and velocity of every case."""
    backend = network_backend(backend_name, archive.under("params"), row_length(archive, "z"))
    steps: Steps = {}
    for case in archive.cases.values():
        x, v = evaluate(backend, steps, case)
        yield compare((case.name, "x", backend_name), x, case["x"], X)
        yield compare((case.name, "v", backend_name), v, case["v"], V)


def evaluate(backend: Backend, steps: Steps, case: Case) -> tuple[FloatArray, FloatArray]:
    """(x, v) of the case, as one step of the sampler computes them."""
    put, xp = backend.asarray, backend.xp
    constraint = stored_constraint(backend, case)
    scales = case.number("self_cond_cfg_scale"), case.number("cfg_scale")
    w, c = (put(np.full_like(case["t"], scale)) for scale in scales)
    passes = needed_passes(backend.config.network, *scales)
    key = passes, case.number("t_eps")
    if key not in steps:
        steps[key] = backend.compile(make_estimate(xp, *key))
    first = constraint.first_estimate(xp)
    prior = put(case["x_pred_prev"]) if "x_pred_prev" in case else first
    held = (constraint.known, constraint.clean)
    x, v = steps[key](put(case["z"]), prior, put(case["t"]), (w, c), held)
    return backend.to_numpy(x), backend.to_numpy(v)


def make_estimate(xp: Any, passes: Passes, t_eps: float) -> Callable[..., tuple[Array, Array]]:
    """The part of a sampler step that asks the network, as a function to compile."""

    def estimate(
        net: Network,
        z: Array,
        prior: Array,
        t: Array,
        scales: tuple[Array, Array],
        held: tuple[Array, Array],
    ) -> tuple[Array, Array]:
        constraint = Constraint(*held)
        x = guided_estimate(net, xp, z, prior, t, Guidance(*scales, passes), constraint)
        x = constraint.estimate(xp, x)
        gap = xp.clip(1 - t, t_eps, 1)
        return x, velocity_from_x(x, z, gap[:, None, None])

    return estimate


def stored_constraint(backend: Backend, case: Case) -> Constraint:
    """The case's condition, held clean; positions count as known where the mask is above 0."""
    known = case["cond_seq_mask"][..., None] > 0
    clean = np.where(known, case["cond_seq"], 0).astype(np.float32)
    return Constraint(backend.asarray(known), backend.asarray(clean))


def needed_passes(spec: NetworkSpec, w: float, c: float) -> Passes:
    """The passes a run with these scales takes."""
    two = spec.self_conditioning and not spec.guidance_tokens
    return Passes(condition=c != 1, self_condition=two and w != 1)
