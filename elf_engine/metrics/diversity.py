"""Scores of texts alone: entropy, distinct n-grams, self-BLEU, repetition, copies of training data.

Words are runs of letters and digits, case folded, unless tokens are given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from elf_engine.metrics.estimate import Measure, mean, ratio

COPY_WORDS = 8
# Others a text is compared with for self-BLEU; all of them for 1,000 texts are a million pairs.
SELF_BLEU_OTHERS = 50


def words(text: str) -> list[str]:
    """The words of a text, case folded."""
    return re.findall(r"\w+", text.casefold())


def entropy(ids: Sequence[Sequence[int]]) -> Measure:
    """Unigram entropy: per sample over its token ids, natural log, averaged (ELF.md, "Scores")."""
    return mean("entropy", [_entropy(sample) for sample in ids], unit="nats")


def _entropy(ids: Sequence[int]) -> float:
    counts = np.unique(np.asarray(ids, np.int64), return_counts=True)[1]
    shares = counts / max(1, counts.sum())
    return float(-(shares * np.log(shares)).sum()) + 0.0


def ngrams(items: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    """Every run of n items."""
    return list(zip(*(items[i:] for i in range(n)), strict=False))


def distinct(texts: Sequence[str], n: int) -> Measure:
    """Distinct n-grams of all texts over all n-grams (Li et al. 2016).

    An n-gram that d texts hold counts 1/d for each, so that a resample keeps the meaning: drawing
    a text twice must not look like repetition.
    """
    found = [ngrams(words(text), n) for text in texts]
    holders = Counter(gram for grams in found for gram in set(grams))
    shares = [sum(1 / holders[gram] for gram in set(grams)) for grams in found]
    return ratio(f"distinct_{n}", shares, [len(g) for g in found], better=1, unit="share")


def repetition(texts: Sequence[str], n: int = 2) -> Measure:
    """Share of n-grams that their own text already had before them."""
    found = [ngrams(words(text), n) for text in texts]
    again = [len(grams) - len(set(grams)) for grams in found]
    return ratio("repetition", again, [len(g) for g in found], better=-1, unit="share of bigrams")


def self_bleu(texts: Sequence[str], seed: int = 0) -> Measure:
    """Mean BLEU of each text against others (Zhu et al. 2018), at most 50 drawn by the seed."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=True, effective_order=True)
    random = np.random.default_rng(seed)
    scores = []
    for i, text in enumerate(texts):
        others = [k for k in range(len(texts)) if k != i]
        if len(others) > SELF_BLEU_OTHERS:
            others = random.choice(others, SELF_BLEU_OTHERS, replace=False).tolist()
        against = [texts[k] for k in others]
        scores.append(metric.sentence_score(text, against).score if against else 0.0)
    return mean("self_bleu", scores, better=-1, unit="0 to 100")


def copies(texts: Sequence[str], training: Iterable[str]) -> list[Measure]:
    """What the training texts already hold: "copied_8gram", the share of 8-grams of words, and
    "copied_text", the share of texts that are a training text whole, of 8 words or more. One pass
    that keeps nothing of the training texts."""
    found = [words(text) for text in texts]
    grams = [ngrams(item, COPY_WORDS) for item in found]
    wanted: set[tuple[Hashable, ...]] = {gram for item in grams for gram in item}
    wholes = {tuple(item) for item in found if len(item) >= COPY_WORDS}
    seen: set[tuple[Hashable, ...]] = set()
    seen_wholes: set[tuple[Hashable, ...]] = set()
    firsts = {gram[0] for gram in wanted}
    for text in training:
        item = words(text)
        if len(item) < COPY_WORDS:
            continue
        if tuple(item) in wholes:
            seen_wholes.add(tuple(item))
        for i in range(len(item) - COPY_WORDS + 1):
            if item[i] in firsts:
                gram = tuple(item[i : i + COPY_WORDS])
                if gram in wanted:
                    seen.add(gram)
    copied = [sum(gram in seen for gram in item) for item in grams]
    whole = [tuple(item) in seen_wholes for item in found]
    return [
        ratio("copied_8gram", copied, [len(item) for item in grams], better=-1, unit="share"),
        mean("copied_text", whole, better=-1, unit="share"),
    ]
