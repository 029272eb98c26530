"""Markdown tables of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elf_engine.metrics.estimate import Estimate

ARROW = {1: "more is better", -1: "less is better", 0: ""}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; bars and line ends in cells cannot break it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, rows)]) + "\n"


def number(value: float | None) -> str:
    """Four digits that count, enough for any interval here."""
    if value is None or value != value:
        return "none"
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:.3e}"


def interval(found: Mapping[str, Any] | Estimate) -> str:
    """ "12.3 (11.9 to 12.8)"."""
    facts = vars(found) if isinstance(found, Estimate) else found
    return f"{number(facts['value'])} ({number(facts['low'])} to {number(facts['high'])})"


def score_table(found: Mapping[str, Any]) -> str:
    """What `elf-eval score` prints."""
    lines = [f"{found['samples']} samples"]
    if found["failed"]:
        lines[0] += f", {found['failed']} of them failed and count as empty"
    rows = [
        [name, interval(facts), facts["unit"], ARROW[facts["better"]]]
        for name, facts in found["metrics"].items()
    ]
    parts = [lines[0] + "\n", markdown(["metric", "value (95 %)", "unit", ""], rows)]
    if "against" in found:
        rows = [
            [
                name,
                number(facts["other"]),
                f"{number(facts['difference'])} "
                f"({number(facts['low'])} to {number(facts['high'])})",
                number(facts["p"]),
            ]
            for name, facts in found["against"].items()
        ]
        parts.append(markdown(["metric", "other system", "difference (95 %)", "p"], rows))
    if found.get("groups"):
        names = list(found["metrics"])
        rows = [
            [group or "(none)", str(facts["samples"])]
            + [interval(facts["metrics"][name]) for name in names]
            for group, facts in found["groups"].items()
        ]
        parts.append(markdown(["group", "samples", *names], rows))
    return "\n".join(parts)
