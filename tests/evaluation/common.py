"""What the tests of the evaluation share: a corpus of a few rows, and an engine without network."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elf_engine import decoder_dir, model_dir
from elf_engine.config import DecoderConfig, DecoderSpec, SampleSpec, TokenizerSpec
from elf_engine.layout import Batch
from elf_engine.types import IntArray
from tests.fakes import TINY_VOCAB, FakeEngine, FakeStep, random_weights, tiny_config

ADJECTIVES = ("big", "red", "old", "small", "green", "cold", "quiet", "late")
NOUNS = ("house", "hill", "dog", "river", "boat", "garden", "letter", "market")


@dataclass
class ManyFake(FakeEngine):
    """A fake engine whose rows may have settings of their own."""

    specs: list[SampleSpec] = field(default_factory=list)

    def sample(
        self,
        batch: Batch,
        spec: SampleSpec | Sequence[SampleSpec],
        samples: Sequence[int],
        origin: IntArray | None = None,
        t_start: float = 0.0,
    ) -> Iterator[FakeStep]:
        alone = isinstance(spec, SampleSpec)
        self.specs = [spec] * len(samples) if isinstance(spec, SampleSpec) else list(spec)
        assert alone or len(self.specs) == len(samples)
        return super().sample(batch, self.specs[0], samples, origin, t_start)

    def _fill(self, batch: Batch, b: int, spec: SampleSpec, sample: int) -> list[int]:
        return super()._fill(batch, b, self.specs[b], sample)


def tiny_decoder_dir(folder: Path) -> Path:
    """A random autoregressive baseline with every task; its tokens are bytes."""
    spec = DecoderSpec(vocab=TINY_VOCAB, hidden=32, depth=2, heads=2, max_length=64)
    weights = random_weights(model_dir.expected_shapes(spec))
    weights["shared/embedding"] *= 4  # so that the likeliest token is clearly so
    bytes_alone = TokenizerSpec(kind="bytes", file="")
    config = DecoderConfig("tiny-ar", "ar", spec, bytes_alone, tiny_config().layout)
    return decoder_dir.save(folder / "tiny-ar", config, weights, None, dtype="float32")


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_corpus(folder: Path, rows: int = 1200) -> Path:
    """The corpus files with generated rows, enough for a few in every split."""
    texts = [
        f"The {ADJECTIVES[k % 8]} {NOUNS[k // 8 % 8]} was number {k} on the long list today."
        for k in range(rows)
    ]
    tiers = ("A-ding-sentence", "B-help")
    files: dict[str, list[dict[str, Any]]] = {
        "trans_clean": [
            {"de": f"Das war Nummer {k}.", "en": text, "tier": tiers[k % 2]}
            for k, text in enumerate(texts)
        ],
        "trans_ding_words": [{"de": "Haus", "en": "house"}],
        "summary_clean": [
            {"document": f"{text} It was seen.", "summary": f"number {k}", "tier": 1 + k % 2}
            for k, text in enumerate(texts)
        ],
        "rewrite_kjv_web": [
            {"old": f"Thou hast seen verse {k}.", "modern": f"You have seen verse {k}."}
            for k in range(rows)
        ],
        "plain_general": [{"text": text, "src": "wordnet-example"} for text in texts],
        "plain_more": [{"text": f"And {text}", "src": "bible-web"} for text in texts[:200]],
        "plain_docs_en": [{"text": f"So {text}", "src": "handbook"} for text in texts[:200]],
        "plain_debian_desc": [{"text": f"Or {text}"} for text in texts[:20]],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for stem, content in files.items():
        with gzip.open(folder / f"{stem}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    return folder
