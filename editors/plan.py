"""What an editor hands to the runner, and what it needs of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from editors.request import Change
from elf_engine.config import ModelConfig, SampleSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Batch, Row, build_row
from elf_engine.tokens import Tokenizer
from elf_engine.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Region:
    """What was written into a free region: its token ids, uncut. `ended` says after how many the
    model would have ended it, where it had to go on."""

    ids: tuple[int, ...]
    ended: int | None = None


# One row's answer.
Regions = Sequence[Region]


class Step(Protocol):
    """The state after `index` of `steps` network steps (see `elf_engine.pipeline.Step`)."""

    @property
    def index(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def t(self) -> float: ...

    def ids(self, text_at: BoolArray | None = None) -> IntArray: ...

    def norms(self) -> FloatArray: ...

    def confidence(self) -> FloatArray: ...


class Engine(Protocol):
    """The part of `elf_engine.pipeline.Engine` that editors use."""

    config: ModelConfig
    model_hash: str
    path: Path | None

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def backend(self) -> Any: ...

    @property
    def max_tokens(self) -> int: ...

    def batch(self, rows: Sequence[Row]) -> Batch: ...

    def sample(
        self,
        batch: Batch,
        spec: SampleSpec,
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Iterator[Step]: ...


@dataclass(frozen=True)
class Answer:
    """One candidate: its changes to the input, ascending, and what to say about it. `fits` is
    false when it misses the length asked for."""

    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    fits: bool = True


@dataclass(frozen=True)
class Plan:
    """Rows to sample for every candidate, and how their answers become changes to the text.

    `assemble` takes one `Regions` per row, None where a row is not sampled yet. No rows: the text
    needs no model. `settings` are the editor's own choices (such as the length) that a repetition
    has to know. `least` gives, per row and free region, the fewest tokens of text; `stops`, per
    row, up to where the text is settled once that row and those before it are done. `t_start` above
    0 starts from the text in the rows' free regions, mixed with noise
    (rewrite). `scored`: candidates are measured against the input.
    """

    rows: tuple[Row, ...]
    assemble: Callable[[Sequence[Regions | None]], Answer]
    warnings: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    t_start: float = 0.0
    scored: bool = False
    least: tuple[tuple[int, ...], ...] = ()
    stops: tuple[int, ...] = ()


def room(engine: Engine, task: str) -> int:
    """Tokens a row has for text, its control token set aside.

    Raises ElfError when the model lacks the task.
    """
    layout = engine.config.layout
    return engine.max_tokens - len(build_row(layout, engine.tokenizer.eos_id, task, []))


def check_text(text: str) -> None:
    """Raise ElfError for text that is no Unicode (half a surrogate pair)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ElfError(
            f"character {error.start} of the text is half a surrogate pair "
            f"(U+{ord(text[error.start]):04X}); pass the text as valid UTF-8"
        ) from error


def decode_after(tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]) -> str:
    """Text of `ids` where they stand behind `before`: some tokenizers drop the leading space of
    whatever comes first."""
    near = list(before[-8:])
    head = tokenizer.decode(near)
    whole = tokenizer.decode([*near, *ids])
    return whole[len(head) :] if whole.startswith(head) else tokenizer.decode(list(ids))


def broken_bytes(text: str, what: str) -> list[str]:
    """A warning when the model wrote bytes that are no UTF-8."""
    return [f"{what}: bytes that are no text are shown as \ufffd"] if "\ufffd" in text else []


# The space in front of a gap. Pieces carry their leading space ("A big house" is "A", " big",
# " house"), so in training the space before a removed span went with the span. Tokenising "A " of
# "A [[2]] house" would end the left side in a lone space, which the model never saw. One space
# before a gap is therefore left for the model to write; the original's own is what comes back.


def without_space(text: str) -> str:
    """The text before a gap as the model should see it."""
    return text[:-1] if text.endswith(" ") else text


def answer_after(before: str, answer: str) -> str:
    """The model's answer as it must stand behind `before`: no space of its own at the start of a
    text or line, or where `before` keeps the space."""
    return answer.lstrip(" ") if not before or before[-1].isspace() else answer
