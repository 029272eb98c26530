"""Result files: scores with all that makes them again. `elf-eval report` reads nothing else."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elf_engine.errors import ElfError

FORMAT = 1
KINDS = ("suite", "duel", "sweep")
ROOT = Path(__file__).resolve().parents[2]


def provenance(command: str, seed: int) -> dict[str, Any]:
    """Command, seed, git revision ("+" when files differ from it) and machine; no names."""
    return {"command": command, "seed": seed, "git": revision(), "machine": machine()}


def revision() -> str:
    """Short hash of the commit this code is, "unknown" outside a repository."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        dirty = _git("status", "--porcelain", "--untracked-files=no", "--", "app", "elf_engine")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if dirty else "")


def machine() -> str:
    """Cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}"


def save(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result in one step."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, **result}, ensure_ascii=False, indent=1)
        part.write_text(text + "\n", "utf-8")
        os.replace(part, path)
    except OSError as error:
        raise ElfError(f"'{path}' cannot be written: {error.strerror}") from error


def load(path: Path) -> dict[str, Any]:
    """Read a result file. Raises ElfError when it is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ElfError(f"'{path}' is no readable result file ({error})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ElfError(f"'{path}' is no result file of format {FORMAT}; measure it again")
    if found.get("kind") not in KINDS:
        raise ElfError(f"'{path}': kind {found.get('kind')!r} is none of {', '.join(KINDS)}")
    return found


def _git(*arguments: str) -> str:
    run = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return run.stdout.strip()
