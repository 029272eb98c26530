"""An autoregressive baseline in the place of an engine: what plans rows for ELF serves it too.

It writes the free regions of the same rows, from left to right. Behind a condition it goes on;
text on both sides of a region is put in front of it, with <mask> in the region's place, as in its
training (fill-in-the-middle, Bavarian et al. 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from elf_engine import backends, decoder_dir, noise
from elf_engine.backends.protocol import LeftToRight
from elf_engine.config import DecoderConfig, DecodeSpec, SampleSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Batch, Row, bucket, pad_rows
from elf_engine.tokens import MASK_ID, Tokenizer, load_tokenizer
from elf_engine.types import BoolArray, FloatArray, IntArray, NumpyArray


@dataclass(frozen=True)
class Written:
    """What stands in for the one `pipeline.Step` of a run."""

    index: int
    steps: int
    t: float
    _engine: DecoderEngine
    _batch: Batch
    _draws: tuple[tuple[int, int], ...]

    def ids(self, text_at: BoolArray | None = None) -> IntArray:
        """Token ids (B,S); EOS fills a region that ended early, but not where `text_at`."""
        return self._engine.write(self._batch, self._draws, text_at)

    def norms(self) -> FloatArray:
        """Finite (B,): a row cannot break down."""
        return np.zeros(len(self._batch.ids), np.float32)


@dataclass(frozen=True)
class DecoderEngine:
    """A loaded baseline; see `pipeline.Engine`. `decoding` says how tokens are chosen."""

    config: DecoderConfig
    tokenizer: Tokenizer
    model_hash: str
    path: Path | None
    net: LeftToRight
    decoding: DecodeSpec = field(default_factory=DecodeSpec)

    @classmethod
    def load(cls, path: str | Path, dtype: str = "float32") -> DecoderEngine:
        """Load a directory, on the device PyTorch is to use. Raises ElfError when it is damaged or
        PyTorch is missing."""
        files = decoder_dir.load(path)
        net = backends.load_decoder(files.config.network, files.weights, dtype)
        tokenizer = load_tokenizer(files.config.tokenizer, files.path)
        return cls(files.config, tokenizer, files.hash, files.path, net)

    def with_decoding(self, decoding: DecodeSpec) -> DecoderEngine:
        """The same model that chooses tokens otherwise."""
        return replace(self, decoding=decoding)

    @property
    def max_tokens(self) -> int:
        """The longest row that is planned for this model, control tokens included."""
        return max(self.config.layout.lengths)

    def defaults(self, task: str) -> SampleSpec:
        """Nothing but the seed is read of it."""
        return SampleSpec()

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows padded to the smallest length bucket that holds the longest."""
        longest = max(len(row) for row in rows)
        length = bucket(self.config.layout, self.config.network.max_length, longest)
        return pad_rows(rows, length, self.config.tokenizer.pad_id)

    def sample(
        self,
        batch: Batch,
        spec: SampleSpec | Sequence[SampleSpec],
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Iterator[Written]:
        """One step, the last. (seed, sample) of a row fixes its draws. Raises ElfError for a
        rewrite, which needs a flow to start within."""
        if origin is not None or t_start > 0:
            raise ElfError(f"model '{self.config.name}' cannot rewrite; it writes left to right")
        specs = [spec] * len(batch.ids) if isinstance(spec, SampleSpec) else list(spec)
        draws = tuple((s.seed, n) for s, n in zip(specs, samples, strict=True))
        yield Written(1, 1, 1.0, self, batch, draws)

    def write(
        self, batch: Batch, draws: Sequence[tuple[int, int]], text_at: BoolArray | None = None
    ) -> IntArray:
        """`batch.ids` with its free regions written, region by region."""
        found, eos = batch.ids.copy(), self.tokenizer.eos_id
        regions = [free_regions(batch, row) for row in range(len(found))]
        prompts = [self._prompt(batch, row, regions[row]) for row in range(len(found))]
        uniforms = [noise.uniforms(seed, n, found.shape[1]) for seed, n in draws]
        for turn in range(max(map(len, regions))):
            rows = [row for row, own in enumerate(regions) if turn < len(own)]
            spans = [regions[row][turn] for row in rows]
            least, turns = [], []
            for row, (start, stop) in zip(rows, spans, strict=True):
                least.append(0 if text_at is None else _least(text_at[row], (start, stop)))
                turns.append(uniforms[row][start:stop])
            texts = self._go_on([prompts[row] for row in rows], turns, least)
            for row, (start, stop), text in zip(rows, spans, texts, strict=True):
                found[row, start:stop] = [*text, *[eos] * (stop - start - len(text))]
                prompts[row] += [*text, eos]
        return found

    def _prompt(self, batch: Batch, row: int, regions: Sequence[tuple[int, int]]) -> list[int]:
        """What stands before the first region, or, with text behind one, all of the text."""
        ids = batch.ids[row, batch.valid[row]].tolist()
        if not regions:
            return ids
        behind = regions[-1][1] < len(ids) or len(regions) > 1
        if not behind:
            return ids[: regions[0][0]]
        prompt, done = [], 0
        for start, stop in regions:
            prompt += [*ids[done:start], MASK_ID]
            done = stop
        return [*prompt, *ids[done:], self.config.layout.sep_id]

    def _go_on(
        self, prompts: list[list[int]], uniforms: list[NumpyArray], least: list[int]
    ) -> list[list[int]]:
        most, eos = [len(u) for u in uniforms], self.tokenizer.eos_id
        layout = self.config.layout
        silent = {self.tokenizer.pad_id, MASK_ID, layout.sep_id, *layout.tasks.values()} - {eos, -1}

        def choose(logits: NumpyArray, number: int) -> IntArray:
            logits[:, sorted(silent)] = -np.inf
            ended = np.asarray([number >= m for m in most])
            logits[[number < n for n in least], eos] = -np.inf
            u = np.asarray([own[min(number, len(own) - 1)] for own in uniforms])
            tokens = pick(logits, u, self.decoding)
            return np.where(ended | (tokens == eos), -1, tokens).astype(np.int32)

        return self.net.write(prompts, max(most), choose)


def free_regions(batch: Batch, row: int) -> list[tuple[int, int]]:
    """(start, stop) of every run of positions to be written."""
    free = np.concatenate([[False], batch.valid[row] & ~batch.known[row], [False]])
    edges = np.flatnonzero(free[1:] != free[:-1])
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _least(text_at: BoolArray, span: tuple[int, int]) -> int:
    inside = np.flatnonzero(~text_at[span[0] : span[1]])
    return int(inside[0]) if len(inside) else span[1] - span[0]


def pick(logits: NumpyArray, uniforms: NumpyArray, spec: DecodeSpec) -> IntArray:
    """A token for each row (B,): the most likely at temperature 0, else drawn by the row's uniform
    number among the likeliest tokens that together have `top_p` (Holtzman et al. 2020)."""
    if spec.temperature == 0:
        return np.asarray(logits.argmax(axis=1), np.int32)
    order = np.argsort(-logits, axis=1, kind="stable")
    scores = np.take_along_axis(logits, order, axis=1).astype(np.float64) / spec.temperature
    shares = np.exp(scores - scores[:, :1])
    total = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    # The token that reaches top_p is the last one kept.
    kept = np.take_along_axis(
        total, np.argmax(total >= min(spec.top_p, 1 - 1e-12), axis=1)[:, None], 1
    )
    place = np.argmax(total > uniforms[:, None] * kept, axis=1)
    return np.asarray(order[np.arange(len(order)), place], np.int32)
