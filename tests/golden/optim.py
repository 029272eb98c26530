"""optim: the trainer's optimizers, schedules and weight average (JAX)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
import optax

from elf_engine.weights import flatten, unflatten
from tests.golden.archive import Archive, BadFileError, Case
from tests.golden.compare import Row, Tolerance, compare, compare_all
from tests.golden.models import QUICK
from training.config import OptimizerConfig
from training.optimizer import ema, make_optimizer, schedule

LIMIT = Tolerance(1e-6)
# Of gradients that differ by rounding: 0.2 % of the learning rate.
OWN_GRADIENTS = Tolerance(4e-6)
RATE = Tolerance(1e-6, relative=True)
# An average hardly moves in one step: within 1e-6 it may as well not have moved at all.
AVERAGE, AVERAGED = Tolerance(5e-7), "muon/params3"
PEAK = 0.002

# The published recipe: Muon for every matrix, the output table included.
MUON = OptimizerConfig(
    learning_rate=PEAK, adam_learning_rate=PEAK, warmup=0, warmup_start="zero", adam_for=()
)
ADAMW = replace(MUON, kind="adamw", adam_b2=0.95)
RULES = {
    "muon": MUON,
    "muon_noclip": replace(MUON, clip=0.0),
    "muon_warmup2": replace(MUON, warmup=2),
    "muon_accum2": replace(MUON, accumulate=2),
    "adamw": replace(ADAMW, weight_decay=0.1),
    "adamw_nowd": ADAMW,
}


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Parameters and updates after every gradient of every rule; rates; the average."""
    for case in archive.cases.values():
        if case.name in RULES:
            yield from _replay(archive, case)
        elif case.name == "ema":
            params = archive.under(AVERAGED)
            found = ema(archive.under("ema/old"), params, case.number("decay"))
            yield compare_all(("ema", "average", "jax"), found, archive.under("ema/new"), AVERAGE)
        elif case.name == "lr":
            yield from _rates(case)
        elif not case.name.startswith(("params0", "grads")):
            raise BadFileError(f"{archive.path}: rule '{case.name}' is not one the trainer has")


def _replay(archive: Archive, case: Case) -> Iterator[Row]:
    params = jax.tree.map(jax.numpy.asarray, unflatten(archive.under("params0")))
    optimizer = make_optimizer(RULES[case.name], steps=1000)
    state = jax.jit(optimizer.init, compiler_options=QUICK)(params)
    update = jax.jit(optimizer.update, compiler_options=QUICK)
    stored = Archive(archive.path, case.arrays)
    tops = {name.split("/")[0] for name in case.arrays}
    count = max(int(top.removeprefix("params")) for top in tops if top.startswith("params"))
    for i in range(1, count + 1):
        grads = unflatten(archive.under(f"grads{i - 1}"))
        change, state = update(grads, state, params)
        params = optax.apply_updates(params, change)
        for name, tree in ((f"params{i}", params), (f"update{i}", change)):
            if any(key.startswith(f"{name}/") for key in case.arrays):
                where = (case.name, name, "jax")
                yield compare_all(where, flatten(tree), stored.under(name), LIMIT)


def _rates(case: Case) -> Iterator[Row]:
    steps, warmup, peak, floor = (float(value) for value in case["meta"])
    published = replace(MUON, warmup=round(warmup), decay="cosine", final=floor / peak)
    plans = {
        "constant": published,
        "cosine": replace(published, decay_from=round(warmup)),
        "nowarmup": replace(published, warmup=0),
    }
    for name, plan in plans.items():
        found = schedule(plan, peak, round(steps))(case[f"{name}/step"])
        yield compare(("lr", name, "jax"), np.asarray(found), case[f"{name}/lr"], RATE)
