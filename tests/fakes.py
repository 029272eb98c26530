"""Small stand-ins shared by the tests: a complete random model directory in a few milliseconds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine import model_dir, times
from elf_engine.config import (
    EncoderSpec,
    LayoutSpec,
    ModelConfig,
    NetworkSpec,
    SampleSpec,
    TokenizerSpec,
)
from elf_engine.errors import ElfError
from elf_engine.layout import Batch, Row, bucket, pad_rows
from elf_engine.tokens import CONTROL, BytesTokenizer
from elf_engine.types import BoolArray, FloatArray, IntArray, Weights

# Control ids 0 to 15 as in `elf_engine.tokens.CONTROL`, then the 256 bytes.
TINY_VOCAB = 272


def tiny_config(**overrides: Any) -> ModelConfig:
    """A valid configuration with every task; `overrides` replace fields of ModelConfig."""
    config = ModelConfig(
        name="tiny",
        network=NetworkSpec(
            embedding_dim=16,
            hidden=32,
            depth=2,
            heads=2,
            bottleneck=8,
            vocab=TINY_VOCAB,
            max_length=64,
            time_tokens=2,
            guidance_tokens=2,
            mode_tokens=2,
        ),
        encoder=EncoderSpec(
            vocab=TINY_VOCAB, d_model=16, d_kv=8, d_ff=32, layers=2, heads=2, gated=True
        ),
        tokenizer=TokenizerSpec(kind="bytes", file=""),
        layout=LayoutSpec(
            lengths=(16, 32, 64),
            tasks={"draft": 5, "infill": 6, "translate": 7, "summarise": 8, "modernise": 9},
            sep_id=4,
        ),
        defaults={task: SampleSpec(steps=4) for task in ("draft", "infill", "translate")},
    )
    return replace(config, **overrides)


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Weights:
    """Float32 weights of a sane scale: norms near 1, kernels 1/sqrt(inputs), the rest small."""
    rng = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes.items():
        draw = rng.standard_normal(shape).astype(np.float32)
        if name.endswith("weight"):
            draw = 1 + 0.1 * draw
        elif name.endswith("kernel"):
            draw = draw / np.float32(np.sqrt(shape[0]))
        else:
            draw = 0.1 * draw
        weights[name] = draw.astype(np.float32)
    return weights


def tiny_model_dir(
    directory: Path,
    *,
    seed: int = 0,
    encoder: bool = True,
    dtype: str = "float32",
    **overrides: Any,
) -> Path:
    """Write `directory`/`name`, a complete random model directory, and return its path.

    `encoder=False` writes no encoder weights; `overrides` go to `tiny_config`.
    """
    config = tiny_config(**overrides)
    network = random_weights(model_dir.expected_shapes(config.network), seed)
    text = random_weights(model_dir.expected_shapes(config.encoder), seed + 1) if encoder else {}
    return model_dir.save(directory / config.name, config, network, text, None, dtype=dtype)


WORDS = ("A", "The", " a", " the", " big", " red", " old", " house", " hill", " on", " is", ".")


class WordTokenizer(BytesTokenizer):
    """A few words that carry their leading space, like SentencePiece pieces, else bytes."""

    vocab_size = TINY_VOCAB + len(WORDS)
    _longest = re.compile("|".join(re.escape(w) + r"(?!\w)" for w in sorted(WORDS, key=len)[::-1]))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        start = 0
        for match in self._longest.finditer(text):
            ids += super().encode(text[start : match.start()])
            ids.append(TINY_VOCAB + WORDS.index(match[0]))
            start = match.end()
        return ids + super().encode(text[start:])

    def decode(self, ids: Sequence[int]) -> str:
        parts: list[bytes] = []
        for i in ids:
            if i >= TINY_VOCAB:
                parts.append(WORDS[i - TINY_VOCAB].encode())
            elif i >= len(CONTROL):
                parts.append(bytes([i - len(CONTROL)]))
        return b"".join(parts).decode("utf-8", errors="replace")


@dataclass(frozen=True)
class FakeStep:
    """See `elf_engine.pipeline.Step`."""

    index: int
    steps: int
    t: float
    _ids: IntArray
    _norms: FloatArray

    def ids(self, text_at: BoolArray | None = None) -> IntArray:
        """Where text must stand and none does, a full stop."""
        if text_at is None:
            return self._ids
        silent = (self._ids < len(CONTROL)) & text_at
        return np.where(silent, np.int32(TINY_VOCAB + WORDS.index(".")), self._ids)

    def norms(self) -> FloatArray:
        return self._norms

    def confidence(self) -> FloatArray:
        """Depends on the words alone, so that candidates differ."""
        return np.asarray(-(self._ids % 7) / 7, np.float32)


@dataclass
class FakeEngine:
    """Writes words that depend on (seed, sample, left neighbour) alone; no network.

    answer     writes these ids into every free region instead, then EOS
    broken     samples whose state becomes NaN at step 2
    calls      rows of every `batch`, for tests that look at what the model was shown
    starts     start time of every run
    """

    config: ModelConfig = field(default_factory=tiny_config)
    tokenizer: Any = field(default_factory=WordTokenizer)
    answer: Sequence[int] | None = None
    broken: frozenset[int] = frozenset()
    calls: list[list[Row]] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    model_hash: str = "f" * 64
    path: Path | None = None
    backend: str = "fake"
    stopped: bool = False

    @property
    def max_tokens(self) -> int:
        layout = self.config.layout
        attended = layout.padding == "attended"
        return self.config.network.max_length if attended else max(layout.lengths)

    def defaults(self, task: str) -> SampleSpec:
        return self.config.defaults.get(task, SampleSpec())

    def batch(self, rows: Sequence[Row]) -> Batch:
        self.calls.append(list(rows))
        length = bucket(
            self.config.layout, self.config.network.max_length, max(len(row) for row in rows)
        )
        return pad_rows(rows, length, 0)

    def sample(
        self,
        batch: Batch,
        spec: SampleSpec,
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Iterator[FakeStep]:
        if len(samples) != len(batch.ids):
            raise ElfError(f"{len(samples)} samples for {len(batch.ids)} rows")
        self.starts.append(t_start)
        steps = len(times.start_at(times.uniform(spec.steps), t_start)) - 1
        try:
            for index in range(1, steps + 1):
                bad = [index >= 2 and n in self.broken for n in samples]
                norms = np.where(bad, np.nan, 1).astype(np.float32)
                rows = [self._fill(batch, b, spec, n) for b, n in enumerate(samples)]
                yield FakeStep(index, steps, index / steps, np.asarray(rows, np.int32), norms)
        finally:
            self.stopped = True

    def _fill(self, batch: Batch, b: int, spec: SampleSpec, sample: int) -> list[int]:
        ids = [int(i) for i in batch.ids[b]]
        written = 0
        for s, (known, valid) in enumerate(zip(batch.known[b], batch.valid[b], strict=True)):
            if known or not valid:
                written = 0
            elif self.answer is not None:
                ids[s] = ([*self.answer, 1] * 99)[written]
                written += 1
            else:
                key = f"{spec.seed} {sample} {ids[s - 1]} {s}".encode()
                ids[s] = TINY_VOCAB + 2 + hashlib.sha256(key).digest()[0] % (len(WORDS) - 2)
        return ids
