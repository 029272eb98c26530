"""`python -m benchmarks`: time of ours over the time that the same matrix products alone take, in
the same library, on this machine, in the same run. Medians; a ratio of 1 is the limit."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version

from benchmarks.measure import Result, table
from benchmarks.tasks import Model, bundled_model, random_model, results
from elf_engine.backends import NAMES
from elf_engine.config import LayoutSpec, ModelConfig, NetworkSpec
from elf_engine.errors import ElfError

BUNDLED = "starter"
FULL_REPEATS, QUICK_REPEATS = 7, 3


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--backend", choices=(*NAMES, "both"), default="both")
    options = parser.parse_args(arguments)
    backends = NAMES if options.backend == "both" else (options.backend,)
    try:
        measured = list(_measure(backends, options.quick))
    except ElfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    versions = ", ".join(f"{name} {version(name)}" for name in backends)
    print(f"{os.cpu_count()} cores; {versions}; float32; medians")
    print()
    print(table(measured))
    return 0


def _measure(backends: tuple[str, ...], quick: bool) -> Iterator[Result]:
    for model in _models(quick):
        for backend in backends:
            for result in results(model, backend, QUICK_REPEATS if quick else FULL_REPEATS):
                print(f"{result.backend} {result.model} {result.task}", file=sys.stderr)
                yield result


def _models(quick: bool) -> Iterator[Model]:
    published = ModelConfig("B", NetworkSpec(), layout=LayoutSpec(padding="attended"))
    if quick:
        small = replace(published, network=NetworkSpec(depth=1, vocab=1024))
        yield random_model("B, 1 block", small, ((1, 64),))
    else:
        yield random_model("B", published, ((1, 128), (8, 128), (1, 1024)))
    bundled = bundled_model(BUNDLED, 1 if quick else 9)
    if bundled is None:
        print(f"no bundled model '{BUNDLED}'; it is left out", file=sys.stderr)
    else:
        yield bundled


if __name__ == "__main__":
    sys.exit(main())
