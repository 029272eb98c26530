"""`python -m tests.golden PATH...`: exit 0 when all that was compared agrees, 1 when anything is
past its tolerance, 2 when a path or file cannot be checked at all."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from elf_engine.backends import NAMES
from elf_engine.errors import ElfError
from tests.golden.compare import Row
from tests.golden.kinds import Item, find


def main(arguments: list[str] | None = None) -> int:
    """Run the command; see the module's docstring for the exit status."""
    options = _parser().parse_args(arguments)
    backends = NAMES if options.backend == "both" else (options.backend,)
    try:
        items = [item for path in options.paths for item in find(path)]
        counts: Counter[str] = Counter()
        for item in items:
            counts += _check(item, backends)
    except ElfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _conclude(counts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files or directories")
    parser.add_argument("--backend", choices=(*NAMES, "both"), default="both")
    return parser


def _check(item: Item, backends: tuple[str, ...]) -> Counter[str]:
    print(f"{item.path} ({item.kind.name})")
    counts: Counter[str] = Counter()
    if not item.covered:
        print("  not covered yet")
        return Counter({"uncovered": 1})
    for row in item.rows(backends):
        print(line(row), flush=True)
        counts["passed" if row.ok else "failed"] += 1
    if not counts:
        print("  nothing to compare")
        counts["empty"] = 1
    return counts


def line(row: Row) -> str:
    """One compared quantity as text."""
    name = f"{row.case}/{row.quantity}"
    numbers = f"abs {row.absolute:8.1e}  rel {row.relative:8.1e}  limit {row.tolerance!s:<9}"
    end = f"ok  {row.note}" if row.ok else f"PAST THE LIMIT  {row.note}"
    return f"  {row.backend:<5}  {name:<46}  {numbers}  {end}".rstrip()


def _conclude(counts: Counter[str]) -> int:
    print(f"{counts['passed']} comparisons within their limits, {counts['failed']} past them")
    if counts["uncovered"]:
        print(f"{counts['uncovered']} files not covered yet; they count as neither")
    if counts["empty"]:
        print(f"{counts['empty']} files held nothing to compare")
    if counts["failed"] or counts["empty"]:
        return 1
    if not counts["passed"]:
        print("nothing was checked")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
