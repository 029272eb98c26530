"""An n-gram model as the judge that shares nothing with any network (tokengrams, Kneser-Ney)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from elf_engine.errors import ElfError
from elf_engine.metrics.perplexity import Float
from elf_engine.tokens import Tokenizer

ORDER = 4
_BATCH = 512


class NGram:
    """Interpolated Kneser-Ney model of `order` over a tokenizer's ids (Kneser and Ney 1995;
    tokengrams), trained on `texts` joined by EOS. The first token is predicted from an EOS, and the
    EOS behind a text counts."""

    unit = "subword"

    def __init__(self, texts: Iterable[str], tokenizer: Tokenizer, order: int = ORDER) -> None:
        from tokengrams import InMemoryIndex

        if tokenizer.vocab_size > 2**16:
            raise ElfError(f"an n-gram model counts up to 65536 tokens, not {tokenizer.vocab_size}")
        eos = tokenizer.eos_id
        ids = [eos]
        for text in texts:
            ids += [*tokenizer.encode(text), eos]
        if len(ids) < 2:
            raise ElfError("an n-gram model needs at least 1 training text, found 0")
        self.name = f"{order}-gram"
        self.tokens = len(ids)
        self._index = InMemoryIndex(ids, vocab=tokenizer.vocab_size)
        self._tokenizer, self._order = tokenizer, order

    def nll(self, texts: Sequence[str]) -> tuple[Float, Float]:
        """See `perplexity.Scorer.nll`."""
        sums, counts = np.zeros(len(texts)), np.zeros(len(texts))
        pending: list[tuple[int, list[int], int]] = []
        for i, text in enumerate(texts):
            pending += [(i, *item) for item in self._queries(text)]
            counts[i] = len(self._tokenizer.encode(text)) + 1
        for start in range(0, len(pending), _BATCH):
            part = pending[start : start + _BATCH]
            found = self._index.batch_get_smoothed_probs([context for _, context, _ in part])
            for (i, _, token), row in zip(part, found, strict=True):
                sums[i] -= float(np.log(row[token]))
        return sums, counts

    def _queries(self, text: str) -> list[tuple[list[int], int]]:
        eos = self._tokenizer.eos_id
        ids = [eos, *self._tokenizer.encode(text), eos]
        first = self._order - 1
        return [(ids[max(0, i - first) : i], ids[i]) for i in range(1, len(ids))]
