"""Baselines in the place of an ELF model: everything that samples and scores takes either."""

from __future__ import annotations

from elf_engine import decoder_dir
from elf_engine.decoding import DecoderEngine


def baseline(model: str, dtype: str = "float32") -> DecoderEngine | None:
    """The baseline in directory `model`; None where it holds no baseline."""
    return DecoderEngine.load(model, dtype) if decoder_dir.is_decoder(model) else None
