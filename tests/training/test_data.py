"""Laws of the corpus reader and the batches: splits, exclusion, layout, determinism."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf_engine.config import LayoutSpec
from elf_engine.errors import ElfError
from elf_engine.tokens import SEP_ID, SentencePieceTokenizer
from training import lines, table
from training.corpus import KEYS, MAX_SAME_START, Corpus, split_of
from training.data import BatchSource, DataConfig, TaskMix, cut_draft, cut_infill

TOKENIZER = SentencePieceTokenizer(
    Path(__file__).parents[2] / "assets" / "starter" / "tokenizer.model"
)
TASKS = {"draft": 5, "infill": 6, "translate": 7, "summarise": 8, "modernise": 9}
LAYOUT = LayoutSpec(lengths=(32, 64), tasks=TASKS, sep_id=SEP_ID)
MIX = {task: TaskMix(1.0, {"lines": 1.0}) for task in TASKS}
TEXT = st.text(st.sampled_from("abc .,ä\n"), min_size=1, max_size=60)


def key_in(split: str, stem: str = "text") -> str:
    return next(f"{stem} {i}" for i in range(10_000) if split_of(f"{stem} {i}") == split)


def write_corpus(directory: Path, rows: dict[str, list[dict[str, object]]]) -> Corpus:
    for stem in KEYS:
        with gzip.open(directory / f"{stem}.jsonl.gz", "wt", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows.get(stem, []))
    return Corpus(directory)


def test_split_is_the_fixed_rule() -> None:
    for key in ("Haus", "ä", "", "In the beginning"):
        number = int(hashlib.sha1(key.encode("utf-8")).hexdigest(), 16) % 50
        assert split_of(key) == {7: "test", 8: "validation"}.get(number, "train")


def test_a_held_out_text_is_never_trained_on_in_any_file(tmp_path: Path) -> None:
    held = key_in("test", "ein Satz")
    secret = "the small grey cat slept under the old table"
    corpus = write_corpus(
        tmp_path,
        {
            "trans_clean": [
                {"de": held, "en": secret, "tier": "A-games", "src": "x"},
                {"de": key_in("train"), "en": "other", "tier": "A-games", "src": "x"},
            ],
            "plain_more": [
                {"text": secret.upper(), "src": "bible-web"},
                {"text": f"It is true. {secret}. Yes.", "src": "bible-web"},
                {"text": key_in("train", "plain"), "src": "bible-web"},
            ],
        },
    )
    kept = [e.source for e in corpus.examples("train")]
    assert kept == [key_in("train"), key_in("train", "plain")]
    assert corpus.left_out["plain_more: repeats a held-out text"] == 2
    assert next(e.source for e in corpus.examples("test")) == held


def test_boilerplate_is_capped_and_unwanted_sources_left_out(tmp_path: Path) -> None:
    same = [f"all these rows start alike {i}" for i in range(200)]
    same = [s for s in same if split_of(s) == "train"]
    corpus = write_corpus(
        tmp_path,
        {
            "plain_debian_desc": [{"text": s, "src": "debian-desc"} for s in same],
            "plain_general": [
                {"text": key_in("train", "an opinion"), "src": "anarchism-faq"},
                {"text": "This package contains a thing", "src": "debian-desc"},
            ],
        },
    )
    assert len(list(corpus.examples("train"))) == MAX_SAME_START


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="no trans_clean"):
        Corpus(tmp_path)


@given(TEXT, st.integers(0, 10_000))
@settings(max_examples=200)
def test_cuts_keep_every_character(text: str, seed: int) -> None:
    for cut in (cut_draft, cut_infill):
        parts = cut(np.random.default_rng(seed), text)
        assert "".join(part for part, _ in parts) == text
        assert all(part for part, free in parts if free)
        assert any(free for _, free in parts)


@pytest.fixture(scope="module")
def source() -> BatchSource:
    rows = table.build(lines.examples(), TOKENIZER)
    return BatchSource(rows, TOKENIZER, LAYOUT, DataConfig(1024, (1.0, 1.0), MIX), seed=3)


def test_rows_are_laid_out_as_the_editors_do(source: BatchSource) -> None:
    seen = set()
    for step in range(10):
        drawn = source.draw(step, bucket=0)
        b = drawn.batch
        assert b.ids.shape == (32, 32)
        for ids, known, valid, task in zip(b.ids, b.known, b.valid, drawn.tasks, strict=True):
            seen.add(task)
            assert ids[0] == TASKS[task]
            assert known[0]
            assert (ids[~valid] == TOKENIZER.pad_id).all()
            assert not known[~valid].any()
            free = ids[valid & ~known]
            assert len(free)
            assert TOKENIZER.eos_id not in ids[known]
            text = TOKENIZER.decode(ids[valid].tolist())
            assert text
            if task not in ("draft", "infill"):
                assert ids[known][-1] == SEP_ID
                assert free[-1] == TOKENIZER.eos_id
    assert seen == set(TASKS)


def test_batches_follow_from_seed_and_step(source: BatchSource) -> None:
    other = BatchSource(source.table, TOKENIZER, LAYOUT, source.config, seed=3)
    changed = BatchSource(source.table, TOKENIZER, LAYOUT, source.config, seed=4)
    for step in (0, 7):
        assert (source.draw(step, 0).batch.ids == other.draw(step, 0).batch.ids).all()
    assert (source.draw(0, 0).batch.ids != changed.draw(0, 0).batch.ids).any()
    assert (source.draw(0, 0).batch.ids != source.draw(1, 0).batch.ids).any()


def test_equal_token_budget(source: BatchSource) -> None:
    assert source.rows(32) * 32 == source.rows(64) * 64 == 1024


def test_wrong_mixes_are_refused(source: BatchSource) -> None:
    for mix, message in (
        ({"poem": TaskMix(1.0, {"lines": 1.0})}, "task 'poem' is unknown"),
        ({"draft": TaskMix(1.0, {"nothing": 1.0})}, "no row fits task 'draft'"),
    ):
        with pytest.raises(ElfError, match=message):
            BatchSource(source.table, TOKENIZER, LAYOUT, DataConfig(512, (1.0, 1.0), mix), 0)


def test_table_survives_saving(source: BatchSource, tmp_path: Path) -> None:
    table.save(source.table, tmp_path / "t.npz")
    again = table.load(tmp_path / "t.npz")
    assert again.groups == source.table.groups
    assert len(again) == len(source.table)
    assert [again.target(i) for i in range(len(again))] == [
        source.table.target(i) for i in range(len(again))
    ]
