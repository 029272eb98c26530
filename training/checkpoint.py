"""Checkpoints of a run with Orbax: written in the background, whole or not at all, checked on
reading.

A checkpoint holds the state's arrays, the tokenizer's files and a JSON record: step, position in
the data, random key, config, and a mark of every array and file. Orbax makes a save atomic; the
marks tell a checkpoint that was damaged after it was written, on any mesh.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from elf_engine.config import to_dict
from elf_engine.errors import ElfError
from elf_engine.published.convert import TOKENIZER_FILES
from training.config import TrainConfig, tokenizer_path
from training.mesh import first_process, together
from training.step import State

FOLDER = "checkpoints"
DAMAGED = "damaged"
ODD_STEP = np.uint32(2654435762)  # golden ratio of 2^32, even: each place gets its own odd factor
Record = dict[str, Any]


@jax.jit
def marks(tree: Any) -> Any:
    """A number for each array that any changed bit changes: the sum of its bits, each element
    times its own odd factor, modulo 2^32. Integer sums do not depend on the devices."""

    def mark(a: jax.Array) -> jax.Array:
        width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[a.dtype.itemsize]
        bits = jax.lax.bitcast_convert_type(a, width).astype(jnp.uint32)
        place = jnp.zeros(a.shape, jnp.uint32)
        for axis, size in enumerate(a.shape):
            place = place * size + jax.lax.broadcasted_iota(jnp.uint32, a.shape, axis)
        return jnp.sum((bits + 1) * (place * ODD_STEP + 1), dtype=jnp.uint32)

    return jax.tree.map(mark, tree)


def names(tree: Any) -> list[str]:
    """Readable name of each leaf, in order."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]


def _leaves(state: State) -> Record:
    found = zip(names(state), jax.tree.leaves(state), jax.tree.leaves(marks(state)), strict=True)
    return {name: [list(a.shape), str(a.dtype), int(mark)] for name, a, mark in found}


def _seal(record: Record) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def tokenizer_files(path: Path) -> dict[str, bytes]:
    """The tokenizer's file, or files, by name. Raises ElfError when there is none."""
    files = (
        [path] if path.is_file() else [path / n for n in TOKENIZER_FILES if (path / n).is_file()]
    )
    if not files:
        raise ElfError(f"no tokenizer at '{path}'")
    return {file.name: file.read_bytes() for file in files}


def hashes(files: dict[str, bytes]) -> dict[str, str]:
    """Hex sha256 of each."""
    return {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()}


class Checkpoints:
    """The checkpoints of one run directory. Close it (or use `with`): a save runs on in the
    background."""

    def __init__(self, directory: Path, keep: int = 2) -> None:
        self.directory = directory / FOLDER
        self._manager = ocp.CheckpointManager(
            self.directory.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                step_prefix="step",
                cleanup_tmp_directories=True,
                enable_async_checkpointing=True,
            ),
        )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the save under way."""
        self._manager.close()

    @property
    def steps(self) -> list[int]:
        """Steps with a whole checkpoint, ascending."""
        return sorted(self._manager.all_steps())

    def save(self, config: TrainConfig, state: State, progress: Record, wait: bool = False) -> None:
        """Begin to write the state of step `state.step`; what is there of that step is replaced.
        `progress` is the rest a resumed run needs, plain JSON values."""
        step = int(state.step)
        if step in self.steps:
            self._manager.delete(step)
        if jax.default_backend() == "cpu":
            # A CPU's arrays are handed over without a copy, and the next step reuses their memory.
            state = jax.block_until_ready(jax.tree.map(jnp.copy, state))
        files = tokenizer_files(tokenizer_path(config))
        record = {
            **progress,
            "step": step,
            "random": {"seed": config.seed, "step": step},
            "config": json.loads(json.dumps(to_dict(config))),
            "leaves": _leaves(state),
            "tokenizer": hashes(files),
        }
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                tokenizer=ocp.args.StandardSave(
                    {name: np.frombuffer(raw, np.uint8) for name, raw in files.items()}
                ),
                record=ocp.args.JsonSave({**record, "seal": _seal(record)}),
            ),
        )
        if wait:
            self._manager.wait_until_finished()

    def restore(self, like: State) -> tuple[State, Record]:
        """The newest checkpoint that is whole, its arrays placed as `like` (shapes with
        shardings), and its record.

        A damaged one is named on standard error and set aside. Raises ElfError when none is whole
        (a run is never begun anew in silence), or when it belongs to another config.
        """
        for step in reversed(self.steps):
            try:
                return self._read(step, like)
            except ElfError:
                raise
            # Orbax, TensorStore, JSON and the file system each raise their own.
            except Exception as error:
                self._set_aside(step, error)
        raise ElfError(
            f"no whole checkpoint in '{self.directory}'; nothing is started from scratch: begin "
            "a new run with elf-train --config NAME under another name, or remove this one"
        )

    def record(self, step: int) -> Record:
        """The JSON record of a checkpoint. Raises ValueError when it is damaged."""
        found = self._manager.restore(
            step, args=ocp.args.Composite(record=ocp.args.JsonRestore())
        ).record
        record = {key: value for key, value in found.items() if key != "seal"}
        if _seal(record) != found.get("seal"):
            raise ValueError("its record was changed")
        return record

    def _read(self, step: int, like: State) -> tuple[State, Record]:
        record = self.record(step)
        _check_shapes(record["leaves"], like, f"{self.directory.name}/step_{step}")
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(like), tokenizer=ocp.args.StandardRestore()
            ),
        )
        state: State = restored.state
        for name, (_, _, mark) in _leaves(state).items():
            if mark != record["leaves"][name][2]:
                raise ValueError(f"{name} was changed")
        files = {name: bytes(np.asarray(a)) for name, a in restored.tokenizer.items()}
        if hashes(files) != record["tokenizer"]:
            raise ValueError("its tokenizer was changed")
        return state, {**record, "tokenizer_files": files}

    def _set_aside(self, step: int, error: Exception) -> None:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        older = [s for s in self.steps if s < step]
        going = f"going back to step {older[-1]}" if older else "there is no older one"
        if first_process():
            print(
                f"warning: checkpoint of step {step} is damaged ({reason}); {going}; "
                f"it is kept as {DAMAGED}_{step}",
                file=sys.stderr,
                flush=True,
            )
            target = self.directory / f"{DAMAGED}_{step}"
            for number in range(1, 100):
                if not target.exists():
                    break
                target = self.directory / f"{DAMAGED}_{step}_{number}"
            (self.directory / f"step_{step}").rename(target)
        together(f"set aside {step}")
        self._manager.reload()


def _check_shapes(leaves: Mapping[str, Any], like: State, where: str) -> None:
    """Raise ElfError naming the first array that a config implies otherwise."""
    wanted = dict(zip(names(like), jax.tree.leaves(like), strict=True))
    for name, leaf in wanted.items():
        have = leaves.get(name)
        if have is None or tuple(have[0]) != leaf.shape:
            found = "missing" if have is None else f"{tuple(have[0])}"
            raise ElfError(f"{where}: {name} is {found}, the config implies {leaf.shape}")
    extra = sorted(set(leaves) - set(wanted))
    if extra:
        raise ElfError(f"{where}: {extra[0]} is not part of what the config describes")
