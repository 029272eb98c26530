"""text -> tokens -> embeddings -> flow -> decode -> text: a loaded model and its sampling run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elf_engine import backends, model_dir, noise, samplers, times
from elf_engine.backends.protocol import Backend
from elf_engine.config import ModelConfig, SampleSpec
from elf_engine.constraint import Constraint
from elf_engine.errors import ElfError
from elf_engine.guidance import Passes
from elf_engine.layout import Batch, Row, bucket, pad_rows, rotary_positions
from elf_engine.tokens import Tokenizer, load_tokenizer
from elf_engine.types import BoolArray, FloatArray, IntArray

MAX_ROWS = 64  # rows in one device batch


@dataclass(frozen=True)
class Step:
    """The state after `index` of `steps` network steps, t the time reached.

    Decoding and measuring are done only when asked for.
    """

    index: int
    steps: int
    t: float
    state: samplers.State
    rows: int
    _engine: Engine = field(repr=False)
    _w: FloatArray = field(repr=False)
    _constraint: Constraint = field(repr=False)

    def ids(self, text_at: BoolArray | None = None) -> IntArray:
        """Token ids (B,S) decoded from the state: from z at the end, from the clean estimate
        x before it (one decode pass). `text_at` as in `Engine.decode`."""
        latent = self.state.z if self.index == self.steps else self.state.x
        return self._engine.decode(latent, self._w, self._constraint, text_at)[: self.rows]

    def confidence(self) -> FloatArray:
        """Natural log-probability (B,S), at most 0, of each token `ids` gives."""
        latent = self.state.z if self.index == self.steps else self.state.x
        return self._engine.confidence(latent, self._w, self._constraint)[: self.rows]

    def norms(self) -> FloatArray:
        """Root mean square (B,) of the clean estimate over valid positions; NaN or infinity
        tells that the run of that row has broken down."""
        x = self._engine.backend.to_numpy(self.state.x)[: self.rows].astype(np.float64)
        z = self._engine.backend.to_numpy(self.state.z)[: self.rows].astype(np.float64)
        valid = np.ones(x.shape[:2], np.bool_)
        if self._constraint.valid is not None:
            valid = self._engine.backend.to_numpy(self._constraint.valid)[: self.rows]
        squares = np.where(valid[..., None], x * x + 0 * z, 0).mean(axis=2).sum(axis=1)
        return np.asarray(np.sqrt(squares / np.maximum(valid.sum(axis=1), 1)), np.float32)


@dataclass(frozen=True)
class Run:
    """Rows on their way: `rows` of the walk's are asked for, more only fill a fixed shape.

    Runs of one engine with equal `kind` can make their network steps together.
    """

    walk: samplers.Walk
    passes: Passes
    rows: int
    length: int
    _engine: Engine = field(repr=False)
    _w: FloatArray = field(repr=False)
    _constraint: Constraint = field(repr=False)

    @property
    def kind(self) -> tuple[Passes, int]:
        return self.passes, self.length

    def step(self) -> Step:
        """Where it stands now; needs one step made."""
        walk, engine = self.walk, self._engine
        at = (walk.state.index, walk.steps, walk.t, walk.state)
        return Step(*at, self.rows, engine, self._w, self._constraint)


class Engine:
    """One model on one backend. Holds weights and compiled programs, nothing about a run.

    `path` is the model directory, None for a model that was never stored.
    """

    def __init__(
        self,
        config: ModelConfig,
        backend: Backend,
        tokenizer: Tokenizer,
        model_hash: str,
        path: Path | None = None,
    ):
        self.config = config
        self.backend = backend
        self.tokenizer = tokenizer
        self.model_hash = model_hash
        self.path = path
        self._steps: dict[Passes, samplers.Step] = {}

    @classmethod
    def load(
        cls, model: str | Path = "starter", backend: str = "torch", dtype: str = "float32"
    ) -> Engine:
        """Load a model by name or directory. Raises ElfError when it is missing or damaged."""
        files = model_dir.load(model_dir.find(str(model)))
        make = backends.load(backend)
        device = make(files.config, files.network, files.encoder, dtype)
        tokenizer = load_tokenizer(files.config.tokenizer, files.path)
        return cls(files.config, device, tokenizer, files.hash, files.path)

    @property
    def max_tokens(self) -> int:
        """The longest row this model takes, control tokens included."""
        layout = self.config.layout
        attended = layout.padding == "attended"
        return self.config.network.max_length if attended else max(layout.lengths)

    def defaults(self, task: str) -> SampleSpec:
        """The model's own settings for a task."""
        return self.config.defaults.get(task, SampleSpec())

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows padded to the smallest length bucket that holds the longest."""
        if not rows:
            raise ElfError("a batch needs at least 1 row, found 0")
        longest = max(len(row) for row in rows)
        length = bucket(self.config.layout, self.config.network.max_length, longest)
        return pad_rows(rows, length, self.config.tokenizer.pad_id)

    def constraint(
        self, batch: Batch, origin: IntArray | None = None, t_start: float = 0.0
    ) -> Constraint:
        """Encode the known positions. Nothing known (and no origin) never runs the encoder.

        origin  (B,S) ids of the text a rewrite starts from, at t_start in (0, 1)
        """
        put, layout = self.backend.asarray, self.config.layout
        known = put(batch.known[..., None])
        valid = put(batch.valid) if layout.padding == "masked" else None
        if batch.known.any():
            clean = self.backend.encode(put(batch.ids), put(batch.visible))
            clean = self.backend.xp.where(known, clean, self.backend.xp.zeros_like(clean))
        else:
            width = self.config.network.embedding_dim
            clean = put(np.zeros((*batch.ids.shape, width), np.float32))
        start = None
        if origin is not None:
            start = self.backend.encode(put(origin), put(batch.valid))
        at = rotary_positions(layout, batch.ids)
        at = None if at is None else put(np.asarray(at, np.int32))
        return Constraint(known, clean, valid, at, start, t_start, layout.hold)

    def sample(
        self,
        batch: Batch,
        spec: SampleSpec | Sequence[SampleSpec],
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Iterator[Step]:
        """Run the flow on every row of `batch`, yielding after each network step.

        spec     one for all rows, or one per row with equal steps and resample
        samples  noise sample number of each row: (seed, sample) fixes its noise
        """
        run = self.start(batch, spec, samples, origin, t_start)
        step = self.stepper(run.passes)
        while not run.walk.ended:
            run.walk.take(*step(*run.walk.inputs()))
            yield run.step()

    def start(
        self,
        batch: Batch,
        spec: SampleSpec | Sequence[SampleSpec],
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Run:
        """A run before its first network step; arguments as of `sample`."""
        specs = [spec] * len(batch.ids) if isinstance(spec, SampleSpec) else list(spec)
        rows = len(batch.ids)
        if not len(specs) == len(samples) == rows <= MAX_ROWS:
            raise ElfError(
                f"{rows} rows, {len(specs)} settings, {len(samples)} sample numbers: "
                f"all must agree and be at most {MAX_ROWS}"
            )
        size = padded_rows(rows) if self.backend.fixed_shapes else rows
        batch, specs, samples = _repeat_last(batch, specs, samples, size)
        if origin is not None:
            origin = origin[np.minimum(np.arange(size), rows - 1)]
        constraint = self.constraint(batch, origin, t_start)
        knobs = _knobs(specs, self.config, t_start)
        length, width = batch.ids.shape[1], self.config.network.embedding_dim

        def draw(step: int) -> FloatArray:
            pairs = zip(specs, samples, strict=True)
            return np.stack([noise.normal(s.seed, n, step, length, width) for s, n in pairs])

        scale = self.config.flow.noise_scale
        walk = samplers.Walk(self.backend, constraint, knobs, draw, scale, specs[0].resample)
        return Run(walk, self._passes(specs), rows, length, self, knobs.w, constraint)

    def decode(
        self, z: Any, w: FloatArray, constraint: Constraint, text_at: BoolArray | None = None
    ) -> IntArray:
        """Most likely token ids (B,S) of latents z (B,S,D) at t = 1. Where `text_at` (up to B,S)
        is true, only tokens that stand for text are looked at: no EOS, no control token."""
        put = self.backend.asarray
        seen = (z, put(w), constraint.valid, constraint.positions)
        if text_at is None or not text_at.any():
            ids = self._decoder(*seen)
        else:
            at = np.zeros((len(w), text_at.shape[1], 1), np.float32)
            at[: len(text_at), :, 0] = text_at
            ids = self._text_decoder(*seen, put(at), put(self._silent))
        return np.asarray(self.backend.to_numpy(ids), np.int32)

    @cached_property
    def _decoder(self) -> Any:
        xp = self.backend.xp
        return self.backend.compile(lambda net, *seen: xp.argmax(net.logits(*seen), -1))

    @cached_property
    def _text_decoder(self) -> Any:
        xp = self.backend.xp

        def best(net: Any, *given: Any) -> Any:
            *seen, at, silent = given
            return xp.argmax(net.logits(*seen) - 1e9 * at * silent, -1)

        return self.backend.compile(best)

    @cached_property
    def _silent(self) -> FloatArray:
        """(V,), 1 for tokens that decode to nothing."""
        tokens = range(self.config.network.vocab)
        return np.asarray([not self.tokenizer.decode([i]) for i in tokens], np.float32)

    def confidence(self, z: Any, w: FloatArray, constraint: Constraint) -> FloatArray:
        """Natural log-probability (B,S) of the most likely tokens of latents z (B,S,D)."""
        seen = (self.backend.asarray(w), constraint.valid, constraint.positions)
        found = self._confidence(z, *seen)
        return np.asarray(self.backend.to_numpy(found), np.float32)

    @cached_property
    def _confidence(self) -> Any:
        xp = self.backend.xp

        def best(net: Any, *seen: Any) -> Any:
            logits = net.logits(*seen)
            top = xp.amax(logits, -1)
            return -xp.log(xp.sum(xp.exp(logits - top[..., None]), -1))

        return self.backend.compile(best)

    def _passes(self, specs: Sequence[SampleSpec]) -> Passes:
        network = self.config.network
        two = network.self_conditioning and not network.guidance_tokens
        return Passes(
            condition=any(s.condition_guidance != 1 for s in specs),
            self_condition=two and any(s.guidance != 1 for s in specs),
        )

    def stepper(self, passes: Passes) -> samplers.Step:
        """The compiled network step for these passes, see `samplers.make_step`."""
        if passes not in self._steps:
            layout, flow = self.config.layout, self.config.flow
            step = samplers.make_step(self.backend.xp, flow, passes, layout.hold)
            self._steps[passes] = self.backend.compile(step)
        return self._steps[passes]


def padded_rows(rows: int) -> int:
    """The next power of two: few batch sizes, so few compiled programs."""
    return 1 << (rows - 1).bit_length()


def _repeat_last(
    batch: Batch, specs: Sequence[SampleSpec], samples: Sequence[int], size: int
) -> tuple[Batch, list[SampleSpec], list[int]]:
    index = np.minimum(np.arange(size), len(samples) - 1)
    padded = Batch(batch.ids[index], batch.known[index], batch.valid[index])
    return padded, [specs[i] for i in index], [samples[i] for i in index]


def _knobs(specs: Sequence[SampleSpec], config: ModelConfig, t_start: float) -> samplers.Knobs:
    grids = [times.start_at(times.grid(s, config.flow), t_start) for s in specs]
    if len({(len(g), s.resample) for g, s in zip(grids, specs, strict=True)}) != 1:
        counts = sorted({len(g) - 1 for g in grids})
        raise ElfError(f"rows of one batch need equal steps and resample, found steps {counts}")
    gamma = [s.gamma if s.sampler == "sde" else 0.0 for s in specs]
    return samplers.Knobs(
        times=np.asarray(grids, np.float32).T,
        gamma=np.asarray(gamma, np.float32),
        w=np.asarray([s.guidance for s in specs], np.float32),
        c=np.asarray([s.condition_guidance for s in specs], np.float32),
    )
