"""The models that judge: by name, loaded only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from app.evaluation.data import training_texts
from elf_engine import decoder_dir, model_dir
from elf_engine.metrics import decoder
from elf_engine.metrics.perplexity import DEFAULT, CausalLM, Scorer
from elf_engine.tokens import Tokenizer, load_tokenizer

NGRAM, GPT2 = "ngram", "gpt2-large"


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model name or directory."""
    directory = model_dir.find(model)
    return load_tokenizer(model_dir.load_config(directory).tokenizer, directory)


def load_scorer(name: str, data: Path, texts: int | None = None) -> Scorer:
    """ "ngram" (trained on the training split, at most `texts` texts), "bundled", "gpt2-large", the
    directory of an autoregressive baseline, or a Hugging Face causal language model: its directory
    or hub name. Raises ElfError without it."""
    if name == NGRAM:
        from elf_engine.metrics.ngram import NGram

        return NGram(training_texts(data, texts), tokenizer_of("starter"))
    if name == "bundled":
        return decoder.load()
    if decoder_dir.is_decoder(name):
        return decoder.read(Path(name))
    return CausalLM(DEFAULT if name == GPT2 else name)


def tokens_of(name: str) -> Callable[[Sequence[str]], list[list[int]]]:
    """Texts to token ids by a model's tokenizer, or by a causal language model's ("lm:NAME");
    nothing is loaded before the first use."""

    def ids(texts: Sequence[str]) -> list[list[int]]:
        if name.startswith("lm:"):
            model = name.removeprefix("lm:")
            return CausalLM(DEFAULT if model == GPT2 else model).ids(texts)
        tokenizer = tokenizer_of(name)
        return [tokenizer.encode(text) for text in texts]

    return ids
