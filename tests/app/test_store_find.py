"""Finding, marking, owning and removing results; presets."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import store_rows
from app.records import Filter, Preset, StoredStep
from app.store import Store
from elf_engine.errors import ElfError
from tests.app.test_store import REQUEST, RESULT

ANY = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history that is up to date, since making one takes longest."""
    made = Store(tmp_path_factory.mktemp("empty") / "history.db")
    made.count()
    made.close()
    return Path(made.where)


@pytest.fixture
def history(tmp_path: Path, empty: Path) -> Store:
    return Store(shutil.copy(empty, tmp_path / "history.db"))


def add(history: Store, text: str, **changes: object) -> str:
    return history.add(replace(RESULT, text=text, input="", **changes), REQUEST)  # type: ignore[arg-type]


def found(history: Store, text: str) -> list[str]:
    return [g.output for g in history.list(wanted=Filter(text=text))]


# --- search ------------------------------------------------------------------------------------


def test_words_phrases_and_beginnings(history: Store) -> None:
    for text in (
        "The old house stood.",
        "A house so old",
        "Housing",
        "Größe ÜBER alles 中文句子",
    ):
        add(history, text)
    assert found(history, "old HOUSE") == ["A house so old", "The old house stood."]
    assert found(history, '"old house"') == ["The old house stood."]
    assert found(history, '"old house') == ["The old house stood."], "an open quotation is closed"
    assert len(found(history, "hous*")) == 3
    assert found(history, "using") == ["Housing"], "inside words too"
    assert found(history, "größe über") == found(history, "文句") == ["Größe ÜBER alles 中文句子"]
    assert found(history, "houses") == []
    assert len(found(history, "  ")) == 4


def test_the_input_is_searched_too(history: Store) -> None:
    id = history.add(replace(RESULT, input="Das Haus", text="The house"), REQUEST)
    assert [g.id for g in history.list(wanted=Filter(text="haus house"))] == [id]


@ANY
@given(text=st.text(max_size=30), query=st.text(max_size=20))
def test_any_text_is_a_search(history: Store, text: str, query: str) -> None:
    add(history, text)
    history.list(wanted=Filter(text=query))


@ANY
@given(
    before=st.text(max_size=5),
    part=st.text(st.characters(exclude_characters='"', exclude_categories=("Cs",)), min_size=1),
    after=st.text(max_size=5),
)
def test_every_part_of_a_text_finds_it(history: Store, before: str, part: str, after: str) -> None:
    id = add(history, before + part + after)
    assert id in [g.id for g in history.list(10_000, wanted=Filter(text=f'"{part}"'))]


@pytest.mark.parametrize("query", ["NEAR(", "a AND", "(", "* ^ :", "input:x", "-", "'; DROP", "\0"])
def test_signs_of_a_query_language_are_signs(history: Store, query: str) -> None:
    add(history, "plain")
    assert found(history, query) == []
    kept = add(history, f"with {query} in it")
    assert kept in [g.id for g in history.list(wanted=Filter(text=query))]


def test_too_many_words_are_refused(history: Store) -> None:
    words = " ".join(f"word{i}" for i in range(65))
    with pytest.raises(ElfError, match="65 words"):
        history.list(wanted=Filter(text=words))


def test_the_search_follows_removal_and_vacuum(history: Store) -> None:
    ids = [add(history, f"number {i} of these") for i in range(5)]
    history.delete(*ids[:3])
    history.prune(deleted_only=True)
    with sqlite3.connect(history.where) as db:
        db.execute("VACUUM")
        db.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    assert found(history, "of these") == ["number 4 of these", "number 3 of these"]
    add(history, "number 5 of these")
    assert len(found(history, "these")) == 3


# --- filters and marks -------------------------------------------------------------------------


def test_every_filter(history: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(
        ["2026-11-29T23:59:59.999Z", "2026-11-30T00:00:00.000Z", "2026-11-30T12:00:00.000Z"]
    )
    monkeypatch.setattr(store_rows, "now", lambda: next(times))
    a, b, c = (
        add(history, name, editor=editor, model=model)
        for name, editor, model in (
            ("a", "draft", "one"),
            ("b", "draft", "two"),
            ("c", "infill", "two"),
        )
    )
    monkeypatch.undo()
    history.star(a)
    history.prefer(b)
    history.tag(c, "Blog  Post")
    cases = {
        Filter(editor="draft"): [b, a],
        Filter(model="two"): [c, b],
        Filter(starred=True): [a],
        Filter(preferred=True): [b],
        Filter(tag="blog post"): [c],
        Filter(since="2026-11-30"): [c, b],
        Filter(until="2026-11-30"): [c, b, a],
        Filter(until="2026-11-29"): [a],
        Filter(since="2026-11-30T12:00"): [c],
        Filter(until="2026-11-30T12:59+01:00"): [b, a],
        Filter(model="two", since="2026-11-30", editor="draft"): [b],
        Filter(deleted=True): [],
    }
    for wanted, expected in cases.items():
        assert [g.id for g in history.list(wanted=wanted)] == expected, wanted
        assert history.count(wanted=wanted) == len(expected)
    assert history.models() == ["one", "two"]
    for bad in ("yesterday", "2026-13-01", "9999-12-31T99"):
        with pytest.raises(ElfError, match="is no date"):
            history.list(wanted=Filter(since=bad))


def test_tags_have_one_spelling(history: Store) -> None:
    id = add(history, "x")
    history.tag(id, "Blog", " blog ", "ideas")
    assert history.get(id).tags == ("blog", "ideas")
    history.untag(id, "BLOG")
    assert history.tags() == {"ideas": 1}
    history.set_tags(id, "a", "b")
    assert history.get(id).tags == ("a", "b")
    for bad in ("", " ", "a,b", "x" * 65, "a\0b"):
        with pytest.raises(ElfError, match="tag "):
            history.tag(id, bad)
    history.delete(id)
    assert history.tags() == {}


def test_deleting_can_be_undone_until_pruned(history: Store) -> None:
    id = history.add(RESULT, REQUEST, steps=[StoredStep(1, 1.0, "x")])
    child = history.add(RESULT, REQUEST, parent_id=id)
    assert history.delete(id) == 1
    assert history.delete(id) == 0
    assert [g.id for g in history.list()] == [child]
    assert history.get(id).deleted_utc is not None
    assert history.undelete(id) == 1
    assert history.get(id).deleted_utc is None
    history.delete(id)
    assert history.prune(deleted_only=True, dry_run=True) == 1
    assert history.prune(timedelta(days=1), deleted_only=True) == 0
    assert history.prune(deleted_only=True) == 1
    assert history.get(child).parent_id is None
    assert history.steps(id) == []
    with pytest.raises(ElfError, match="no result"):
        history.get(id)
    with pytest.raises(ElfError, match="no result 'gone'"):
        history.delete(child, "gone")
    assert history.get(child).deleted_utc is None, "all of them or none"


def test_what_is_pruned_is_gone_from_the_disk(history: Store) -> None:
    @sa.event.listens_for(history._database.engine(), "connect")
    def _as_some_builds_are(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA secure_delete=OFF")

    history._database.engine().dispose()
    secret, starred = add(history, "my secret diary"), add(history, "kept")
    history.star(starred)
    with pytest.raises(ElfError, match="nothing says what"):
        history.prune()
    assert history.prune(timedelta(days=1)) == 0
    assert history.prune(timedelta(0)) == 1
    for file in Path(history.where).parent.iterdir():
        assert b"secret diary" not in file.read_bytes(), file.name
        assert b"secre" not in file.read_bytes(), file.name
    assert [g.output for g in history.list()] == ["kept"], secret
    assert history.prune(timedelta(0), keep_starred=False) == 1
    with pytest.raises(ElfError, match="before all time"):
        history.prune(timedelta(weeks=999_999))


def test_lineage(history: Store) -> None:
    line = [history.add(RESULT, REQUEST)]
    for _ in range(3):
        line.append(history.add(RESULT, REQUEST, parent_id=line[-1]))
    assert [g.id for g in history.ancestors(line[-1])] == line[:-1]
    assert [g.id for g in history.children(line[0])] == [line[1]]


# --- owners ------------------------------------------------------------------------------------


def test_an_account_sees_and_changes_only_its_own(history: Store) -> None:
    ana, ben = history.of("ana"), history.of("ben")
    hers = ana.add(RESULT, REQUEST, steps=[StoredStep(1, 1.0, "x")])
    his = ben.add(RESULT, REQUEST, parent_id=hers)
    nobodys = history.add(RESULT, REQUEST)
    ana.tag(hers, "private")
    assert [g.id for g in ana.list()] == [hers]
    assert [g.id for g in history.of("").list()] == [nobodys]
    assert history.count() == 3
    assert history.get(hers).owner == "ana"
    assert (ben.tags(), ben.steps(hers), ben.count(), list(ben.export())[1:]) == ({}, [], 1, [])
    assert ben.ancestors(his) == ana.children(hers) == []
    for forbidden in (
        lambda: ben.get(hers),
        lambda: ben.star(hers),
        lambda: ben.delete(his, hers),
        lambda: ben.tag(hers, "x"),
        lambda: ben.untag(hers, "private"),
        lambda: ben.set_tags(hers),
    ):
        with pytest.raises(ElfError, match="no result"):
            forbidden()
    assert ben.prune(timedelta(0)) == 1
    assert history.get(hers).tags == ("private",)


def test_presets_belong_to_their_owner(history: Store) -> None:
    ana = history.of("ana")
    ana.save_preset("  Wild  one ", "draft", {"gamma": 2})
    ana.save_preset("Wild one", "draft", {"gamma": 3.5})
    ana.save_preset("Wild one", "infill", {})
    assert ana.presets("draft") == [Preset("Wild one", "draft", {"gamma": 3.5})]
    assert len(ana.presets()) == 2
    assert history.presets() == []
    assert not history.delete_preset("Wild one", "draft")
    assert ana.delete_preset("Wild one", "draft")
    assert ana.presets("draft") == []
    for bad in ("", "  ", "x" * 65):
        with pytest.raises(ElfError, match="needs a name"):
            ana.save_preset(bad, "draft", {})


def test_where_a_history_may_lie() -> None:
    for bad in ("garbage", "", "history", "x.dbx"):
        with pytest.raises(ElfError, match="no database URL or path"):
            Store(bad)
    for good in ("a.db", "a.sqlite", "./garbage", Path("garbage"), "postgresql://host/x"):
        Store(good)
    assert not Path("garbage").exists()
