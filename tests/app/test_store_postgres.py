"""The history in a real PostgreSQL server, started here from this machine's binaries."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from app.records import Filter, StoredStep
from app.store import Imported, Store
from elf_engine.errors import ElfError
from tests.app.test_store import REQUEST, RESULT

pytest.importorskip("psycopg", reason="the package psycopg is missing")


def _binary(name: str) -> str:
    found = shutil.which(name) or next(iter(sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))), "")
    if not found:
        pytest.skip(f"there is no {name} here; install PostgreSQL")
    return found


def _as_whom() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("running as root, and there is no other user to run PostgreSQL as")


class Server:
    def __init__(self, directory: Path, whom: dict[str, Any]) -> None:
        self.directory, self.whom = directory, whom
        self.url = f"postgresql://elf@/postgres?host={directory}"
        self._run(_binary("initdb"), "-D", "data", "-U", "elf", "-A", "trust", "-E", "UTF8",
                  "--locale=C.UTF-8", "--no-sync").check_returncode()  # fmt: skip
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [_binary("postgres"), "-D", "data", "-k", str(self.directory), "-c", "fsync=off",
             "-c", "listen_addresses="],
            cwd=self.directory, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **self.whom,
        )  # fmt: skip
        end = time.monotonic() + 60
        while time.monotonic() < end:
            store = Store(self.url)
            try:
                store.count()
            except ElfError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.1)
            else:
                return
            finally:
                store.close()
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def _run(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, cwd=self.directory, capture_output=True, **self.whom)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    whom = _as_whom()
    # Not pytest's own place, which the other user may not enter; and short, for the socket.
    directory = Path(tempfile.mkdtemp(prefix="elf-pg-"))
    if whom:
        os.chown(directory, whom["user"], whom["group"])
    try:
        made = Server(directory, whom)
        yield made
        made.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def history(server: Server) -> Iterator[Store]:
    made = Store(server.url)
    made.prune(timedelta(0), keep_starred=False)
    yield made
    made.close()


def test_a_result_comes_back(history: Store) -> None:
    steps = [StoredStep(1, 0.5, "A ··· house."), StoredStep(2, 1.0, "A small 🧝.")]
    parent = history.add(RESULT, REQUEST)
    id = history.add(
        replace(RESULT, text="Größe 🧝 \ud800"), REQUEST, parent_id=parent, steps=steps
    )
    found = history.get(id[:13])
    assert (found.request, found.output, found.seed) == (REQUEST, "Größe 🧝 ?", RESULT.seed)
    assert (found.settings, found.warnings) == (RESULT.settings, RESULT.warnings)
    assert history.steps(id) == steps
    assert [g.id for g in history.list()] == [id, parent]
    assert [g.id for g in history.ancestors(id)] == [parent]
    assert history.add(replace(RESULT, text="a\0b"), REQUEST)
    assert history.list(limit=1)[0].output == "a\ufffdb"


def test_search_and_filters(history: Store) -> None:
    ids = [
        history.add(replace(RESULT, input="", text=text), REQUEST)
        for text in ("The old house", "ÜBER 100% _a_ \\ 中文", "old")
    ]
    for query, expected in {
        "OLD hous*": [ids[0]],
        '"the old"': [ids[0]],
        "über": [ids[1]],
        "100%": [ids[1]],
        "_a_": [ids[1]],
        "\\": [ids[1]],
        "文": [ids[1]],
        "( NEAR": [],
        "\0": [],
    }.items():
        assert [g.id for g in history.list(wanted=Filter(text=query))] == expected, query
    history.star(ids[0])
    history.tag(ids[1], "blog")
    history.delete(ids[2])
    assert [g.id for g in history.list(wanted=Filter(starred=True, since="2020-01-01"))] == ids[:1]
    assert [g.id for g in history.list(wanted=Filter(tag="blog"))] == [ids[1]]
    assert [g.id for g in history.list(wanted=Filter(deleted=True))] == [ids[2]]
    assert history.tags() == {"blog": 1}


def test_export_import_prune_presets_and_owners(history: Store, tmp_path: Path) -> None:
    ana = history.of("ana")
    first = ana.add(RESULT, REQUEST, steps=[StoredStep(1, 1.0, "x")])
    ana.tag(ana.add(RESULT, REQUEST, parent_id=first), "blog")
    copy = Store(tmp_path / "copy.db")
    assert copy.take(history.export()) == Imported(2, 0, 0)
    assert list(copy.export()) == list(history.export())
    assert history.take(copy.export()) == Imported(0, 2, 0)
    assert history.of("ben").count() == 0
    ana.delete(first)
    assert ana.prune(deleted_only=True) == 1
    assert ana.list()[0].parent_id is None
    ana.save_preset("mine", "draft", {"gamma": 1})
    ana.save_preset("mine", "draft", {"gamma": 2})
    assert [p.settings for p in ana.presets("draft")] == [{"gamma": 2}]
    assert ana.delete_preset("mine", "draft")


def test_many_open_a_new_database_at_once(server: Server) -> None:
    first = Store(server.url)
    with first._connect(write=True) as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    first.close()
    errors: list[Exception] = []

    def use() -> None:
        store = Store(server.url)
        try:
            store.add(RESULT, REQUEST)
        except Exception as error:
            errors.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert first.count() == 4
    first.close()


def test_a_server_that_went_away_costs_a_line_and_is_found_again(
    server: Server, history: Store
) -> None:
    id = history.add(RESULT, REQUEST)
    server.stop()
    with pytest.raises(ElfError, match=r"^history postgresql://elf@") as error:
        history.add(RESULT, REQUEST)
    assert "\n" not in str(error.value)
    server.start()
    assert history.get(id).output == RESULT.text
