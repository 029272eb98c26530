"""Settings of a baseline run: what it shares with an ELF run comes from that run's config."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from elf_engine.config import DecoderSpec
from elf_engine.errors import ElfError
from training import settings
from training.config import OptimizerConfig, TrainConfig
from training.data import DataConfig

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class BaselineConfig:
    """One run of an autoregressive decoder.

    like       preset or file of the ELF run whose corpus, tokenizer, layout and mixture it has
    data       corpus directory instead of that run's
    batches    mixture instead of that run's
    rows       "tasks": a condition and its answer after the task's token; "texts": English text
               alone, which makes a scoring model
    steps, seed, runs, compute, save_minutes, log_every   as in `TrainConfig`
    """

    name: str
    like: str = "starter"
    data: str | None = None
    batches: DataConfig | None = None
    rows: Literal["tasks", "texts"] = "tasks"
    runs: str = "runs"
    seed: int = 0
    steps: int = 1000
    compute: Literal["float32", "bfloat16"] = "bfloat16"
    save_minutes: float = 3.0
    log_every: int = 20
    network: DecoderSpec = field(default_factory=DecoderSpec)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        if self.log_every < 1 or self.steps < 1:
            raise ElfError("steps and log_every must be at least 1")
        plan = self.optimizer
        if plan.kind != "muon" or plan.accumulate != 1 or plan.weight_decay:
            raise ElfError(
                "optimizer: a baseline is trained by muon without accumulation or weight decay; "
                "leave kind, accumulate and weight_decay out"
            )

    @property
    def directory(self) -> Path:
        """Where the run keeps its state and log."""
        return Path(self.runs) / self.name

    def shared(self) -> TrainConfig:
        """The ELF run's config with this run's own name, place and length."""
        base = settings.load(self.like)
        return dataclasses.replace(
            base,
            name=self.name,
            runs=self.runs,
            seed=self.seed,
            steps=self.steps,
            data=base.data if self.data is None else self.data,
            batches=self.batches or base.batches,
        )


def presets() -> list[str]:
    """Names of the baselines that come with the project."""
    return settings.presets(CONFIGS)


def load(name: str, changes: Sequence[str] = ()) -> BaselineConfig:
    """The preset or YAML file `name` with "dotted.key=value" settings on top; see
    `training.settings.load`."""
    return settings.load_as(BaselineConfig, CONFIGS, name, changes)
