"""trajectories_*: whole sampler runs, step by step, and their decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from elf_engine import samplers
from elf_engine.backends.protocol import Backend
from elf_engine.config import FlowSpec
from elf_engine.guidance import Passes
from elf_engine.published.batching import drop_condition
from elf_engine.samplers import Knobs
from elf_engine.types import FloatArray
from tests.golden.archive import Archive, Case
from tests.golden.compare import EQUAL, Row, Tolerance, compare
from tests.golden.estimate import needed_passes, stored_constraint
from tests.golden.models import network_backend, row_length

Z, LOGITS = Tolerance(5e-4), Tolerance(2e-3)
# Two-pass self-conditioning guidance on top of condition guidance amplifies rounding: the two
# official implementations differ by 1.1e-3 here.
AMPLIFYING, Z_AMPLIFIED = "ode_cond_cfg2_sc3_u8", Tolerance(1e-2)


@dataclass(frozen=True)
class Run:
    """What a run leaves behind, NumPy."""

    z: FloatArray
    x: FloatArray
    logits: FloatArray


class Programs:
    """Steps and decoder of one network, each compiled once for all cases."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.decode = backend.compile(lambda net, *arrays: net.logits(*arrays))
        self.steps: dict[tuple[Passes, float], samplers.Step] = {}

    def step(self, passes: Passes, t_eps: float) -> samplers.Step:
        key = (passes, t_eps)
        if key not in self.steps:
            step = samplers.make_step(self.backend.xp, FlowSpec(t_eps=t_eps), passes, "clean")
            self.steps[key] = self.backend.compile(step)
        return self.steps[key]


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Every state, the final state, logits and tokens of every case."""
    backend = network_backend(backend_name, archive.under("params"), row_length(archive, "z0"))
    network = backend.config.network
    two_pass = network.self_conditioning and not network.guidance_tokens
    programs = Programs(backend)
    for case in archive.cases.values():
        limit = Z_AMPLIFIED if two_pass and case.name == AMPLIFYING else Z
        run = replay(backend, programs, case)
        ids = run.logits.argmax(-1)
        quantities: list[tuple[str, Any, Any, Tolerance]] = [
            ("z_steps", run.z, case["z_steps"], limit),
            ("x_steps", run.x, case["x_pred_steps"], limit),
            ("z_final", run.z[-1], case["z_final"], limit),
            ("logits", run.logits, case["decoder_logits"], LOGITS),
            ("token_ids", ids, case["token_ids"], EQUAL),
        ]
        if "generated_ids" in case:
            lengths = (case["cond_seq_mask"] > 0).sum(axis=1)
            size = ids.shape[1] - ids.shape[1] // 2
            written = drop_condition(ids, lengths, pad_id=0)[:, :size]
            quantities.append(("generated_ids", written, case["generated_ids"], EQUAL))
        for name, found, stored, tolerance in quantities:
            yield compare((case.name, name, backend_name), found, stored, tolerance)


def replay(backend: Backend, programs: Programs, case: Case) -> Run:
    """The case through `samplers.run`, with the stored noise."""
    constraint = stored_constraint(backend, case)
    w, c = case.number("self_cond_cfg_scale"), case.number("cfg_scale")
    passes = needed_passes(backend.config.network, w, c)
    step = programs.step(passes, case.number("t_eps"))

    def noise(index: int) -> FloatArray:  # already multiplied by the noise scale
        return np.asarray(case["eps"][index - 1] if index else case["z0"], np.float32)

    states = list(samplers.run(backend, step, constraint, stored_knobs(case), noise, 1.0))
    rows = np.full(case["z0"].shape[0], w, np.float32)
    logits = programs.decode(states[-1].z, backend.asarray(rows), constraint.valid)
    return Run(
        np.stack([backend.to_numpy(s.z) for s in states]),
        np.stack([backend.to_numpy(s.x) for s in states]),
        backend.to_numpy(logits),
    )


def stored_knobs(case: Case) -> Knobs:
    """The case's settings, the same for every row."""
    rows = case["z0"].shape[0]
    gamma = case.number("sde_gamma") if case.number("is_sde") else 0.0
    return Knobs(
        times=np.repeat(case["t_steps"].astype(np.float32)[:, None], rows, axis=1),
        gamma=np.full(rows, gamma, np.float32),
        w=np.full(rows, case.number("self_cond_cfg_scale"), np.float32),
        c=np.full(rows, case.number("cfg_scale"), np.float32),
    )
