"""The scoring model that comes with the project: an autoregressive decoder trained on English text
alone (training/baselines), for generative perplexity without a hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elf_engine import backends, decoder_dir, model_dir
from elf_engine.backends.protocol import LeftToRight
from elf_engine.config import DecoderConfig
from elf_engine.errors import ElfError
from elf_engine.metrics.perplexity import Float, batches, padded
from elf_engine.tokens import Tokenizer, load_tokenizer

BUNDLED = model_dir.BUNDLED / "scorer"


class DecoderScorer:
    """A decoder as `perplexity.Scorer`. As of the n-gram model, the first token is predicted from
    an EOS and the EOS behind a text counts. A text longer than the model reads is scored in windows
    of which the first half is context alone."""

    unit = "subword"

    def __init__(self, config: DecoderConfig, net: LeftToRight, tokenizer: Tokenizer) -> None:
        self.name = config.name
        self._net, self._tokenizer = net, tokenizer
        self._window = config.network.max_length + 1  # the last token is only predicted

    def nll(self, texts: Sequence[str]) -> tuple[Float, Float]:
        """See `perplexity.Scorer.nll`."""
        losses = self.token_nll(texts)
        sums = np.asarray([own.sum() for own in losses], np.float64)
        return sums, np.asarray([len(own) for own in losses], np.float64)

    def token_nll(self, texts: Sequence[str]) -> list[Float]:
        """Negative natural log-likelihood of every token of each text, and of the EOS behind it."""
        eos = self._tokenizer.eos_id
        rows = [[eos, *self._tokenizer.encode(text), eos] for text in texts]
        found = [np.zeros(len(row) - 1) for row in rows]
        windows = [(i, *w) for i, row in enumerate(rows) for w in _windows(len(row), self._window)]
        windows.sort(key=lambda window: window[2] - window[1])
        pieces = [rows[i][start:stop] for i, start, stop, _ in windows]
        for chosen in batches(list(range(len(pieces))), pieces):
            ids, _ = padded([pieces[k] for k in chosen], eos)
            losses = self._net.token_nll(ids.astype(np.int32)).astype(np.float64)
            for own, k in zip(losses, chosen, strict=True):
                i, start, stop, fresh = windows[k]
                found[i][fresh - 1 : stop - 1] = own[fresh - 1 - start : stop - 1 - start]
        return found


def _windows(size: int, most: int) -> list[tuple[int, int, int]]:
    """(start, stop, first token that this window scores) of a row of `size` tokens."""
    found, fresh = [], 1
    while fresh < size:
        start = 0 if fresh == 1 else max(0, fresh - most // 2)
        stop = min(size, start + most)
        found.append((start, stop, fresh))
        fresh = stop
    return found


def read(path: Path) -> DecoderScorer:
    """A scorer from a directory. Raises ElfError when it is damaged or PyTorch is missing."""
    files = decoder_dir.load(path)
    net = backends.load_decoder(files.config.network, files.weights)
    return DecoderScorer(files.config, net, load_tokenizer(files.config.tokenizer, files.path))


def load() -> DecoderScorer:
    """The bundled one. Raises ElfError where none is bundled."""
    if not BUNDLED.is_dir():
        raise ElfError(
            "no scoring model is bundled here; name another scorer: ngram, or the directory or hub "
            "name of a causal language model"
        )
    return read(BUNDLED)
