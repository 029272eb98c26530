"""The sampling loop, written once for both backends (ELF.md, "Sampling").

One step serves ODE and SDE: with gamma = 0 the step back is the identity and Euler remains. All
knobs are per-row arrays, so neither another seed nor another gamma or guidance compiles anything,
and requests of different people can share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from elf_engine.backends.protocol import Backend, Network
from elf_engine.config import FlowSpec
from elf_engine.constraint import Constraint
from elf_engine.flow import euler, jump_back, renoise, velocity_from_x
from elf_engine.guidance import Guidance, Passes, guided_estimate
from elf_engine.types import Array, FloatArray

NoiseAt = Callable[[int], FloatArray]  # step -> unit noise (B,S,D); step 0 is the start state


@dataclass(frozen=True)
class Knobs:
    """Per-row settings of a run, NumPy.

    times (N+1,B): each row's grid; gamma, w, c (B,)
    """

    times: FloatArray
    gamma: FloatArray
    w: FloatArray
    c: FloatArray


@dataclass(frozen=True)
class State:
    """Where a run stands after `index` steps: noisy state z and clean estimate x, (B,S,D)."""

    index: int
    z: Array
    x: Array


Step = Callable[..., tuple[Array, Array]]
# (state, noise, times, knobs, held) of `make_step`. The first axis of every array is the row.
Inputs: TypeAlias = tuple[tuple[Array | None, ...], ...]


def make_step(xp: Any, flow: FlowSpec, passes: Passes, hold: Literal["clean", "renoise"]) -> Step:
    """The pure step `(net, state, noise, times, knobs, held) -> (z, x)` to compile.

    state  (z, x_prev), each (B,S,D)
    noise  (start, eps), each (B,S,D), already multiplied by the noise scale
    times  (t, t_next), each (B,)
    knobs  (gamma, w, c), each (B,); gamma 0 is Euler's ODE step
    held   (known (B,S,1), clean (B,S,D), valid (B,S) or None, positions (B,S) or None)
    """

    def step(
        net: Network,
        state: tuple[Array, Array],
        noise: tuple[Array, Array],
        times: tuple[Array, Array],
        knobs: tuple[Array, Array, Array],
        held: tuple[Array, Array, Array | None, Array | None],
    ) -> tuple[Array, Array]:
        (z, x_prev), (start, eps), (t, t_next), (gamma, w, c) = state, noise, times, knobs
        constraint = Constraint(*held, hold=hold)
        alpha = xp.clip(1 - gamma * (t_next - t), 0, 1)
        t_back = alpha * t
        z = renoise(z, eps, _column(alpha))
        z = constraint.project(xp, z, start, _column(t_back))
        x = guided_estimate(net, xp, z, x_prev, t_back, Guidance(w, c, passes), constraint)
        x = constraint.estimate(xp, x)
        gap = xp.clip(1 - t_back, flow.t_eps, 1)
        z = euler(z, velocity_from_x(x, z, _column(gap)), _column(t_next - t_back))
        return constraint.project(xp, z, start, _column(t_next)), x

    return step


def _column(a: Array) -> Array:
    """(B,) -> (B,1,1), to broadcast against (B,S,D)."""
    return a[:, None, None]


def order(steps: int, resample: int) -> list[int]:
    """The step of the grid that each network step makes. With `resample` jumps every step between
    the first and the last is made again that many times, each after a jump back to its start."""
    inner = [i for i in range(1, steps - 1) for _ in range(1 + resample)]
    return [0, *inner, *([steps - 1] if steps > 1 else [])]


class Walk:
    """One run between its network steps: what the next step is given, and where it has led.

    The step itself is made by the caller, who may make it for several walks at once.
    """

    def __init__(
        self,
        backend: Backend,
        constraint: Constraint,
        knobs: Knobs,
        noise: NoiseAt,
        noise_scale: float,
        resample: int = 0,
    ) -> None:
        self._backend, self._knobs, self._noise = backend, knobs, noise
        self._scale = np.float32(noise_scale)
        self._order = order(len(knobs.times) - 1, resample)
        put = backend.asarray
        self._start = put(noise(0) * self._scale)
        self._held = constraint.held
        self._w, self._c = put(knobs.w), put(knobs.c)
        first = constraint.first_estimate(backend.xp)
        self.state = State(0, constraint.start(backend.xp, self._start), first)

    @property
    def steps(self) -> int:
        """Network steps in all."""
        return len(self._order)

    @property
    def ended(self) -> bool:
        return self.state.index == self.steps

    @property
    def t(self) -> float:
        """Time the first row has reached."""
        index = self.state.index
        at = self._order[index - 1] + 1 if index else 0
        return float(self._knobs.times[at, 0])

    def inputs(self) -> Inputs:
        """What the next step is given after the network, see `make_step`."""
        xp, put, state, knobs = self._backend.xp, self._backend.asarray, self.state, self._knobs
        i, last = self._order[state.index], len(knobs.times) - 2
        again = state.index > 0 and self._order[state.index - 1] == i
        gamma = np.zeros_like(knobs.gamma) if again or i == last else knobs.gamma
        if again or gamma.any():
            eps = put(self._noise(state.index + 1) * self._scale)
        else:
            eps = xp.zeros_like(self._start)
        t, t_next = put(knobs.times[i]), put(knobs.times[i + 1])
        z = jump_back(state.z, eps, _column(t_next), _column(t)) if again else state.z
        # The step itself puts the known positions back.
        knobs_now = (put(gamma), self._w, self._c)
        return (z, state.x), (self._start, eps), (t, t_next), knobs_now, self._held

    def take(self, z: Array, x: Array) -> State:
        """The state that the step has led to."""
        self.state = State(self.state.index + 1, z, x)
        return self.state


def run(
    backend: Backend,
    step: Step,
    constraint: Constraint,
    knobs: Knobs,
    noise: NoiseAt,
    noise_scale: float,
    resample: int = 0,
) -> Iterator[State]:
    """Yield the start state and then one State per network step, see `order`.

    `step` is `backend.compile(make_step(...))`. The last step is always plain ODE, as published.
    A step after a jump back has its noise in the jump and is plain ODE too. Closing the iterator
    stops between two steps.
    """
    walk = Walk(backend, constraint, knobs, noise, noise_scale, resample)
    yield walk.state
    while not walk.ended:
        yield walk.take(*step(*walk.inputs()))
