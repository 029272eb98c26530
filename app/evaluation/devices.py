"""One thread, engine and file per JAX device: samples do not depend on each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.cli_edit import load_engine
from app.evaluation.command import shard_file
from app.evaluation.generate import Job, generate


def generate_on_devices(
    job: Job, data: Path, out: Path, shard: tuple[int, int], devices: int
) -> int:
    """Share the samples of `shard` over the first `devices` devices; each writes a file
    like a shard of its own. Returns how many samples are new."""
    import jax

    def one(number: int) -> int:
        k, n = shard
        part = (k + n * number, n * devices)
        with jax.default_device(jax.devices()[number]):
            engine = load_engine(job.model, job.backend, job.dtype)
            return generate(job, engine, data, shard_file(out, part), part)

    with ThreadPoolExecutor(devices) as pool:
        return sum(pool.map(one, range(devices)))
