"""What the page tells of a model without loading its weights: limits, tokens, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from editors import calibration
from editors.plan import Engine
from elf_engine import model_dir, times
from elf_engine.config import ModelConfig, SampleSpec
from elf_engine.layout import build_row
from elf_engine.tokens import Tokenizer, load_tokenizer


@dataclass(frozen=True)
class About:
    """The part of a model directory that is read at once."""

    config: ModelConfig
    path: Path
    tokenizer: Tokenizer

    def room(self, task: str) -> int:
        """Tokens of text that one row of the task holds. Raises ElfError without the task."""
        layout = self.config.layout
        attended = layout.padding == "attended"
        most = self.config.network.max_length if attended else max(layout.lengths)
        return most - len(build_row(layout, self.tokenizer.eos_id, task, []))

    def settings(self, editor: str, quality: float) -> SampleSpec:
        """The settings an editor runs with at `quality`. Raises ElfError."""
        # The calibration asks an engine for nothing but these fields.
        return calibration.settings(cast(Engine, self), editor, quality)

    def source(self, editor: str) -> str:
        """ "measured" on this model or "built in"."""
        return calibration.source(cast(Engine, self), editor)

    def measurements(self, editor: str) -> list[Mapping[str, float]]:
        """What was measured along the quality slider; see `calibration.measurements`."""
        return calibration.measurements(self.path, editor)

    def effective_steps(self, spec: SampleSpec, strength: float) -> int:
        """Steps of `spec` a rewrite of this strength really runs."""
        if strength <= 0:
            return 0
        grid = times.grid(spec, self.config.flow)
        return len(times.start_at(grid, round(1 - strength, 9))) - 1


class Shelf:
    """Reads models by name, each tokenizer once. `check` raises ElfError for a name that is not
    on offer, so that no path can come from a page."""

    def __init__(
        self, check: Callable[[str], None], find: Callable[[str], Path] = model_dir.find
    ) -> None:
        self._check, self._find = check, find
        self._read = lru_cache(maxsize=4)(_read)

    def about(self, model: str) -> About:
        """Raises ElfError for a model that is unknown or cannot be read."""
        self._check(model)
        path = self._find(model)
        return self._read(path, (path / "config.json").stat().st_mtime_ns)


def _read(path: Path, _changed: int) -> About:
    config = model_dir.load_config(path)
    return About(config, path, load_tokenizer(config.tokenizer, path))
