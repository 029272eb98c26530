"""Devices: the mesh, what lies where on it, and processes that train together.

XLA's partitioner makes one program of the step for all devices; nothing here sends a number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from elf_engine.errors import ElfError
from training.config import MeshConfig

DATA, FSDP = "data", "fsdp"
ROWS = PartitionSpec((DATA, FSDP))
PEER_LOST = 3  # exit code of a process whose companion is gone
HEARTBEAT_S = 60  # after so long without a sign of life a process counts as gone


@dataclass(frozen=True)
class Processes:
    """How processes find each other. All None lets JAX ask the cluster (TPU pods, Slurm).

    coordinator   host:port of process 0
    """

    coordinator: str | None = None
    count: int | None = None
    index: int | None = None


def connect(processes: Processes) -> None:
    """Join the run's processes; call before any other use of JAX. Raises ElfError when they cannot
    be found."""
    import absl.logging

    # Orbax would tell of a lost process by tracebacks, each thread its own; `peers` tells once.
    absl.logging.set_verbosity("fatal")
    try:
        jax.distributed.initialize(
            coordinator_address=processes.coordinator,
            num_processes=processes.count,
            process_id=processes.index,
            heartbeat_timeout_seconds=HEARTBEAT_S,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ElfError(
            f"the processes of this run did not find each other ({reason}); give --coordinator "
            "HOST:PORT, --processes N and --process I alike on every host"
        ) from error


def make_mesh(config: MeshConfig) -> Mesh:
    """All devices as (data, fsdp). Raises ElfError when they do not divide so."""
    have = jax.device_count()
    data = config.data or have // config.fsdp
    if data < 1 or data * config.fsdp > have or (config.data == 0 and have % config.fsdp):
        raise ElfError(
            f"mesh data {config.data or 'all'} x fsdp {config.fsdp} does not fit {have} device(s)"
        )
    return jax.make_mesh(
        (data, config.fsdp),
        (DATA, FSDP),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=jax.devices()[: data * config.fsdp],
    )


def everywhere(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def state_shardings(mesh: Mesh, state: Any) -> Any:
    """Where each leaf of `state` (arrays or their shapes) lies: its longest axis that `fsdp`
    divides is split over it; leaves without one are everywhere."""
    parts = mesh.shape[FSDP]

    def place(leaf: Any) -> NamedSharding:
        axes = [i for i, n in enumerate(leaf.shape) if n % parts == 0 and n >= parts]
        if parts == 1 or leaf.ndim < 2 or not axes:
            return everywhere(mesh)
        widest = max(axes, key=lambda i: leaf.shape[i])
        spec = [FSDP if i == widest else None for i in range(leaf.ndim)]
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(place, state)


def put_rows(mesh: Mesh, arrays: Any) -> Any:
    """This process's rows of each array, as one global array split by rows. Raises ElfError when
    the rows do not divide."""
    rows, parts = len(arrays[0]) * jax.process_count(), mesh.size
    if rows % parts:
        raise ElfError(
            f"a batch of {rows} rows does not divide among {parts} devices; choose "
            "batches.batch_tokens as a multiple of devices times length, or a smaller mesh"
        )
    where = NamedSharding(mesh, ROWS)
    return jax.tree.map(lambda a: jax.make_array_from_process_local_data(where, a), arrays)


def put_everywhere(mesh: Mesh, tree: Any) -> Any:
    """The same host arrays, whole, on every device of every process."""
    where = everywhere(mesh)

    def put(leaf: Any) -> Any:
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, where, lambda index: host[index])

    return jax.tree.map(put, tree)


def first_process() -> bool:
    """Whether this process does the talking: log lines, samples, files that all share."""
    return bool(jax.process_index() == 0)


def together(name: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def agreed(flag: bool) -> bool:
    """Process 0's answer, on every process."""
    if jax.process_count() == 1:
        return flag
    from jax.experimental import multihost_utils

    return bool(multihost_utils.broadcast_one_to_all(np.bool_(flag)))


@contextmanager
def peers() -> Iterator[None]:
    """Ends this process, in one line, when another one of the run is gone: a collective that lost
    its partner raises, and nothing that needs all processes can be done any more."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if jax.process_count() == 1 or not _lost(error):
            raise
        _leave(error)


def _lost(error: Exception) -> bool:
    text = str(error).lower()
    signs = ("gloo", "connection", "peer", "unavailable", "heartbeat", "deadline", "nccl")
    return any(sign in text for sign in signs)


def _leave(error: Exception) -> NoReturn:
    reason = str(error).splitlines()[0][:160]
    print(
        f"error: process {jax.process_index()}: another process of this run is gone ({reason}); "
        "continue from the last checkpoint, on as many processes as you like: elf-train resume DIR",
        file=sys.stderr,
        flush=True,
    )
    # Leaving in order would wait for the others.
    os._exit(PEER_LOST)
