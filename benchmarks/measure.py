"""Timing two things in turn, so that both meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.products import Product, runner


@dataclass(frozen=True)
class Result:
    """Median seconds of ours and of the same matrix products alone."""

    backend: str
    model: str
    task: str
    gflop: float
    ours: float
    products: float

    @property
    def ratio(self) -> float:
        """1 is the limit of this machine and library."""
        return self.ours / self.products


def in_turn(calls: list[Callable[[], None]], repeats: int) -> list[float]:
    """Median seconds of each call, after one unmeasured round."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        for call, taken in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]


def against_products(
    labels: tuple[str, str, str],
    ours: Callable[[], None],
    passes: list[tuple[int, list[Product]]],
    repeats: int,
) -> Result:
    """Compare `ours` with its products: each pass's list, that many times; labels are (backend,
    model, task)."""
    alone = [(count, runner(labels[0], products)) for count, products in passes]

    def all_products() -> None:
        for count, call in alone:
            for _ in range(count):
                call()

    mine, theirs = in_turn([ours, all_products], repeats)
    flop = sum(count * p.flop for count, products in passes for p in products)
    return Result(*labels, flop / 1e9, mine, theirs)


def table(results: list[Result]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| backend | model | task | GFLOP | ours, ms | products alone, ms | ratio | GFLOP/s |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        lines.append(
            f"| {r.backend} | {r.model} | {r.task} | {r.gflop:.3g} | {r.ours * 1e3:.4g} "
            f"| {r.products * 1e3:.4g} | {r.ratio:.2f} | {r.gflop / r.ours:.0f} |"
        )
    return "\n".join(lines)
