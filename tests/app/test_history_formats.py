"""Exports: JSON lines come back as they were, and no spreadsheet runs a cell of the CSV."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.records import Generation, StoredStep
from app.store import Imported, Store
from app.store_formats import FORMATS, read_jsonl, safe_cell, write
from app.store_rows import ALPHABET, fresh
from elf_engine.errors import ElfError
from tests.app.test_store import REQUEST, RESULT

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
PLAIN = fresh(RESULT, REQUEST, None, "")
ANY = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def results() -> st.SearchStrategy[list[tuple[Generation, Sequence[StoredStep]]]]:
    one = st.builds(
        lambda id, input, output, tags, starred, deleted, seed, seconds, steps: (
            replace(
                PLAIN,
                id=id,
                input=input,
                output=output,
                request=replace(REQUEST, text=input),
                tags=tuple(sorted(tags)),
                starred=starred,
                deleted_utc="2026-11-30T00:00:00.000Z" if deleted else None,
                seed=seed,
                seconds=seconds,
                warnings=(output,),
                owner="ana" if starred else "",
            ),
            [StoredStep(i, i / 8, text) for i, text in enumerate(steps, 1)],
        ),
        st.text(ALPHABET, min_size=14, max_size=14),
        TEXT,
        TEXT,
        st.sets(st.sampled_from(["blog", "größe", "two words"])),
        st.booleans(),
        st.booleans(),
        st.integers(0, 2**63 - 1),
        st.floats(0, 1e6),
        st.lists(TEXT, max_size=3),
    )
    return st.lists(one, max_size=4, unique_by=lambda kept: kept[0].id).map(
        lambda kept: sorted(kept, key=lambda pair: pair[0].id)
    )


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Store(tmp_path_factory.mktemp("empty") / "history.db")
    made.count()
    made.close()
    return Path(made.where)


def read(text: str) -> list[tuple[Generation, Sequence[StoredStep]]]:
    return [(g, list(steps)) for g, steps in read_jsonl(io.BytesIO(text.encode()))]


@ANY
@given(kept=results())
def test_jsonl_through_a_database_is_the_same_file(
    empty: Path, tmp_path: Path, kept: list[tuple[Generation, Sequence[StoredStep]]]
) -> None:
    from app.records import Filter

    text = "".join(write("jsonl", kept))
    assert read(text) == kept
    store = Store(shutil.copy(empty, tmp_path / "history.db"))
    assert store.take(read_jsonl(io.BytesIO(text.encode()))) == Imported(len(kept), 0, 0)
    both = Filter(deleted=None)
    assert "".join(write("jsonl", store.export(both))) == text
    assert store.take(read_jsonl(io.BytesIO(text.encode()))) == Imported(0, len(kept), 0)
    assert store.count(wanted=both) == len(kept)
    store.close()


def test_links_are_kept_whatever_the_order(empty: Path, tmp_path: Path) -> None:
    parent = replace(PLAIN, id="zzz")
    child, orphan = (
        replace(PLAIN, id="aaa", parent_id="zzz"),
        replace(PLAIN, id="bbb", parent_id="ccc"),
    )
    store = Store(shutil.copy(empty, tmp_path / "history.db"))
    lines = "".join(write("jsonl", [(child, []), (orphan, []), (parent, [])]))
    done = store.of("ana").take(read_jsonl(io.BytesIO(lines.encode())))
    assert done == Imported(3, 0, 1)
    assert store.get("aaa").parent_id == "zzz"
    assert store.get("bbb").parent_id is None
    assert {g.owner for g in store.list()} == {"ana"}, "an account takes them as its own"


def broken(**changes: object) -> str:
    line = json.loads("".join(write("jsonl", [(PLAIN, [])])))
    return json.dumps({k: v for k, v in (line | changes).items() if v != "gone"})


BAD = {
    "shopping list": "not a line of an export",
    "[]": "not a line of an export",
    "[" * 100_000: "not a line of an export",
    '{"format": 2}': 'no "format": 1',
    broken(id="../../etc"): "id '../../etc'",
    broken(id=""): "id ''",
    broken(id=7): "expected str",
    broken(output="gone"): "'output' is missing",
    broken(output=None): "expected str",
    broken(colour="red"): "unknown key 'colour'",
    broken(seed=-1): "seed '-1'",
    broken(seed=2**63): "seed",
    broken(seconds=-1): "seconds",
    broken(seconds=float("nan")): "NaN is no number",
    broken(created_utc="yesterday"): "created_utc",
    broken(tags=["A"]): "tags",
    broken(tags=["a", "a"]): "tags",
    broken(editor="e" * 33): "editor",
    broken(request={"editor": "draft", "colour": 1}): "unknown key 'colour'",
    broken(steps=[{"i": 1, "t": 0.0, "text": ""}] * 2): "numbers repeat",
}


@pytest.mark.parametrize("line", BAD, ids=list(BAD.values()))
def test_a_wrong_line_is_named_and_nothing_is_added(empty: Path, tmp_path: Path, line: str) -> None:
    store = Store(shutil.copy(empty, tmp_path / "history.db"))
    good = "".join(write("jsonl", [(PLAIN, [])]))
    with pytest.raises(ElfError, match=r"^line 3\b") as error:
        store.take(read_jsonl(io.BytesIO(f"{good}\n{line}\n".encode())))
    assert BAD[line] in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300
    assert store.count() == 0


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ElfError, match="line 1: not a line"):
        list(read_jsonl(io.BytesIO(b"\xff\xfe{}")))


# --- CSV and Markdown --------------------------------------------------------------------------

EVIL = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "'", '"=1"', ""]


@ANY
@given(texts=st.lists(TEXT | st.sampled_from(EVIL), min_size=1, max_size=4))
def test_csv_is_safe_and_says_the_same(texts: list[str]) -> None:
    kept = [(replace(PLAIN, output=text, input=text[::-1], model=text), []) for text in texts]
    written = "".join(write("csv", kept)).removeprefix("\ufeff")
    rows = list(csv.DictReader(io.StringIO(written, newline=""), strict=True))
    assert len(rows) == len(texts)
    for row, text in zip(rows, texts, strict=True):
        for cell in row.values():
            assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
            assert not cell.startswith(("\t", "\r", "\n"))
        assert row["output"].removeprefix("'") == text or row["output"] == text
        if row["output"] != text:
            assert row["output"] == "'" + text
    assert len({safe_cell(text) for text in texts}) == len(set(texts)), "no two become one"


def test_markdown_text_cannot_leave_its_block() -> None:
    evil = "```\n# heading\n````` <script>"
    g = replace(PLAIN, output=evil, input="`", model="`m", editor="draft", tags=("a`b",))
    written = "".join(write("markdown", [(g, [])]))
    assert f"\n``````text\n{evil}\n``````\n" in written
    assert "`` `m ``" in written


def test_formats_are_named() -> None:
    assert set(FORMATS) == {"jsonl", "csv", "markdown"}
    with pytest.raises(ElfError, match="format 'xls'"):
        write("xls", [])
