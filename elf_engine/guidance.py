"""Both guidances over a network, as one clean estimate (ELF.md, "Sampling").

Self-conditioning guidance w enters through the network's guidance tokens; a network without them
mixes a pass with and a pass without self-condition. Condition guidance c mixes a pass with and a
pass without the condition's latents. All passes of one estimate go through as one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elf_engine.backends.protocol import Network
from elf_engine.constraint import Constraint
from elf_engine.flow import mix
from elf_engine.types import Array


@dataclass(frozen=True)
class Passes:
    """Which passes a step runs; fixed before compilation.

    condition       mix with the unconditional pass (c may still be 1 for some rows)
    self_condition  mix with the pass without self-condition (networks without guidance tokens)
    """

    condition: bool = False
    self_condition: bool = False

    @property
    def count(self) -> int:
        """Network passes per step."""
        return (1 + self.condition) * (1 + self.self_condition)


@dataclass(frozen=True)
class Guidance:
    """Guidance scales w and c, each (B,), and the passes that apply them."""

    w: Array
    c: Array
    passes: Passes


def guided_estimate(
    net: Network,
    xp: Any,
    z: Array,
    x_prev: Array,
    t: Array,
    guidance: Guidance,
    constraint: Constraint,
) -> Array:
    """Clean estimate x (B,S,D) at t (B,); z and x_prev hold the known positions' values already.

    The unconditional pass zeroes the known positions in z and in the self-condition and otherwise
    reuses the guided x_prev, as published.
    """
    known, passes = constraint.known, guidance.passes
    zs, priors = [z], [x_prev]
    if passes.self_condition:
        # Without self-condition: zeros, but the known positions keep what x_prev holds there.
        zs, priors = [z, z], [x_prev, xp.where(known, x_prev, xp.zeros_like(x_prev))]
    if passes.condition:
        zs += [xp.where(known, xp.zeros_like(a), a) for a in zs]
        priors += [xp.where(known, xp.zeros_like(a), a) for a in priors]
    n, rows = len(zs), z.shape[0]
    held = (constraint.valid, constraint.positions)
    x = net.denoise(
        xp.concat(zs),
        xp.concat(priors),
        xp.concat([t] * n),
        xp.concat([guidance.w] * n),
        *(None if a is None else xp.concat([a] * n) for a in held),
    )
    parts = [x[i * rows : (i + 1) * rows] for i in range(n)]
    if passes.self_condition:
        w = guidance.w[:, None, None]
        parts = [mix(off, on, w) for on, off in zip(parts[::2], parts[1::2], strict=True)]
    if passes.condition:
        parts = [mix(parts[1], parts[0], guidance.c[:, None, None])]
    return parts[0]
