"""t5_*: the frozen text encoder and its position buckets."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from elf_engine.backends.protocol import Backend
from elf_engine.config import EncoderSpec
from elf_engine.types import FloatArray
from tests.golden.archive import Archive, Case
from tests.golden.compare import EQUAL, Row, Tolerance, compare
from tests.golden.models import encoder_backend

HIDDEN = 2e-6


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Hidden states and latents of every case; bucket of every stored offset."""
    spec = encoder_spec(archive.meta)
    backend = encoder_backend(backend_name, spec, archive.under("params"))
    for case in archive.cases.values():
        if "bucket" in case:
            found = buckets(backend_name, case["relative_position"])
            yield compare((case.name, "bucket", backend_name), found, case["bucket"], EQUAL)
            continue
        latents = encode(backend, case)
        hidden = latents * np.float32(spec.latent_std) + np.float32(spec.latent_mean)
        where = (case.name, "hidden", backend_name)
        yield compare(where, hidden, case["last_hidden_state"], Tolerance(HIDDEN))
        if "latents" in case:
            limit = Tolerance(HIDDEN / spec.latent_std)
            yield compare((case.name, "latents", backend_name), latents, case["latents"], limit)


def encoder_spec(meta: Case) -> EncoderSpec:
    """Sizes stored with the encoder."""
    return EncoderSpec(
        vocab=int(meta.number("vocab_size")),
        d_model=int(meta.number("d_model")),
        d_kv=int(meta.number("d_kv")),
        d_ff=int(meta.number("d_ff")),
        layers=int(meta.number("num_layers")),
        heads=int(meta.number("num_heads")),
        gated=bool(meta.number("is_gated_act")),
        latent_mean=meta.number("latent_mean"),
        latent_std=meta.number("latent_std"),
    )


def encode(backend: Backend, case: Case) -> FloatArray:
    """The case through `Backend.encode`."""
    visible = None
    if "attention_mask" in case:
        visible = backend.asarray(case["attention_mask"] > 0)
    ids = backend.asarray(case["input_ids"])
    return np.asarray(backend.to_numpy(backend.encode(ids, visible)))


def buckets(backend_name: str, offsets: Any) -> Any:
    """The backend's own bucket function."""
    module = importlib.import_module(f"elf_engine.backends.{backend_name}.t5")
    if backend_name == "jax":
        return module.relative_buckets(offsets)
    torch = importlib.import_module("torch")
    return module.position_buckets(torch.tensor(offsets)).numpy()
