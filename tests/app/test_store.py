"""The history: what goes in comes out, ids sort by time, and no failure is worse than a line."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import store as store_module
from app import store_rows, store_schema
from app.records import Filter, StoredStep
from app.store import Store
from app.store_rows import new_id
from app.store_schema import SCHEMA
from editors.request import EditRequest, EditResult
from elf_engine.config import SampleSpec, from_dict
from elf_engine.errors import ElfError

REQUEST = EditRequest(
    "infill", "A [[2-6]] house.", count=3, settings=SampleSpec(steps=7, seed=2**62 + 1)
)
RESULT = EditResult(
    text="A small house.",
    seed=2**62 + 1,
    index=2,
    editor="infill",
    input="A [[2-6]] house.",
    model="starter",
    model_hash="ab" * 32,
    backend="torch",
    settings={"steps": 7, "sampler": "ode", "gamma": 0.25},
    seconds=1.5,
    warnings=("the gap ended early",),
)


@pytest.fixture
def history(tmp_path: Path) -> Store:
    return Store(tmp_path / "history.db")


def test_a_result_comes_back_with_all_that_reproduces_it(history: Store) -> None:
    id = history.add(RESULT, REQUEST)
    found = history.get(id)
    assert found.request == REQUEST
    assert (found.output, found.input, found.editor) == (RESULT.text, RESULT.input, "infill")
    assert (found.seed, found.sample_index) == (RESULT.seed, 2)
    assert (found.model, found.model_hash, found.backend) == ("starter", "ab" * 32, "torch")
    assert found.settings == RESULT.settings
    assert found.warnings == RESULT.warnings
    assert found.seconds == 1.5
    assert found.versions["python"].startswith("3.")
    assert found.created_utc.endswith("Z")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(), out=st.text())
def test_any_text_is_kept_as_it_is(history: Store, text: str, out: str) -> None:
    id = history.add(replace(RESULT, input=text, text=out), replace(REQUEST, text=text))
    found = history.get(id)
    assert (found.input, found.output, found.request.text) == (text, out, text)


def test_a_lone_surrogate_does_not_lose_the_result(history: Store) -> None:
    id = history.add(replace(RESULT, text="a\ud800b"), replace(REQUEST, text="\udfff"))
    assert history.get(id).output == "a?b"


def test_ids_sort_by_time_and_never_repeat() -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(new_id() for _ in range(500)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 2000
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(ids)


def test_ids_sort_even_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert new_id() > first


def test_newest_first_and_page_by_page(history: Store) -> None:
    ids = [
        history.add(replace(RESULT, index=i, editor="draft" if i % 2 else "infill"), REQUEST)
        for i in range(7)
    ]
    newest = ids[::-1]
    assert [g.id for g in history.list(limit=3)] == newest[:3]
    assert [g.id for g in history.list(limit=10**30)] == newest
    assert [g.id for g in history.list(limit=3, before=newest[2])] == newest[3:6]
    assert [g.id for g in history.list(editor="draft")] == [ids[5], ids[3], ids[1]]
    assert (history.count(), history.count("infill")) == (7, 4)
    with pytest.raises(ElfError, match="limit 0"):
        history.list(limit=0)


def test_found_by_the_start_of_its_id(history: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["abc0", "abd0"])
    monkeypatch.setattr(store_rows, "new_id", lambda: next(names))
    history.add(RESULT, REQUEST)
    history.add(RESULT, REQUEST)
    assert history.get("abd").id == "abd0"
    assert history.get(" ABC ").id == "abc0"
    with pytest.raises(ElfError, match="several results start with 'ab'"):
        history.get("ab")
    with pytest.raises(ElfError, match="no result 'zz'"):
        history.get("zz")
    for bad in ("", "%", "a_c", "ab'; --"):
        with pytest.raises(ElfError, match="no result id"):
            history.get(bad)


def test_steps_belong_to_their_result(history: Store) -> None:
    steps = [StoredStep(1, 0.5, "A ··· house."), StoredStep(2, 1.0, "A small house.")]
    id = history.add(RESULT, REQUEST, steps=steps)
    assert history.steps(id) == steps
    assert history.steps(history.add(RESULT, REQUEST)) == []


def test_a_parent_must_exist(history: Store) -> None:
    parent = history.add(RESULT, REQUEST)
    assert history.get(history.add(RESULT, REQUEST, parent_id=parent)).parent_id == parent
    with pytest.raises(ElfError, match="FOREIGN KEY"):
        history.add(RESULT, REQUEST, parent_id="gone")
    assert history.count() == 2


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ELF_DATABASE_URL", raising=False)
    monkeypatch.setenv("ELF_HOME", str(tmp_path / "home"))
    Store().add(RESULT, REQUEST)
    file = tmp_path / "home" / "history.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setenv("ELF_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    assert Store().count() == 0
    assert "secret" not in Store("postgresql://me:secret@nowhere/x").where
    with pytest.raises(ElfError, match="no database URL"):
        Store("://")


def test_sqlite_is_set_up_for_many_readers(history: Store) -> None:
    with history._connect() as connection:
        pragma = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "busy_timeout")
        ]
    assert pragma == ["wal", 1, 5000]


# --- what goes wrong ---------------------------------------------------------------------------


def one_line(error: pytest.ExceptionInfo[ElfError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert "history.db" in message
    return message


def test_locked(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    history = Store(file, busy_seconds=0.05)
    history.add(RESULT, REQUEST)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ElfError) as error:
        history.add(RESULT, REQUEST)
    assert "is locked by another program" in one_line(error)
    assert history.count() == 1, "reading goes on while someone writes"
    other.execute("ROLLBACK")
    other.close()
    history.add(RESULT, REQUEST)
    assert history.count() == 2


def test_full(tmp_path: Path) -> None:
    history = Store(tmp_path / "history.db")
    history.add(RESULT, REQUEST)
    assert history._database._engine is not None
    history._database._engine.dispose()

    @sa.event.listens_for(history._database._engine, "connect")
    def _no_room(connection: sqlite3.Connection, _record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages}")

    with pytest.raises(ElfError) as error:
        history.add(replace(RESULT, text="x" * 100_000), REQUEST)
    assert "has no room left" in one_line(error)
    assert history.count() == 1


def test_read_only(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    Store(file).add(RESULT, REQUEST)
    history = Store(f"sqlite:///file:{file}?mode=ro&uri=true")
    assert history.count() == 1
    with pytest.raises(ElfError) as error:
        history.add(RESULT, REQUEST)
    assert "is read-only" in one_line(error)


def test_no_such_place_then_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = Store(tmp_path / "file" / "history.db")
    with pytest.raises(ElfError) as error:
        history.list()
    one_line(error)
    (tmp_path / "file").unlink()
    assert history.list() == []


def test_a_database_that_cannot_be_reached_is_a_line() -> None:
    with pytest.raises(ElfError, match="'nosuch' is no database it can use"):
        Store("nosuch://x").count()
    with pytest.raises(ElfError, match=r"needs the package|cannot be used") as error:
        Store("postgresql://me:secret@127.0.0.1:1/x").count()
    assert "secret" not in str(error.value)


def test_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    file.write_text("shopping list " * 100)
    with pytest.raises(ElfError) as error:
        Store(file).count()
    assert "not a database" in one_line(error)
    assert file.read_text().startswith("shopping list")


# --- migrations --------------------------------------------------------------------------------


def columns(file: Path) -> dict[str, list[str]]:
    with sqlite3.connect(file) as db:
        return {
            table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            for table in ("generations", "steps", "tags", "presets", "search", "search_rows")
        }


def test_every_schema_since_the_first_leads_to_this_one(tmp_path: Path) -> None:
    """tests/app/schema_0001.sql was written by the first version and stays as it is."""
    old, new = tmp_path / "history.db", tmp_path / "new.db"
    with sqlite3.connect(old) as db:
        db.executescript(Path(__file__).with_name("schema_0001.sql").read_text("utf-8"))
    history = Store(old)
    (found,) = history.list()
    assert found.id == "1m8q2encbh8esw"
    assert found.request == EditRequest(
        "draft", "Once — “upon” 🧝", count=2, settings=SampleSpec(steps=4, seed=7)
    )
    assert from_dict(SampleSpec, found.settings) == SampleSpec(steps=4, seed=7)
    assert history.steps(found.id) == [StoredStep(1, 0.5, "Once…")]
    assert (found.owner, found.starred, found.tags, found.deleted_utc) == ("", False, (), None)
    assert history.list(wanted=Filter(text='"” 🧝 a time"')) == [found], "old texts are found too"
    history.add(RESULT, REQUEST)
    Store(new).count()
    assert columns(old) == columns(new)


def test_the_schema_named_is_the_newest_migration(history: Store) -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option(
        "script_location", str(Path(store_module.__file__).parent / "migrations")
    )
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA
    history.count()
    found = columns(Path(history.where))
    assert found["generations"] == [c.name for c in store_schema.generations.columns]
    for table in (store_schema.steps, store_schema.tags, store_schema.presets):
        assert found[table.name] == [c.name for c in table.columns]


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    Store(file).add(RESULT, REQUEST)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ElfError, match="newer ELF Studio"):
        Store(file).count()


def test_a_failed_migration_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history.db"
    from alembic import op

    real = op.create_table

    def breaks(name: str, *args: object) -> object:
        if name == "steps":
            raise OSError("power cut")
        return real(name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(op, "create_table", breaks)
    with pytest.raises(ElfError, match="power cut"):
        Store(file).count()
    monkeypatch.undo()
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert Store(file).count() == 0


def test_many_open_a_new_history_at_once(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    errors: list[Exception] = []

    def use() -> None:
        try:
            Store(file).add(RESULT, REQUEST)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert Store(file).count() == 6


# --- crash safety ------------------------------------------------------------------------------

WRITER = """
import sys
from app.store import Store
from tests.app.test_store import REQUEST, RESULT
history = Store(sys.argv[1])
while True:
    print(history.add(RESULT, REQUEST), flush=True)
"""


@pytest.mark.parametrize("moment", [0.0, 0.013, 0.1])
def test_killed_while_writing_nothing_finished_is_lost(tmp_path: Path, moment: float) -> None:
    file = tmp_path / "history.db"
    root = Path(__file__).resolve().parents[2]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert writer.stdout is not None
    told = [writer.stdout.readline().strip()]
    time.sleep(moment)
    writer.send_signal(signal.SIGKILL)
    told += [line.strip() for line in writer.stdout.read().splitlines()]
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL
    history = Store(file)
    kept = [g.id for g in history.list(limit=100_000)]
    assert set(told) <= set(kept)
    assert len(kept) <= len(told) + 1, "at most the one being written is there unannounced"
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    history.add(RESULT, REQUEST)
