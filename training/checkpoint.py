"""Checkpoints of a run: safetensors and JSON, written whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from elf_engine.errors import ElfError
from training.step import State

KEEP = 2


def _named(state: State) -> tuple[dict[str, Any], Any]:
    leaves, tree = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}, tree


def save(directory: Path, state: State, progress: dict[str, float]) -> Path:
    """Write `directory/step-N`, then remove all but the newest checkpoints."""
    step = int(state.step)
    target = directory / f"step-{step:08d}"
    directory.mkdir(parents=True, exist_ok=True)
    named, _ = _named(state)
    with tempfile.TemporaryDirectory(prefix=".step.", dir=directory) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        arrays = {k: np.asarray(v, order="C") for k, v in named.items()}
        save_file(arrays, new / "state.safetensors")
        (new / "progress.json").write_text(json.dumps({"step": step, **progress}))
        if target.exists():
            shutil.rmtree(target)
        new.rename(target)
    for old in sorted(directory.glob("step-*"))[:-KEEP]:
        shutil.rmtree(old)
    return target


def latest(directory: Path) -> Path:
    """The newest checkpoint. Raises ElfError when there is none."""
    found = sorted(directory.glob("step-*"))
    if not found:
        raise ElfError(f"no checkpoint in '{directory}'; start the run with: train --config NAME")
    return found[-1]


def load(checkpoint: Path, like: State) -> tuple[State, dict[str, float]]:
    """The state as saved, shaped `like`. Raises ElfError naming the first tensor that differs."""
    stored = load_file(checkpoint / "state.safetensors")
    named, tree = _named(like)
    for name, leaf in named.items():
        found = stored.get(name)
        if found is None or found.shape != leaf.shape:
            have = "missing" if found is None else f"{found.shape}"
            raise ElfError(f"{checkpoint}: {name} is {have}, the config implies {leaf.shape}")
    extra = set(stored) - set(named)
    if extra:
        raise ElfError(f"{checkpoint}: {min(extra)} is not part of this run")
    # Copies, because a step may give its state's memory away.
    leaves = [jnp.array(stored[name], like_leaf.dtype) for name, like_leaf in named.items()]
    progress: dict[str, float] = json.loads((checkpoint / "progress.json").read_text())
    return jax.tree_util.tree_unflatten(tree, leaves), progress
