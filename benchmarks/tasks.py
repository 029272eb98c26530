"""What is measured: one sampler step, and a whole 32-step SDE run with its decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import Result, against_products
from benchmarks.products import decode_products, denoise_products
from elf_engine import backends, model_dir, noise, samplers, times
from elf_engine.backends.protocol import Backend
from elf_engine.config import ModelConfig
from elf_engine.constraint import Constraint
from elf_engine.guidance import Passes
from elf_engine.types import FloatArray, Weights

STEPS = 32


@dataclass(frozen=True)
class Model:
    """A model to measure, and the (batch, length) shapes to run it at."""

    label: str
    config: ModelConfig
    network: Weights
    shapes: tuple[tuple[int, int], ...]


def random_model(label: str, config: ModelConfig, shapes: tuple[tuple[int, int], ...]) -> Model:
    """Weights of the right shapes; the numbers do not change the time."""
    draw = np.random.default_rng(0)
    network = {
        name: draw.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        for name, shape in model_dir.expected_shapes(config.network).items()
    }
    return Model(label, config, network, shapes)


def bundled_model(name: str, shapes: int) -> Model | None:
    """The model that comes with the project at its first `shapes` lengths; None without one."""
    if name not in model_dir.bundled():
        return None
    files = model_dir.load(model_dir.find(name))
    lengths = files.config.layout.lengths[:shapes]
    return Model(name, files.config, files.network, tuple((1, length) for length in lengths))


def results(model: Model, backend_name: str, repeats: int) -> Iterator[Result]:
    """A step at every shape, and a whole run at the first."""
    backend = backends.load(backend_name)(model.config, model.network, {}, "float32")
    network = model.config.network
    for batch, length in model.shapes:
        labels = (backend_name, model.label, f"step {batch} x {length}")
        passes = [(1, denoise_products(network, batch, length))]
        yield against_products(labels, one_step(backend, batch, length), passes, repeats)
    batch, length = model.shapes[0]
    labels = (backend_name, model.label, f"{STEPS}-step SDE + decode {batch} x {length}")
    passes = [(STEPS, denoise_products(network, batch, length))]
    passes.append((1, decode_products(network, batch, length)))
    yield against_products(labels, sde_run(backend, batch, length), passes, repeats)


def one_step(backend: Backend, batch: int, length: int) -> Callable[[], None]:
    """One SDE step as the sampler makes it, guidance through the guidance tokens."""
    put, step = backend.asarray, _step(backend)
    state = _noise(backend, batch, length)
    constraint = _free(backend, batch, length)
    held = constraint.held
    z, x_prev, start, eps = (put(state(i)) for i in range(4))
    column = [put(np.full(batch, value, np.float32)) for value in (0.5, 0.53, 1.0, 3.0, 1.0)]

    def run() -> None:
        moved, _ = step((z, x_prev), (start, eps), tuple(column[:2]), tuple(column[2:]), held)
        backend.to_numpy(moved)

    return run


def sde_run(backend: Backend, batch: int, length: int) -> Callable[[], None]:
    """The sampler's own loop with its noise, then the most likely tokens."""
    step, xp = _step(backend), backend.xp
    constraint = _free(backend, batch, length)
    grid = np.array(times.uniform(STEPS), np.float32)
    one = np.ones(batch, np.float32)
    knobs = samplers.Knobs(np.repeat(grid[:, None], batch, 1), one * 1.5, one * 3, one)
    decode = backend.compile(lambda net, z, w, valid: xp.argmax(net.logits(z, w, valid), -1))
    draw, scale = _noise(backend, batch, length), backend.config.flow.noise_scale

    def run() -> None:
        *_, last = samplers.run(backend, step, constraint, knobs, draw, scale)
        backend.to_numpy(decode(last.z, backend.asarray(knobs.w), constraint.valid))

    return run


def _step(backend: Backend) -> samplers.Step:
    config = backend.config
    made = samplers.make_step(backend.xp, config.flow, Passes(), config.layout.hold)
    return backend.compile(made)


def _free(backend: Backend, batch: int, length: int) -> Constraint:
    """Nothing known; a mask where the model was trained with one."""
    masked = backend.config.layout.padding == "masked"
    shape = (batch, length)
    width = backend.config.network.embedding_dim
    return Constraint(
        known=backend.asarray(np.zeros((*shape, 1), np.bool_)),
        clean=backend.asarray(np.zeros((*shape, width), np.float32)),
        valid=backend.asarray(np.ones(shape, np.bool_)) if masked else None,
    )


def _noise(backend: Backend, batch: int, length: int) -> Callable[[int], FloatArray]:
    width = backend.config.network.embedding_dim

    def draw(step: int) -> FloatArray:
        rows: list[Any] = [noise.normal(0, i, step, length, width) for i in range(batch)]
        return np.stack(rows)

    return draw
