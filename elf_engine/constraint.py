"""What is fixed while the rest is written: one value says prefix, infill, rewrite and pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from elf_engine.flow import interpolate
from elf_engine.types import Array


@dataclass(frozen=True)
class Constraint:
    """Known positions, their latents, and where the flow starts. Arrays are the backend's.

    known      (B,S,1) bool, positions that stay
    clean      (B,S,D) latents of the known positions, 0 elsewhere
    valid      (B,S) bool, false for padding; None when the model attends everywhere
    positions  (B,S) int, those of RoPE; None when they count from 0
    origin     (B,S,D) latents the start state is mixed from (rewrite); None starts from noise
    t_start    start time in [0, 1): 0 is pure noise
    hold       "clean": known positions are clean at every t. "renoise": they follow the flow with
               the start noise, for models that never saw a clean condition.

    prefix: leading tokens known. infill: all but the gaps. translate, summarise: the source.
    rewrite: protected words known, `origin` the whole text, t_start = 1 - strength.
    """

    known: Array
    clean: Array
    valid: Array | None = None
    positions: Array | None = None
    origin: Array | None = None
    t_start: float = 0.0
    hold: Literal["clean", "renoise"] = "clean"

    @property
    def held(self) -> tuple[Array, Array, Array | None, Array | None]:
        """What every network step is given, see `samplers.make_step`."""
        return self.known, self.clean, self.valid, self.positions

    def start(self, xp: Any, noise: Array) -> Array:
        """State at t_start from start noise (B,S,D) already multiplied by the noise scale."""
        z = noise
        if self.origin is not None and self.t_start > 0:
            z = interpolate(self.origin, noise, self.t_start)
        return self.project(xp, z, noise, self.t_start)

    def project(self, xp: Any, z: Array, noise: Array, t: Array | float) -> Array:
        """z with the known positions put back, at time t (broadcasting against (B,S,D))."""
        held = self.clean if self.hold == "clean" else interpolate(self.clean, noise, t)
        return xp.where(self.known, held, z)

    def estimate(self, xp: Any, x: Array) -> Array:
        """x with the known positions' true latents: what the next self-condition sees."""
        return xp.where(self.known, self.clean, x)

    def first_estimate(self, xp: Any) -> Array:
        """The self-condition of the first step: zeros, but clean at known positions if held so."""
        zeros = xp.zeros_like(self.clean)
        return self.estimate(xp, zeros) if self.hold == "clean" else zeros
