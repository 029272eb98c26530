"""Opens the history's database, brings its schema up to date, and says in one line what failed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.store_rows import shorten
from app.store_schema import SCHEMA
from elf_engine.errors import ElfError
from elf_engine.model_dir import home

_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_MIGRATING = 0x454C46  # PostgreSQL advisory lock, "ELF"


class Database:
    """The database at `target`: a path, a database URL, or None for the person's own
    (`default_target`). A string is a path when it ends in .db, .sqlite or .sqlite3 or contains a
    slash. Safe to use from several threads and processes at once.

    Making one touches nothing; the database is opened, created and migrated at first use, and
    tried again after a failure.
    """

    def __init__(self, target: str | Path | None, busy_seconds: float) -> None:
        target = default_target() if target is None else target
        self._path = None if "://" in str(target) else Path(target).expanduser()
        url = str(target) if self._path is None else f"sqlite:///{self._path}"
        named = isinstance(target, Path) or "/" in target or target.endswith(_SUFFIXES)
        try:
            if not named and os.sep not in str(target):
                raise ValueError
            self._url = sa.make_url(url)
        except (SQLAlchemyError, ValueError):
            raise ElfError(
                f"history: '{shorten(str(target))}' is no database URL or path; give "
                "postgresql://…, or a path with a slash or ending in .db"
            ) from None
        kind = self._url.get_backend_name()
        if kind not in ("sqlite", "postgresql"):
            raise ElfError(f"history: '{kind}' is no database it can use; give postgresql://…")
        self.sqlite = kind == "sqlite"
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None

    @property
    def where(self) -> str:
        """Where the history lies, with any password hidden."""
        return str(self._path or self._url.render_as_string(hide_password=True))

    @contextmanager
    def connect(self, write: bool = False) -> Iterator[sa.Connection]:
        """A connection in a transaction, its errors in one line."""
        try:
            with self.engine().execution_options(elf_write=write).begin() as connection:
                yield connection
        except ImportError as error:
            raise ElfError(f"history {self.where} needs the package '{error.name}'") from error
        except (SQLAlchemyError, OSError) as error:
            raise ElfError(self._explain(error)) from error

    def engine(self) -> sa.Engine:
        """The open engine; `connect` is what explains its errors."""
        with self._lock:
            if self._engine is None:
                self._engine = self._open()
            return self._engine

    def close(self) -> None:
        """Close the connections; the database may be used again."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = None

    def compact(self) -> None:
        """Give the space of removed results back, so that their texts are gone from the disk.
        PostgreSQL does so by itself."""
        if not self.sqlite:
            return
        with self.connect(write=True) as connection:
            connection.exec_driver_sql("INSERT INTO search (search) VALUES ('optimize')")
        try:
            with self.engine().connect() as plain:
                raw = plain.connection.driver_connection
                assert raw is not None
                raw.execute("VACUUM")
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except self.engine().dialect.loaded_dbapi.Error as error:
            raise ElfError(self._explain(error)) from error

    def _open(self) -> sa.Engine:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A history is private: readable by its owner alone from the first byte.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDONLY, 0o600))
        if self.sqlite:
            engine = sa.create_engine(self._url, connect_args={"timeout": self._busy_seconds})
        else:  # a server may have been started again since the last use
            engine = sa.create_engine(self._url, pool_pre_ping=True)
        if self.sqlite:
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
        return f"history {self.where} cannot be used: {shorten(text)}"


def default_target() -> str | Path:
    """ELF_DATABASE_URL, or history.db in `home()`."""
    return os.environ.get("ELF_DATABASE_URL") or home() / "history.db"


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
        if engine.dialect.name == "postgresql":
            # One at a time; SQLite's write lock does the same.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise ElfError(
                f"history was written by a newer ELF Studio ({shorten(str(error))}); "
                "update, or set ELF_HOME elsewhere"
            ) from error


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin_sqlite says
    # Where the index of three characters cannot help, and SQLite's own LIKE knows only ASCII.
    connection.create_function(
        "elf_has", 2, lambda text, part: part in text.casefold(), deterministic=True
    )
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that starts as a reader cannot wait for the write lock; say so at the start.
    write = connection.get_execution_options().get("elf_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
