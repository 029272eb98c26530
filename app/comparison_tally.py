"""How often each setting was preferred, over the comparisons of one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.comparison import Comparison


@dataclass(frozen=True)
class Count:
    """One setting: comparisons it was in, how often it was preferred, and how often of those
    before names were shown."""

    setting: str
    compared: int
    preferred: int
    blind: int


@dataclass(frozen=True)
class _Ballot:
    settings: frozenset[str]
    chosen: str
    blind: bool


class Tally:
    """One ballot for each comparison that had a preferred answer; changing it moves the ballot."""

    def __init__(self) -> None:
        self._ballots: dict[int, _Ballot] = {}

    def vote(self, number: int, comparison: Comparison) -> None:
        """Take the preference of comparison `number` of the session, or take it back."""
        if comparison.preferred is None:
            self._ballots.pop(number, None)
            return
        names = frozenset(a.name for a in comparison.answers if a.results)
        chosen = comparison.answers[comparison.preferred[0]].name
        self._ballots[number] = _Ballot(names, chosen, comparison.unseen)

    def counts(self, hidden: int | None = None) -> Sequence[Count]:
        """Most preferred first. Comparison `hidden` is left out: its count would give away which
        answer is whose."""
        ballots = [b for number, b in self._ballots.items() if number != hidden]
        names = sorted(set().union(*(b.settings for b in ballots)))
        found = [
            Count(
                name,
                sum(name in b.settings for b in ballots),
                sum(name == b.chosen for b in ballots),
                sum(name == b.chosen and b.blind for b in ballots),
            )
            for name in names
        ]
        return sorted(found, key=lambda count: -count.preferred)
