"""Holes in a text that the model fills: the rows it sees, and its answers as changes.

Infill and rewrite differ only in what their holes hold at the start. A group of holes is one row,

    [infill] outside FREE outside FREE ... outside

whose first and last outside may be longer than the model can see; it sees as much as fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editors.plan import (
    Answer,
    Engine,
    Region,
    Regions,
    answer_after,
    broken_bytes,
    decode_after,
    without_space,
)
from editors.request import Change
from editors.window import Seen, left_context, right_context, share, tokens_up_to
from elf_engine.layout import Free, Piece, Row, build_row, cut_at_eos
from elf_engine.tokens import Tokenizer


@dataclass(frozen=True)
class Hole:
    """Characters `start` to `stop` of the input, to be written anew.

    size      tokens of its free region, of which `origin` are there at the start
    least     fewest tokens asked for, 0 for no wish; `most` likewise
    name      what messages call it
    """

    start: int
    stop: int
    size: int
    name: str
    least: int = 0
    most: int = 0
    origin: tuple[int, ...] = ()


@dataclass(frozen=True)
class Group:
    """Holes of one row: `outside[0] holes[0] outside[1] ... holes[n-1] outside[n]`, and how many
    characters of the text lie `beyond`."""

    outside: tuple[str, ...]
    holes: tuple[Hole, ...]
    beyond: int = 0


@dataclass(frozen=True)
class Filling:
    """A group's row, and what the model sees of its outside: the ids before each hole, and how
    many characters of the first and the last outside."""

    group: Group
    row: Row
    before: tuple[tuple[int, ...], ...]
    left: int
    right: int

    @property
    def least(self) -> tuple[int, ...]:
        """Fewest tokens of each hole."""
        return tuple(hole.least for hole in self.group.holes)

    @property
    def stop(self) -> int:
        """Where the last hole ends."""
        return self.group.holes[-1].stop

    @property
    def hidden(self) -> int:
        """Characters outside that the model does not see."""
        outside = self.group.outside
        # The space a hole begins with is the model's to write, not hidden.
        near = len(without_space(outside[0])) - self.left + len(outside[-1]) - self.right
        return near + self.group.beyond


def lay_out(engine: Engine, group: Group, space: int) -> Filling:
    """The row of a group whose holes and inner outsides fit `space` tokens."""
    tokenizer, holes = engine.tokenizer, group.holes
    middles = [tuple(tokenizer.encode(without_space(text))) for text in group.outside[1:-1]]
    budget = space - sum(hole.size for hole in holes) - sum(map(len, middles))
    left, right = _context(
        tokenizer, without_space(group.outside[0]), group.outside[-1], max(budget, 0)
    )
    before = (left.ids, *middles)
    pieces: list[Piece] = []
    for known, hole in zip(before, holes, strict=True):
        pieces += [known, Free(hole.size, hole.origin)]
    row = build_row(engine.config.layout, tokenizer.eos_id, "infill", [*pieces, right.ids])
    return Filling(group, row, before, left.characters, right.characters)


def _context(tokenizer: Tokenizer, left: str, right: str, budget: int) -> tuple[Seen, Seen]:
    """What the model sees on both sides of a group, in `budget` tokens together."""
    for_left, for_right = share(
        budget, tokens_up_to(tokenizer, left, budget), tokens_up_to(tokenizer, right, budget)
    )
    return left_context(tokenizer, left, for_left), right_context(tokenizer, right, for_right)


@dataclass(frozen=True)
class Filler:
    """`Plan.assemble` of fillings, in the order of the text."""

    engine: Engine
    text: str
    fillings: Sequence[Filling]

    def __call__(self, rows: Sequence[Regions | None]) -> Answer:
        eos = self.engine.tokenizer.eos_id
        changes: list[Change] = []
        notes: list[str] = []
        fits = True
        written = ""
        for filling, regions in zip(self.fillings, rows, strict=True):
            outside = filling.group.outside
            for k, hole in enumerate(filling.group.holes if regions is not None else ()):
                region = regions[k] if regions is not None else Region(())
                ids = cut_at_eos(region.ids, eos)
                answer = decode_after(self.engine.tokenizer, filling.before[k], ids)
                exact = hole.least == hole.most > 0
                again = len(self.engine.tokenizer.encode(answer)) if exact else len(ids)
                # Of two holes side by side the second stands behind the first one's answer.
                answer = fit_in(outside[k] or written, answer, outside[k + 1])
                written = answer or written
                before = self.text[hole.start : hole.stop]
                changes.append(Change(hole.start, hole.stop, before, answer))
                about = _length_note(hole, len(ids), region.ended, again)
                fits = fits and not about
                notes += [*about, *broken_bytes(answer, hole.name)]
        return Answer(tuple(changes), tuple(notes), fits)


def fit_in(before: str, answer: str, after: str) -> str:
    """The answer with the spaces its neighbours already have taken off."""
    answer = answer_after(before, answer)
    return answer.rstrip(" ") if after[:1].isspace() else answer


def _length_note(hole: Hole, written: int, ended: int | None, again: int) -> list[str]:
    """`again`: tokens of the answer when its text is read anew."""
    if written == 0:
        return [f"{hole.name} came back empty"]
    if ended is not None:
        return [
            f"{hole.name}: the model would have ended it after {ended} of the {hole.least} tokens "
            "asked for; the others are its next best"
        ]
    if again != written:
        return [f"{hole.name}: its {written} tokens are {again} when the text is read again"]
    return []


def seen_note(filling: Filling, what: str) -> list[str]:
    """What to say when the model does not see the whole text."""
    if not filling.hidden:
        return []
    return [
        f"{what}: the model saw the {filling.left} characters before and the {filling.right} "
        f"after, and did not see {filling.hidden} others; all are unchanged"
    ]
