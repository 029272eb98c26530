"""Laws of streamed data: every row once an epoch, exact resume, shares that join, layouts."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from elf_engine.config import LayoutSpec
from elf_engine.errors import ElfError
from elf_engine.layout import Batch
from elf_engine.tokens import SEP_ID, BytesTokenizer
from training import hub
from training.arrow import by_name, tokenize
from training.data import DataConfig, StreamSpec, TrainBatch
from training.data_cli import main
from training.plan import Plan, best_lengths, cuts
from training.rows import Fields, Rows
from training.sources import padding, shard
from training.stream import Batches, Blocks, Stream

TOKENIZER = BytesTokenizer()
TASKS = {"draft": 5, "infill": 6, "translate": 7, "summarise": 8, "modernise": 9}
LAYOUT = LayoutSpec(lengths=(64,), tasks=TASKS, sep_id=SEP_ID)
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=120)


def pairs(count: int, seed: int = 0) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "input": f"{i:03}" + "s" * int(rng.integers(1, 20)),
            "output": "t" * int(rng.integers(1, 20)),
        }
        for i in range(count)
    ]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "pairs.jsonl", pairs(100))


def batches(path: Path, share: tuple[int, int] = (0, 1), seed: int = 0, **spec: Any) -> Batches:
    given = {"layout": "own", "length": 64, "buckets": 6, **spec}
    config = DataConfig(batch_tokens=256, stream=StreamSpec(train=str(path), **given))
    return Batches(Rows(path, TOKENIZER), TOKENIZER, LAYOUT, config, seed, share)


def sources(batch: Batch) -> list[str]:
    return [
        TOKENIZER.decode(ids[known].tolist())
        for ids, known in zip(batch.ids, batch.known, strict=True)
    ]


def equal(one: TrainBatch, other: TrainBatch) -> bool:
    names = ("ids", "known", "valid")
    same = [np.array_equal(getattr(one.batch, n), getattr(other.batch, n)) for n in names]
    return all(same) and one.tasks == other.tasks


@given(SIZES, st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_best_lengths_are_the_best(sizes: list[int], count: int) -> None:
    found = best_lengths(np.asarray(sizes), count)
    assert found[-1] == max(sizes)
    assert list(found) == sorted(set(found))
    assert len(found) <= count

    def waste(ends: tuple[int, ...]) -> int:
        return sum(min(e for e in ends if e >= size) - size for size in sizes)

    rng = np.random.default_rng(0)
    inner = sorted(set(sizes))[:-1]
    for _ in range(20):
        other = rng.choice(inner, min(count - 1, len(inner)), replace=False) if inner else []
        assert waste(found) <= waste((*map(int, other), max(sizes)))


@given(SIZES, st.integers(1, 5), st.integers(0, 99), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_an_epoch_has_every_row(sizes: list[int], buckets: int, seed: int, multiple: int) -> None:
    array = np.asarray(sizes)
    lengths = best_lengths(array, buckets)
    rows = tuple(max(80 // length // multiple, 1) * multiple for length in lengths)
    if len(sizes) < rows[-1]:
        with pytest.raises(ElfError, match="make no batch"):
            cuts(array, lengths, rows)
        return
    plan = Plan(array, lengths, rows, seed)
    for epoch in (0, 3):
        seen: Counter[int] = Counter()
        for k in range(len(plan)):
            chosen, length = plan.batch(epoch * len(plan) + k)
            assert len(chosen) == len(set(chosen)) == rows[lengths.index(length)]
            assert max(array[chosen]) <= length
            seen.update(chosen)
        assert set(seen) == set(range(len(sizes)))
        assert seen.total() - len(sizes) < rows[-1]
        assert max(seen.values()) <= 2


def test_epochs_and_seeds_differ() -> None:
    sizes = np.full(64, 8)
    plan, other = Plan(sizes, (8,), (8,), 0), Plan(sizes, (8,), (8,), 1)
    firsts = [plan.batch(0)[0], plan.batch(len(plan))[0], other.batch(0)[0]]
    assert len({tuple(first) for first in firsts}) == 3
    assert plan.batch(5) == Plan(sizes, (8,), (8,), 0).batch(5)


def test_straight_equals_resumed(jsonl: Path) -> None:
    whole = Stream(batches(jsonl), "x")
    straight = list(islice(whole, 60))  # over the end of an epoch
    first = Stream(batches(jsonl), "x")
    head = list(islice(first, 23))
    second = Stream(batches(jsonl), "x")
    second.restore(json.loads(json.dumps(first.state())))
    assert second.state()["step"] == 23
    resumed = [*head, *islice(second, 37)]
    assert all(map(equal, straight, resumed))
    assert all(equal(batch, whole.draw(i)) for i, batch in enumerate(straight))
    with pytest.raises(ElfError, match="not what the checkpoint"):
        Stream(batches(jsonl), "y").restore(first.state())


@pytest.mark.slow
def test_workers_change_nothing(jsonl: Path) -> None:
    alone, helped = Stream(batches(jsonl), "x"), Stream(batches(jsonl), "x", workers=2)
    alone.restore({"step": 5, "data": "x"})
    helped.restore({"step": 5, "data": "x"})
    assert all(map(equal, islice(alone, 9), islice(helped, 9)))
    assert helped.state()["step"] == 14


@pytest.mark.parametrize("count", [2, 4])
def test_shares_join_to_the_whole(jsonl: Path, count: int) -> None:
    whole = batches(jsonl, rows_multiple=4)
    parts = [batches(jsonl, (i, count), rows_multiple=4) for i in range(count)]
    for number in range(len(whole.plan)):
        joined = np.concatenate([part[number].batch.ids for part in parts])
        assert np.array_equal(joined, whole[number].batch.ids)
        cut = [shard(whole[number], i, count) for i in range(count)]
        assert all(equal(a, part[number]) for a, part in zip(cut, parts, strict=True))
    with pytest.raises(ElfError, match="does not divide"):
        batches(jsonl, (0, 3), rows_multiple=4)
    with pytest.raises(ElfError, match="does not divide"):
        shard(whole[0], 0, 7)


def test_own_layout_is_the_editors(jsonl: Path) -> None:
    made = batches(jsonl)
    rows = {row["input"]: row["output"] for row in pairs(100)}
    for number in range(len(made.plan)):
        one = made[number]
        assert set(one.tasks) == {"translate"}
        assert one.batch.ids.size <= 256 + 64
        b = one.batch
        for source, ids, known, valid in zip(sources(b), b.ids, b.known, b.valid, strict=True):
            assert ids[0] == TASKS["translate"]
            assert ids[known][-1] == SEP_ID
            free = ids[valid & ~known]
            assert free[-1] == TOKENIZER.eos_id
            assert TOKENIZER.decode(free[:-1].tolist()) == rows[source]


def test_padding_is_under_a_tenth() -> None:
    """At the lengths of the corpus's pairs: about log-normal, median 30 tokens, p95 90."""
    rng = np.random.default_rng(0)
    sizes = np.clip(np.exp(rng.normal(3.4, 0.6, 20_000)), 6, 128).astype(np.int64)
    lengths = best_lengths(sizes, StreamSpec(train="x").buckets)
    plan = Plan(sizes, lengths, tuple(4096 // length for length in lengths), 0)
    assert plan.padding(sizes) < 0.1


def test_padding_counts_what_is_not_valid() -> None:
    valid = np.asarray([[True, True, False, False]])
    assert padding(Batch(np.zeros((1, 4), np.int32), ~valid, valid)) == 0.5


def test_published_pairs_end_in_eos(jsonl: Path) -> None:
    made = batches(jsonl, layout="published", length=24, max_source=8, fill="eos", rows=10)
    b = made[0].batch
    assert b.ids.shape == (10, 24)
    assert (b.known.sum(1) <= 8).all()
    assert (b.ids[~b.valid] == TOKENIZER.eos_id).all()
    assert not b.known[~b.valid].any()
    rows = {row["input"][:8]: row["output"] for row in pairs(100)}
    for source, ids, known, valid in zip(sources(b), b.ids, b.known, b.valid, strict=True):
        text = TOKENIZER.decode(ids[valid & ~known].tolist())
        assert text == rows[source][: 24 - known.sum()]


def test_joined_documents_fill_their_blocks(tmp_path: Path) -> None:
    texts = ["a" * 7, "b", "c" * 20, "d" * 3]
    rows = Rows(write(tmp_path / "t.jsonl", [{"text": t} for t in texts]), TOKENIZER)
    ids = [i for n in range(4) for i in rows[n].target]
    assert ids.count(TOKENIZER.eos_id) == 4
    for length in (1, 5, 16, 35):
        blocks = Blocks(rows, length)
        assert len(blocks) == len(ids) // length
        joined = [i for n in range(len(blocks)) for i in blocks[n].target]
        assert joined == ids[: len(blocks) * length]
    with pytest.raises(ElfError, match="too few"):
        Blocks(rows, 36)
    made = batches(rows.path, layout="published", join=True, length=5, rows=3)
    assert made[0].batch.valid.all()


def test_plain_rows_are_drafts(tmp_path: Path) -> None:
    path = tmp_path / "t.txt.gz"
    path.write_bytes(gzip.compress("one line\n\nzwei ä\n".encode() * 20))
    made = batches(path)
    assert set(made[0].tasks) == {"draft"}
    assert (made[0].batch.known.sum(1) == 1).all()
    with pytest.raises(ElfError, match="does not fit task 'translate'"):
        batches(path, task="translate")
    with pytest.raises(ElfError, match="conditions"):
        batches(write(tmp_path / "p.jsonl", pairs(3)), layout="published", join=True)


def test_rows_too_long_are_counted(jsonl: Path) -> None:
    made = batches(jsonl, length=30)
    sizes = [len(r["input"]) + len(r["output"]) + 3 for r in pairs(100)]
    assert made.too_long == sum(size > 30 for size in sizes) > 0
    with pytest.raises(ElfError, match="no row"):
        batches(jsonl, length=4)


BAD = [
    ("not json", "not JSON"),
    ("[1]", "not an object"),
    ('{"input": "a"}', "without 'output'"),
    ('{"input": 1, "output": "b"}', "'input' of the wrong type"),
    ('{"text": " "}', "empty 'text'"),
    ('{"other": "x"}', "without 'text'"),
    ('{"input_ids": [1, 999]}', "outside the vocabulary"),
    ('{"input_ids": [1.5]}', "'input_ids' of the wrong type"),
    ('{"input_ids": []}', "empty 'input_ids'"),
    (b"\xff\xfe", "not UTF-8"),
    ('{"text": "\\ud800"}', "lone surrogate"),
]


@pytest.mark.parametrize(("line", "kind"), BAD)
def test_a_bad_row_is_named_and_the_others_used(
    tmp_path: Path, line: str | bytes, kind: str
) -> None:
    path = tmp_path / "x.jsonl"
    raw = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b'{"text": "good"}\n' + raw + b"\n")
    rows = Rows(path, TOKENIZER)
    assert len(rows) == 1
    summary, first = rows.problems.lines()
    assert "left out 1 rows" in summary
    assert kind in summary
    assert first.strip().startswith(f"{path}:2: ")
    path.write_bytes(raw + b"\n")
    with pytest.raises(ElfError, match="no good row"):
        Rows(path, TOKENIZER)


def table(rows: list[Any], kind: Any = None) -> Any:
    return pa.table({"input_ids": pa.array(rows, kind or pa.list_(pa.int64()))})


def test_bad_rows_of_arrow_files(tmp_path: Path) -> None:
    data = table([[20, 21], None, [], [22, None], [-1], [23, 276], [24]])
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(str(path), data.schema) as out:
        out.write_table(data.slice(1), max_chunksize=2)  # offsets that do not start at 0
    rows = Rows(path, TOKENIZER)
    assert [rows[i].target for i in range(len(rows))] == [[24]]
    assert rows.problems.counts == {
        "input_ids missing": 2,
        "input_ids empty": 1,
        "input_ids outside the vocabulary of 272": 2,
    }
    assert rows.problems.first[0] == f"{path}:1: input_ids missing"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pa.table({"text": ["a"]}), "no column input_ids"),
        (pa.table({"input_ids": ["a"]}), "lists of integers are wanted"),
        (table([None]), "no good row"),
    ],
)
def test_files_of_the_wrong_make(tmp_path: Path, data: Any, message: str) -> None:
    pq.write_table(data, tmp_path / "x.parquet")
    with pytest.raises(ElfError, match=message):
        Rows(tmp_path, TOKENIZER)
    for name in ("x.arrow", "x.parquet", "y.jsonl.gz"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(ElfError, match="cannot be read"):
            Rows(tmp_path / name, TOKENIZER)


def test_tokenized_data_is_the_same_data(jsonl: Path, tmp_path: Path) -> None:
    told = tokenize(jsonl, tmp_path / "out", TOKENIZER, Fields())
    rows, again = Rows(jsonl, TOKENIZER), Rows(tmp_path / "out", TOKENIZER)
    assert told.rows == len(rows) == len(again) == 100
    assert told.tokens == rows.lengths.sum()
    assert all(list(rows[i].target) == again[i].target for i in range(100))
    assert all(list(rows[i].source) == again[i].source for i in range(100))
    assert rows.fingerprint == again.fingerprint
    copy = pickle.loads(pickle.dumps(again))  # noqa: S301 - Grain's workers do this
    assert copy[7] == again[7]
    large = table([again[i].target for i in range(100)], pa.large_list(pa.int32()))
    pq.write_table(large, tmp_path / "x.parquet")
    assert Rows(tmp_path / "x.parquet", TOKENIZER)[7].target == again[7].target
    with pytest.raises(ElfError, match="exists"):
        tokenize(jsonl, tmp_path / "out", TOKENIZER, Fields())


def test_mixed_rows_are_refused(tmp_path: Path) -> None:
    mixed = write(tmp_path / "m.jsonl", [*pairs(2), {"text": "plain"}])
    with pytest.raises(ElfError, match="mixes rows"):
        Rows(mixed, TOKENIZER)
    with pytest.raises(ElfError, match="some rows have a condition"):
        tokenize(mixed, tmp_path / "out", TOKENIZER, Fields())
    assert sorted(f.name for f in tmp_path.iterdir()) == ["m.jsonl"]


def test_the_command(tmp_path: Path) -> None:
    data = write(tmp_path / "c.jsonl", [{"de": f"Satz {i}", "en": "x"} for i in range(200)])
    words = ["tokenize", str(data), str(tmp_path / "o"), "--tokenizer", "bytes"]
    fields = ["--source-field", "de", "--target-field", "en"]
    run = CliRunner().invoke(main, [*words, *fields, "--split", "test"])
    assert run.exit_code == 0
    kept = len(Rows(tmp_path / "o", TOKENIZER))
    assert 0 < kept < 20
    assert run.stdout.startswith(f"wrote {kept} rows")
    for wrong in ([*words, *fields], [*words[:1], "none", "o", *words[3:]]):
        run = CliRunner().invoke(main, wrong)
        assert run.exit_code == 2
        assert len(run.stderr.splitlines()) == 1
    assert by_name("bytes").vocab_size == TOKENIZER.vocab_size


def test_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jsonl: Path) -> None:
    monkeypatch.setenv("ELF_HOME", str(tmp_path))
    assert hub.local(str(jsonl)) == jsonl

    def fetch(name: str, directory: Path, patterns: tuple[str, ...]) -> None:
        assert (name, patterns[0]) == ("o/set", "train/*.arrow")
        tokenize(jsonl, directory / "train", TOKENIZER, Fields())

    assert len(Rows(hub.local("o/set:train", fetch), TOKENIZER)) == 100

    def unreachable(*_: Any) -> None:
        raise ConnectionError("no route\nmore lines")

    with pytest.raises(ElfError, match=r"'o/set' could not be downloaded \(no route\)"):
        hub.local("o/set", unreachable)
    for name in ("missing.jsonl", "./a/b", "/a/b"):
        with pytest.raises(ElfError, match="no data at"):
            hub.local(name, fetch)
