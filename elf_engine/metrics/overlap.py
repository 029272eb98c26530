"""Scores against references: BLEU, chrF, ROUGE, lengths, copying of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elf_engine.metrics.estimate import Measure, Stats, mean, ratio

ROUGE = ("rouge1", "rouge2", "rougeL")


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Measure:
    """Corpus BLEU of sacrebleu, lower-cased, effective order (ELF.md, "Scores"), 0 to 100."""
    from sacrebleu.metrics.bleu import BLEU

    return _sacrebleu("bleu", BLEU(lowercase=True, effective_order=True), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Measure:
    """Corpus chrF2 of sacrebleu (character 6-grams), 0 to 100."""
    from sacrebleu.metrics.chrf import CHRF

    return _sacrebleu("chrf", CHRF(), hypotheses, references)


def _sacrebleu(
    name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]
) -> Measure:
    """sacrebleu's own sums per sentence, as its significance tests use them."""
    sums = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    stats = np.asarray(sums, np.float64).reshape(len(hypotheses), -1)

    def value(totals: Stats) -> Stats:
        rows = (metric._compute_score_from_stats(row) for row in totals.astype(np.int64).tolist())
        return np.asarray([row.score for row in rows], np.float64)

    return Measure(name, stats, value, better=1, unit="0 to 100")


def rouge(hypotheses: Sequence[str], references: Sequence[str]) -> list[Measure]:
    """ROUGE-1, -2 and -L of rouge-score with stemmer: mean F1 times 100 (ELF.md, "Scores")."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(ROUGE), use_stemmer=True)
    pairs = zip(hypotheses, references, strict=True)
    found = [scorer.score(target=reference, prediction=text) for text, reference in pairs]
    return [
        mean(n, [100 * f[n].fmeasure for f in found], better=1, unit="F1, 0 to 100") for n in ROUGE
    ]


def length_ratio(hypotheses: Sequence[str], references: Sequence[str]) -> Measure:
    """Words written over words of the references."""
    return ratio("length_ratio", _words(hypotheses), _words(references), unit="words per word")


def exact(hypotheses: Sequence[str], references: Sequence[str]) -> Measure:
    """Share of texts equal to their reference but for case and white space."""
    pairs = zip(hypotheses, references, strict=True)
    same = [_folded(a) == _folded(b) for a, b in pairs]
    return mean("exact", same, better=1, unit="share")


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
