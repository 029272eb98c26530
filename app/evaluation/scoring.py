"""From texts to scores: which metrics there are, what each needs, intervals and paired tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.evaluation.rows import Texts
from elf_engine.errors import ElfError
from elf_engine.metrics import diversity, overlap
from elf_engine.metrics.estimate import (
    RESAMPLES,
    Comparison,
    Estimate,
    Measure,
    compare,
    estimate,
)
from elf_engine.metrics.perplexity import Float, Scorer, per_word, perplexity

WITH_REFERENCES = ("bleu", "chrf", "rouge", "length", "exact")
ALONE = ("entropy", "distinct", "self-bleu", "repetition")
# These load a model or read the training texts, so they are never a default.
COSTLY = ("ppl", "ppl-word", "copies")
METRICS = (*WITH_REFERENCES, *ALONE, *COSTLY)


@dataclass(frozen=True)
class Tools:
    """What metrics need besides the texts, made when first asked for.

    ids       texts -> token ids, for entropy
    scorers   makers of scorers; each gives a row "ppl:<its name>"
    training  the training texts, read anew at every call
    """

    ids: Callable[[Sequence[str]], list[list[int]]] | None = None
    scorers: Sequence[Callable[[], Scorer]] = ()
    training: Callable[[], Iterable[str]] | None = None
    resamples: int = RESAMPLES
    seed: int = 0
    made: dict[int, Scorer] = field(default_factory=dict)
    scored: dict[tuple[int, tuple[str, ...]], tuple[Float, Float]] = field(default_factory=dict)

    def scorer(self, index: int) -> Scorer:
        """Scorer number `index`, loaded once."""
        if index not in self.made:
            self.made[index] = self.scorers[index]()
        return self.made[index]

    def nll(self, index: int, texts: tuple[str, ...]) -> tuple[Float, Float]:
        """`Scorer.nll` of scorer `index`, the last texts' kept: per token and per word need it."""
        if (index, texts) not in self.scored:
            self.scored.clear()
            self.scored[index, texts] = self.scorer(index).nll(texts)
        return self.scored[index, texts]


def choose(names: str | None, texts: Texts) -> tuple[str, ...]:
    """Metric names from a comma-separated list; None gives all that cost nothing here.

    Raises ElfError for an unknown one, or one that needs references where there are none.
    """
    if names is None:
        chosen = ALONE if texts.references is None else (*WITH_REFERENCES, *ALONE)
        return chosen
    found = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in found:
        if name not in METRICS:
            raise ElfError(f"metric '{name}' is unknown; use some of {', '.join(METRICS)}")
        if name in WITH_REFERENCES and texts.references is None:
            raise ElfError(f"metric '{name}' needs references; give them with --references")
    if not found:
        raise ElfError(f"no metric is named; use some of {', '.join(METRICS)}")
    return found


def measures(texts: Texts, metrics: Sequence[str], tools: Tools) -> list[Measure]:
    """The measures of one system."""
    found: list[Measure] = []
    for name in metrics:
        found += _measure(name, texts, tools)
    return found


def _measure(name: str, texts: Texts, tools: Tools) -> list[Measure]:
    written, references = list(texts.generated), list(texts.references or ())
    if name == "rouge":
        return overlap.rouge(written, references)
    if name in WITH_REFERENCES:
        make = {
            "bleu": overlap.bleu,
            "chrf": overlap.chrf,
            "length": overlap.length_ratio,
            "exact": overlap.exact,
        }[name]
        return [make(written, references)]
    if name == "entropy":
        if tools.ids is None:
            raise ElfError("entropy counts tokens; name a model or scorer whose tokens to count")
        return [diversity.entropy(tools.ids(written))]
    if name == "distinct":
        return [diversity.distinct(written, n) for n in (1, 2, 3)]
    if name == "self-bleu":
        return [diversity.self_bleu(written, tools.seed)]
    if name == "repetition":
        return [diversity.repetition(written)]
    if name == "copies":
        if tools.training is None:
            raise ElfError("copies are searched in the training texts; point --data at the corpus")
        return diversity.copies(written, tools.training())
    if not tools.scorers:
        raise ElfError("perplexity needs a scorer; name one with --scorer")
    found = []
    for k in range(len(tools.scorers)):
        sums, counts = tools.nll(k, texts.generated)
        who = tools.scorer(k).name
        found.append(
            perplexity(f"ppl:{who}", sums, counts)
            if name == "ppl"
            else per_word(f"ppl-word:{who}", sums, written)
        )
    return found


def score(
    texts: Texts,
    metrics: Sequence[str],
    tools: Tools,
    against: Texts | None = None,
) -> dict[str, Any]:
    """Scores as plain JSON values, with a paired test against a second system on the same ids."""
    mine = measures(texts, metrics, tools)
    if not len(texts):
        raise ElfError("there is no sample to score")
    result: dict[str, Any] = {
        "samples": len(texts),
        "failed": texts.failed,
        "references_without_generation": texts.missing,
        "metrics": {
            m.name: plain(estimate(m, tools.resamples, tools.seed))
            | {"better": m.better, "unit": m.unit}
            for m in mine
        },
    }
    if against is not None:
        theirs = measures(against, metrics, tools)
        result["against"] = {
            a.name: plain(compare(a, b, tools.resamples, tools.seed))
            | {"other": plain(estimate(b, 1, tools.seed))["value"]}
            for a, b in zip(mine, theirs, strict=True)
        }
    return result


def plain(found: Estimate | Comparison) -> dict[str, Any]:
    """As JSON values: a number that there is none of (a perplexity of no token) is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(found).items()
    }


def only(texts: Texts, keep: Sequence[int]) -> Texts:
    """Some of the samples."""

    def pick(found: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if found is None else tuple(found[k] for k in keep)

    groups = tuple(texts.groups[k] for k in keep) if texts.groups else ()
    return Texts(
        tuple(texts.ids[k] for k in keep),
        tuple(texts.generated[k] for k in keep),
        pick(texts.references),
        pick(texts.sources),
        groups,
    )


def by_group(texts: Texts) -> dict[str, Texts]:
    """The samples of each group, in the order of their names."""
    places: dict[str, list[int]] = {}
    for k, group in enumerate(texts.groups):
        places.setdefault(group, []).append(k)
    return {name: only(texts, places[name]) for name in sorted(places)}
