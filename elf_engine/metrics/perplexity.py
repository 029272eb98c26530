"""Perplexity under another model: what a scorer is, and the published way of counting tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError
from elf_engine.metrics.estimate import Measure, Stats

Float = npt.NDArray[np.float64]
DEFAULT = "openai-community/gpt2-large"
# Logits of one batch are tokens x vocabulary; this many tokens keep them under half a gigabyte.
_BATCH_TOKENS = 2048


class Scorer(Protocol):
    """A language model that judges texts written by others.

    `name` and `unit` (what its tokens are) go into tables. A scorer is no judge of a model that
    it shares weights with.
    """

    name: str
    unit: str

    def nll(self, texts: Sequence[str]) -> tuple[Float, Float]:
        """Sum of negative natural log-likelihoods (N,) and number of tokens counted (N,)."""
        ...


def perplexity(name: str, nll: npt.ArrayLike, tokens: npt.ArrayLike) -> Measure:
    """exp of the token-weighted mean NLL (ELF.md, "Scores"). No token at all gives NaN."""
    stats = np.stack([np.asarray(nll, np.float64), np.asarray(tokens, np.float64)], axis=-1)

    def value(totals: Stats) -> Stats:
        none = totals[:, 1] == 0
        mean = totals[:, 0] / np.where(none, 1.0, totals[:, 1])
        return np.asarray(np.where(none, np.nan, np.exp(np.minimum(mean, 700.0))))

    return Measure(name, stats, value, better=-1, unit="per token")


def per_word(name: str, nll: npt.ArrayLike, texts: Sequence[str]) -> Measure:
    """As `perplexity`, over words between white space: comparable between tokenizers."""
    measure = perplexity(name, nll, [len(text.split()) for text in texts])
    return replace(measure, unit="per word")


def counted(ids: npt.NDArray[Any], eos: int) -> npt.NDArray[np.bool_]:
    """Which tokens of rows (B,S) count: all but EOS, and the first EOS of each row. Text behind an
    EOS still counts, as in the published scoring."""
    is_eos = ids == eos
    return ~is_eos | (is_eos & (np.cumsum(is_eos, axis=1) == 1))


def shifted_nll(
    logits: npt.NDArray[Any], ids: npt.NDArray[Any], eos: int, valid: npt.NDArray[np.bool_]
) -> tuple[Float, Float]:
    """NLL sums (B,) and counts (B,) of tokens 1 on, each predicted from those before it.

    logits  (B,S,V); ids (B,S); valid (B,S) False on padding that is no token
    """
    scores = logits[:, :-1].astype(np.float64)
    scores = scores - scores.max(axis=-1, keepdims=True)
    log_p = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_p, ids[:, 1:, None], axis=-1)[..., 0]
    kept = (counted(ids, eos) & valid)[:, 1:]
    return (losses * kept).sum(axis=1), kept.sum(axis=1).astype(np.float64)


def with_ends(rows: Sequence[Sequence[int]], eos: int) -> list[list[int]]:
    """Rows as the published scoring sees them: padded with EOS to the longest, of which padding the
    first counts. So every row but the longest ends in one EOS."""
    longest = max(map(len, rows), default=0)
    return [[*row, eos] if len(row) < longest else list(row) for row in rows]


class CausalLM:
    """A Hugging Face causal language model from a directory, the local cache or the hub.

    As published: tokenised without special tokens, cut at `max_length`, the first token given.
    """

    unit = "its own tokens"

    def __init__(self, name: str = DEFAULT, max_length: int = 1024, local: bool = False) -> None:
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ElfError(
                f"scorer '{name}' needs {error.name}; install elf-studio[torch]"
            ) from error
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, local_files_only=local)
            model: Any = AutoModelForCausalLM.from_pretrained(name, local_files_only=local)
        except (OSError, ValueError) as error:
            raise ElfError(
                f"scorer '{name}' is no causal language model here, and not on the hub either; "
                "give a directory that holds one"
            ) from error
        self._model = model.eval()
        self.name = Path(name).name
        most = getattr(model.config, "max_position_embeddings", max_length)
        self._max_length = min(max_length, int(most))
        if self._tokenizer.eos_token_id is None:
            raise ElfError(f"scorer '{name}' has no end-of-text token; choose another")
        self._eos = int(self._tokenizer.eos_token_id)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids, cut at the longest this model reads."""
        found = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return [ids[: self._max_length] for ids in found]

    def nll(self, texts: Sequence[str]) -> tuple[Float, Float]:
        """See `Scorer.nll`. A text of fewer than two tokens has none to count."""
        import torch

        rows = with_ends(self.ids(texts), self._eos)
        sums, counts = np.zeros(len(rows)), np.zeros(len(rows))
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for chosen in batches([i for i in order if len(rows[i]) > 1], rows):
            ids, valid = padded([rows[i] for i in chosen], self._eos)
            with torch.inference_mode():
                mask = torch.from_numpy(valid.astype(np.int64))
                out = self._model(input_ids=torch.from_numpy(ids), attention_mask=mask)
            logits = out.logits.float().cpu().numpy()
            sums[chosen], counts[chosen] = shifted_nll(logits, ids, self._eos, valid)
        return sums, counts


def padded(
    rows: Sequence[Sequence[int]], fill: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Ids (B,S) filled up on the right, and which of them are tokens (B,S)."""
    length = max(map(len, rows))
    ids = np.full((len(rows), length), fill, np.int64)
    valid = np.zeros(ids.shape, np.bool_)
    for k, row in enumerate(rows):
        ids[k, : len(row)], valid[k, : len(row)] = row, True
    return ids, valid


def batches(order: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices of `rows`, which `order` puts in ascending length, in groups of neighbours, each few
    enough for memory."""
    found: list[list[int]] = []
    for i in order:
        if not found or (len(found[-1]) + 1) * len(rows[i]) > _BATCH_TOKENS:
            found.append([])
        found[-1].append(i)
    return found
