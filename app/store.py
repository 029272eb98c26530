"""The history: every finished result, with all that is needed to make it again.

SQLite through SQLAlchemy, or any database `ELF_DATABASE_URL` names. The schema is brought up to
date when the database is first used. Whatever goes wrong is an ElfError of one line, so a caller
can show the text and say that it was not kept.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.records import Generation, StoredStep
from editors.request import EditRequest, EditResult
from elf_engine.config import from_dict
from elf_engine.errors import ElfError
from elf_engine.model_dir import home

SCHEMA = "0001"
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_TIME_CHARS, _TAIL_CHARS = 9, 5

_meta = sa.MetaData()
_generations = sa.Table(
    "generations",
    _meta,
    *(sa.Column(name, sa.Text) for name in ("id", "parent_id", "created_utc", "editor")),
    *(sa.Column(name, sa.Text) for name in ("input", "output", "request_json", "settings_json")),
    sa.Column("seed", sa.BigInteger),
    sa.Column("sample_index", sa.Integer),
    *(sa.Column(name, sa.Text) for name in ("model", "model_hash", "backend")),
    sa.Column("seconds", sa.Float),
    *(sa.Column(name, sa.Text) for name in ("warnings_json", "versions_json")),
)
_steps = sa.Table(
    "steps",
    _meta,
    sa.Column("generation_id", sa.Text),
    sa.Column("i", sa.Integer),
    sa.Column("t", sa.Float),
    sa.Column("text", sa.Text),
)


class Store:
    """The history at `target`: a path, a database URL, or None for the person's own
    (`default_target`). Safe to use from several threads and processes at once.

    Making a Store touches nothing; the database is opened, created and migrated at first use,
    and tried again after a failure.
    """

    def __init__(self, target: str | Path | None = None, *, busy_seconds: float = 5.0) -> None:
        target = default_target() if target is None else target
        self._path = None if "://" in str(target) else Path(target).expanduser()
        url = str(target) if self._path is None else f"sqlite:///{self._path}"
        try:
            self._url = sa.make_url(url)
        except SQLAlchemyError:
            raise ElfError(f"history: '{_shorten(url)}' is no database URL or path") from None
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None

    @property
    def where(self) -> str:
        """Where the history lies, with any password hidden."""
        return str(self._path or self._url.render_as_string(hide_password=True))

    def add(
        self,
        result: EditResult,
        request: EditRequest,
        *,
        parent_id: str | None = None,
        steps: Sequence[StoredStep] = (),
    ) -> str:
        """Save one result and return its id, which sorts by time. On disk when this returns.

        Raises ElfError when the database is locked, read-only, full or otherwise unusable.
        """
        row = {
            "id": new_id(),
            "parent_id": parent_id,
            "created_utc": datetime.now(UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "editor": result.editor,
            "input": _storable(result.input),
            "output": _storable(result.text),
            "request_json": _dump(asdict(request)),
            "settings_json": _dump(result.settings),
            "seed": result.seed,
            "sample_index": result.index,
            "model": result.model,
            "model_hash": result.model_hash,
            "backend": result.backend,
            "seconds": result.seconds,
            "warnings_json": _dump(result.warnings),
            "versions_json": _dump(versions()),
        }
        with self._connect(write=True) as connection:
            connection.execute(_generations.insert(), row)
            if steps:
                rows = [
                    {"generation_id": row["id"], **asdict(s), "text": _storable(s.text)}
                    for s in steps
                ]
                connection.execute(_steps.insert(), rows)
        return str(row["id"])

    def get(self, id: str) -> Generation:
        """The result with this id, or with the only id that starts so. Raises ElfError."""
        prefix = id.strip().lower()
        if not prefix or set(prefix) - set(_ALPHABET):
            raise ElfError(
                f"history: '{_shorten(id)}' is no result id; `elf history list` shows them"
            )
        query = sa.select(_generations).where(_generations.c.id.startswith(prefix)).limit(2)
        with self._connect() as connection:
            rows = connection.execute(query).mappings().all()
        if not rows:
            raise ElfError(f"history: no result '{_shorten(id)}'; `elf history list` shows them")
        if len(rows) > 1:
            raise ElfError(f"history: several results start with '{prefix}'; give more of the id")
        return _generation(rows[0])

    def list(
        self, limit: int = 50, before: str | None = None, editor: str | None = None
    ) -> Sequence[Generation]:
        """Newest first; `before` continues after that id of an earlier page."""
        if limit < 1:
            raise ElfError(f"history: limit {limit} is below 1")
        query = sa.select(_generations).order_by(_generations.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(_generations.c.id < before)
        if editor is not None:
            query = query.where(_generations.c.editor == editor)
        with self._connect() as connection:
            return [_generation(row) for row in connection.execute(query).mappings()]

    def count(self, editor: str | None = None) -> int:
        """Number of results, of one editor or of all."""
        query = sa.select(sa.func.count()).select_from(_generations)
        if editor is not None:
            query = query.where(_generations.c.editor == editor)
        with self._connect() as connection:
            return int(connection.execute(query).scalar_one())

    def steps(self, id: str) -> Sequence[StoredStep]:
        """The steps kept for the result with this full id, in order; empty if none were."""
        query = sa.select(_steps.c.i, _steps.c.t, _steps.c.text).order_by(_steps.c.i)
        with self._connect() as connection:
            rows = connection.execute(query.where(_steps.c.generation_id == id))
            return [StoredStep(*row) for row in rows]

    def close(self) -> None:
        """Close the connections; the store may be used again."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = None

    @contextmanager
    def _connect(self, write: bool = False) -> Iterator[sa.Connection]:
        """A connection in a transaction, its errors in one line."""
        try:
            with self._lock:
                if self._engine is None:
                    self._engine = self._open()
            engine = self._engine.execution_options(elf_write=write)
            with engine.begin() as connection:
                yield connection
        except ImportError as error:
            raise ElfError(f"history {self.where} needs the package '{error.name}'") from error
        except (SQLAlchemyError, OSError) as error:
            raise ElfError(self._explain(error)) from error

    def _open(self) -> sa.Engine:
        sqlite = self._url.get_backend_name() == "sqlite"
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A history is private: readable by its owner alone from the first byte.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDONLY, 0o600))
        options = {"timeout": self._busy_seconds} if sqlite else {}
        engine = sa.create_engine(self._url, connect_args=options)
        if sqlite:
            sa.event.listen(engine, "connect", _prepare_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
        try:
            _migrate(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _explain(self, error: Exception) -> str:
        cause = error.orig if isinstance(error, DBAPIError) else error
        text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        for sign, advice in (
            ("locked", "is locked by another program; close that or try again"),
            ("readonly", "is read-only; make it writable or set ELF_HOME elsewhere"),
            ("disk is full", "has no room left; free some disk space or set ELF_HOME elsewhere"),
        ):
            if sign in text:
                return f"history {self.where} {advice}"
        return f"history {self.where} cannot be used: {_shorten(text)}"


def default_target() -> str:
    """ELF_DATABASE_URL, or history.db in `home()`."""
    return os.environ.get("ELF_DATABASE_URL") or str(home() / "history.db")


class _Ids:
    """Ids that sort by time, also within one millisecond of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> str:
        bits = 5 * _TAIL_CHARS
        with self._lock:
            fresh = (time.time_ns() // 1_000_000 << bits) | secrets.randbits(bits)
            # A clock put back must not put new results before old ones.
            self._last = max(fresh, self._last + 1)
            number = self._last
        size = _TIME_CHARS + _TAIL_CHARS
        return "".join(_ALPHABET[number >> 5 * i & 31] for i in reversed(range(size)))


new_id = _Ids().next


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what takes part in making a text. Found without importing any of it."""
    found = {"python": platform.python_version()}
    for name in ("elf-studio", "numpy", "torch", "jax", "jaxlib"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _migrate(engine: sa.Engine) -> None:
    """Bring the schema to SCHEMA, whole or not at all."""
    with engine.connect() as connection:
        if _revision(connection) == SCHEMA:
            return
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.connect().execution_options(elf_write=True) as connection, connection.begin():
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise ElfError(
                f"history was written by a newer ELF Studio ({_shorten(str(error))}); "
                "update, or set ELF_HOME elsewhere"
            ) from error


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin_sqlite says
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that starts as a reader cannot wait for the write lock; say so at the start.
    write = connection.get_execution_options().get("elf_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _generation(row: Any) -> Generation:
    values = dict(row)
    where = f"history {values['id']}"
    values["request"] = from_dict(EditRequest, json.loads(values.pop("request_json")), where)
    values["settings"] = json.loads(values.pop("settings_json"))
    values["warnings"] = tuple(json.loads(values.pop("warnings_json")))
    values["versions"] = json.loads(values.pop("versions_json"))
    return Generation(**values)


def _dump(value: Any) -> str:
    return _storable(json.dumps(value, ensure_ascii=False))


def _storable(text: str) -> str:
    """UTF-8 cannot carry a lone surrogate, which a broken client may send."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _shorten(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
