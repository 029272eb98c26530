"""sampling_utils: the equations, time grids and batch helpers, each by its stored case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from elf_engine import flow, times
from elf_engine.constraint import Constraint
from elf_engine.layout import Batch
from elf_engine.published import batching
from tests.golden.archive import Archive, BadFileError, Case
from tests.golden.compare import EQUAL, Row, Tolerance, compare
from training import objective

PLAIN = Tolerance(1e-6)
VELOCITY = Tolerance(2e-5, relative=True)  # divided by as little as t_eps

# (quantity, found, stored, tolerance)
Compared = tuple[str, Any, Any, Tolerance]


class Arrays:
    """A backend's array functions, without a network."""

    def __init__(self, backend_name: str) -> None:
        self.name = backend_name
        self.xp: Any
        self.put: Callable[[Any], Any]
        if backend_name == "jax":
            import jax.numpy

            self.xp, self.put = jax.numpy, jax.numpy.asarray
        else:
            import torch

            self.xp, self.put = torch, torch.tensor


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Every case of the file; one the engine has no function for is a bad file."""
    lib = Arrays(backend_name)
    for case in archive.cases.values():
        for quantity, found, stored, tolerance in _checker(case)(lib, case):
            yield compare((case.name, quantity, backend_name), found, stored, tolerance)


def _checker(case: Case) -> Callable[[Arrays, Case], Iterator[Compared]]:
    for start, checker in CHECKERS.items():
        if case.name.startswith(start):
            return checker
    raise BadFileError(f"{case.source}: case '{case.name}' is not one of {', '.join(CHECKERS)}")


def add_noise(lib: Arrays, case: Case) -> Iterator[Compared]:
    x, t = lib.put(case["x0"]), lib.put(case["t"])[:, None, None]
    noise = lib.put(case["noise"]) * case.number("noise_scale")
    z = flow.interpolate(x, noise, t)
    yield "z", z, case["z"], PLAIN
    held = Constraint(_known(lib, case["cond_seq_mask"]), x)
    yield "z_cond", held.project(lib.xp, z, noise, t), case["z_cond"], PLAIN


def uniform_grid(lib: Arrays, case: Case) -> Iterator[Compared]:
    stored = case["t_steps"]
    yield "t_steps", lib.put(np.array(times.uniform(len(stored) - 1), np.float32)), stored, PLAIN


def logit_normal_grid(lib: Arrays, case: Case) -> Iterator[Compared]:
    grid = times.logit_normal(case["normals"].tolist(), case.number("p_mean"), case.number("p_std"))
    yield "t_steps", lib.put(np.array(grid, np.float32)), case["t_steps"], PLAIN


def training_times(lib: Arrays, case: Case) -> Iterator[Compared]:
    """Training draws with JAX alone, so this is compared once."""
    if lib.name == "jax":
        mean, std = case.number("p_mean"), case.number("p_std")
        yield "t", objective.logit_normal(lib.put(case["normals"]), mean, std), case["t"], PLAIN


def training_scale(lib: Arrays, case: Case) -> Iterator[Compared]:
    if lib.name == "jax":
        low, high = case.number("cfg_min"), case.number("cfg_max")
        found = objective.guidance_scale(lib.put(case["u"]), low, high)
        yield "scale", found, case["scale"], PLAIN


def restore(lib: Arrays, case: Case) -> Iterator[Compared]:
    z, clean = lib.put(case["z"]), lib.put(case["cond_seq"])
    for mask, out in (("cond_seq_mask", "out"), ("soft_mask", "out_soft")):
        held = Constraint(_known(lib, case[mask]), clean)
        yield out, held.project(lib.xp, z, z, 0.0), case[out], PLAIN


def to_velocity(lib: Arrays, case: Case) -> Iterator[Compared]:
    x, z, t = (lib.put(case[name]) for name in ("net_out", "z", "t"))
    gap = lib.xp.clip(1 - t, case.number("t_eps"), 1)[:, None, None]
    yield "x", x, case["x"], PLAIN
    yield "v", flow.velocity_from_x(x, z, gap), case["v"], VELOCITY


def restore_both(lib: Arrays, case: Case) -> Iterator[Compared]:
    """The engine keeps no velocity at known positions: it follows from z and x held there."""
    x, v = lib.put(case["x_in"]), lib.put(case["v_in"])
    held = Constraint(_known(lib, case["cond_seq_mask"]), lib.put(case["cond_seq"]))
    z = held.project(lib.xp, x - v, v, 0.0)  # the state from which v leads to x in one unit
    x = held.estimate(lib.xp, x)
    yield "x", x, case["x"], PLAIN
    yield "v", flow.velocity_from_x(x, z, 1.0), case["v"], PLAIN


def masks(lib: Arrays, case: Case) -> Iterator[Compared]:
    known, valid = case["is_cond"] > 0, case["is_valid"] > 0
    batch = Batch(np.zeros(known.shape, np.int32), known, valid)
    yield "encoder_mask", lib.put(batch.visible), case["encoder_attention_mask"], EQUAL
    yield "attention_mask", lib.put(batch.valid), case["attention_mask"], EQUAL
    yield "cond_seq_mask", lib.put(batch.known), case["cond_seq_mask"], EQUAL


def after_eos(lib: Arrays, case: Case) -> Iterator[Compared]:
    eos, pad = int(case.number("eos")), int(case.number("pad"))
    yield "out", batching.mask_after_eos(case["ids"], eos, pad), case["out"], EQUAL


def shifted(lib: Arrays, case: Case) -> Iterator[Compared]:
    rows = case["ids"] if "ids" in case else case["x"]
    fill = case.number("pad_value")
    yield "out", batching.shift_left(rows, case["shift"], fill), case["out"], EQUAL


def _known(lib: Arrays, mask: Any) -> Any:
    return lib.put(mask[..., None] > 0)


CHECKERS: dict[str, Callable[[Arrays, Case], Iterator[Compared]]] = {
    "add_noise": add_noise,
    "sampling_steps_uniform": uniform_grid,
    "sampling_steps_logit_normal": logit_normal_grid,
    "sample_timesteps_logit_normal": training_times,
    "sample_cfg_scale": training_scale,
    "restore_cond": restore,
    "net_out_to_v_x": to_velocity,
    "restore_vx": restore_both,
    "cond_masks": masks,
    "mask_after_eos": after_eos,
    "shift_left": shifted,
}
