"""Trains the bundled tokenizer: `python -m training.tokenizer --data ../shared/data --out FILE`.

Only training rows are read. Nothing is normalised away: identity normalisation, no dummy prefix,
every space kept, byte fallback for what has no piece.
"""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Iterator
from pathlib import Path

from elf_engine.tokens import CONTROL
from training.corpus import Corpus, texts

VOCAB_SIZE = 8192
# Share of each group's rows the tokenizer sees; 1.0 where not named. Dictionary entries and
# glosses would otherwise crowd out running text.
SHARE = {"ding-words": 0.25, "wordnet-gloss": 0.3, "gcide-def": 0.2, "foldoc": 0.3}
MAX_CHARACTERS = 2000


def train(lines: Iterator[str], vocab_size: int = VOCAB_SIZE) -> bytes:
    """A SentencePiece unigram model with our control tokens, trained on `lines`."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        model_type="unigram",
        vocab_size=vocab_size,
        character_coverage=0.9998,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        pad_id=CONTROL.index("<pad>"),
        eos_id=CONTROL.index("</s>"),
        unk_id=CONTROL.index("<unk>"),
        bos_id=-1,
        pad_piece="<pad>",
        eos_piece="</s>",
        unk_piece="<unk>",
        control_symbols=list(CONTROL[3:]),
        max_sentence_length=8192,
        input_sentence_size=600_000,
        shuffle_input_sentence=True,
        num_threads=2,
        minloglevel=1,
    )
    return model.getvalue()


def training_lines(data: Path, seed: int = 0) -> Iterator[str]:
    """Texts of the training split, thinned by `SHARE`."""
    rng = random.Random(seed)
    for example in Corpus(data).examples("train"):
        if rng.random() < SHARE.get(example.group, 1.0):
            for text in texts([example]):
                yield text[:MAX_CHARACTERS]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the bundled SentencePiece tokenizer.")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("assets/starter/tokenizer.model"))
    parser.add_argument("--vocab-size", type=int, default=VOCAB_SIZE)
    options = parser.parse_args()
    model = train(training_lines(options.data), options.vocab_size)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(model)
    print(f"wrote {options.out} ({len(model)} bytes)")


if __name__ == "__main__":
    main()
