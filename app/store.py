"""The history: every finished result, with all that is needed to make it again.

SQLite through SQLAlchemy, or PostgreSQL where `ELF_DATABASE_URL` says so. The schema is brought up
to date when the database is first used. Whatever goes wrong is an ElfError of one line, so a caller
can show the text and say that it was not kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from app import store_rows
from app.records import Filter, Generation, Preset, StoredStep
from app.store_database import Database
from app.store_query import Condition, conditions, owned
from app.store_rows import ALPHABET, clean_tag, shorten, storable, to_generation, to_row
from app.store_schema import generations, presets, steps, tags
from editors.request import EditRequest, EditResult
from elf_engine.errors import ElfError

Conditions: TypeAlias = list[Condition]

_PAGE = 200
_LONGEST_NAME = 64
_MOST_ANCESTORS = 1000


@dataclass(frozen=True)
class Imported:
    """What an import did: results added, already there, and added without the one they were
    edited from, since that is in neither place."""

    added: int
    known: int
    unlinked: int


class Store:
    """The history at `target`: a path, a database URL, or None for the person's own (see
    `Database`). Making one touches nothing. Safe to use from several threads and processes.

    Every method raises ElfError when the database is locked, read-only, full or unusable.
    """

    def __init__(self, target: str | Path | None = None, *, busy_seconds: float = 5.0) -> None:
        self._database = Database(target, busy_seconds)
        self.owner: str | None = None

    def of(self, owner: str | None) -> Store:
        """The same history as one account sees it: what it adds belongs to it, and it finds
        nothing else. "" is the owner where there are no accounts; None sees and may do all."""
        seen = object.__new__(Store)
        seen._database, seen.owner = self._database, owner
        return seen

    @property
    def where(self) -> str:
        """Where the history lies, with any password hidden."""
        return self._database.where

    def close(self) -> None:
        """Close the connections; the store may be used again."""
        self._database.close()

    # --- results ------------------------------------------------------------------------------

    def add(
        self,
        result: EditResult,
        request: EditRequest,
        *,
        parent_id: str | None = None,
        steps: Sequence[StoredStep] = (),
        owner: str | None = None,
    ) -> str:
        """Save one result and return its id, which sorts by time. On disk when this returns."""
        mine = (self.owner or "") if owner is None else owner
        made = store_rows.fresh(result, request, parent_id, mine)
        with self._connect(write=True) as connection:
            connection.execute(generations.insert(), self._row(made))
            self._add_steps(connection, made.id, steps)
        return made.id

    def get(self, id: str) -> Generation:
        """The result with this id, or with the only id that starts so; deleted ones too.
        Raises ElfError."""
        prefix = id.strip().lower()
        if not prefix or set(prefix) - set(ALPHABET):
            raise ElfError(
                f"history: '{shorten(id)}' is no result id; `elf history list` shows them"
            )
        starts = generations.c.id.startswith(prefix)
        found = self._select([starts, *owned(self.owner)], limit=2)
        exact = [g for g in found if g.id == prefix]
        if not found:
            raise ElfError(f"history: no result '{shorten(id)}'; `elf history list` shows them")
        if len(found) > 1 and not exact:
            raise ElfError(f"history: several results start with '{prefix}'; give more of the id")
        return (exact or found)[0]

    def list(
        self,
        limit: int = 50,
        before: str | None = None,
        editor: str | None = None,
        wanted: Filter | None = None,
    ) -> Sequence[Generation]:
        """Newest first; `before` continues after that id of an earlier page. Raises ElfError for
        a filter that says nothing, such as a date that is none."""
        if limit < 1:
            raise ElfError(f"history: limit {limit} is below 1")
        where = self._where(wanted, editor)
        if before is not None:
            where.append(generations.c.id < before)
        return self._select(where, limit)

    def count(self, editor: str | None = None, wanted: Filter | None = None) -> int:
        """Number of results, of one editor or of all."""
        query = sa.select(sa.func.count()).select_from(generations)
        with self._connect() as connection:
            where = self._where(wanted, editor)
            return int(connection.execute(query.where(*where)).scalar_one())

    def steps(self, id: str) -> Sequence[StoredStep]:
        """The steps kept for the result with this full id, in order; empty if none were."""
        query = sa.select(steps.c.i, steps.c.t, steps.c.text).order_by(steps.c.i)
        mine = sa.select(generations.c.id).where(generations.c.id == id, *owned(self.owner))
        with self._connect() as connection:
            rows = connection.execute(query.where(steps.c.generation_id.in_(mine)))
            return [StoredStep(*row) for row in rows]

    def ancestors(self, id: str) -> Sequence[Generation]:
        """What the result with this full id was edited from, and what that was, first one first."""
        line: list[Generation] = []
        above = self.get(id).parent_id
        while above is not None and len(line) < _MOST_ANCESTORS:
            found = self._select([generations.c.id == above, *owned(self.owner)], 1)
            if not found or any(g.id == above for g in line):
                break
            line.append(found[0])
            above = found[0].parent_id
        return line[::-1]

    def children(self, id: str) -> Sequence[Generation]:
        """What was edited from the result with this full id, newest first."""
        return self._select([generations.c.parent_id == id, *self._where(None)], _PAGE)

    def models(self) -> Sequence[str]:
        """Names of the models that results come from."""
        query = sa.select(generations.c.model).where(*owned(self.owner)).distinct()
        with self._connect() as connection:
            return sorted(connection.execute(query).scalars())

    # --- marks --------------------------------------------------------------------------------

    def star(self, id: str, on: bool = True) -> None:
        """Star the result with this full id, or take the star off."""
        self._update([id], starred=on)

    def prefer(self, id: str, on: bool = True) -> None:
        """Mark the result with this full id as the preferred one of a comparison, or unmark it."""
        self._update([id], preferred=on)

    def delete(self, *ids: str) -> int:
        """Put the results with these full ids aside until `undelete` or `prune`; how many."""
        return self._update(ids, generations.c.deleted_utc.is_(None), deleted_utc=store_rows.now())

    def undelete(self, *ids: str) -> int:
        """Take the deletion of these results back; how many were deleted."""
        return self._update(ids, generations.c.deleted_utc.is_not(None), deleted_utc=None)

    def tag(self, id: str, *names: str) -> None:
        """Give the result with this full id tags. Raises ElfError for one that is none."""
        self._tag(id, add=[clean_tag(name) for name in names])

    def untag(self, id: str, *names: str) -> None:
        """Take these tags off the result with this full id."""
        self._tag(id, remove=[clean_tag(name) for name in names])

    def set_tags(self, id: str, *names: str) -> None:
        """Give the result with this full id these tags and no others."""
        wanted = [clean_tag(name) for name in names]
        self._tag(id, add=wanted, remove=[*{*self.get(id).tags} - {*wanted}])

    def tags(self) -> dict[str, int]:
        """Every tag in use and the number of results that carry it."""
        query = (
            sa.select(tags.c.tag, sa.func.count())
            .join(generations, generations.c.id == tags.c.generation_id)
            .where(*self._where(None))
            .group_by(tags.c.tag)
            .order_by(tags.c.tag)
        )
        with self._connect() as connection:
            return {name: int(number) for name, number in connection.execute(query)}

    # --- all at once --------------------------------------------------------------------------

    def export(
        self, wanted: Filter | None = None
    ) -> Iterator[tuple[Generation, Sequence[StoredStep]]]:
        """Every result, oldest first, with its steps. New results do not disturb it."""
        after = ""
        while True:
            where = [*self._where(wanted), generations.c.id > after]
            page = self._select(where, _PAGE, oldest_first=True)
            for g in page:
                yield g, self.steps(g.id)
            if len(page) < _PAGE:
                return
            after = page[-1].id

    def take(self, found: Iterable[tuple[Generation, Sequence[StoredStep]]]) -> Imported:
        """Add results that were exported, ids and all: every one, or none when this raises. Those
        that are there already stay as they are. An account takes them as its own."""
        added: list[tuple[str, str | None]] = []
        known = 0
        with self._connect(write=True) as connection:
            has = sa.select(generations.c.id)
            for g, trace in found:
                if connection.execute(has.where(generations.c.id == g.id)).first():
                    known += 1
                    continue
                mine = g if self.owner is None else replace(g, owner=self.owner)
                # Parents may come later; the links are made when all are there.
                connection.execute(generations.insert(), self._row(mine) | {"parent_id": None})
                self._add_steps(connection, g.id, trace)
                if g.tags:
                    names = [{"generation_id": g.id, "tag": tag} for tag in g.tags]
                    connection.execute(tags.insert(), names)
                added.append((g.id, g.parent_id))
            unlinked = 0
            for id, parent in added:
                if parent is None:
                    continue
                there = sa.exists(has.where(generations.c.id == parent, *owned(self.owner)))
                link = generations.update().where(generations.c.id == id, there)
                unlinked += not connection.execute(link.values(parent_id=parent)).rowcount
        return Imported(len(added), known, unlinked)

    def prune(
        self,
        older_than: timedelta | None = None,
        *,
        deleted_only: bool = False,
        keep_starred: bool = True,
        dry_run: bool = False,
    ) -> int:
        """Remove results for good: those made, or with `deleted_only` deleted, before the time that
        long ago. Returns how many; with `dry_run` none goes. Raises ElfError for no condition."""
        if older_than is None and not deleted_only:
            raise ElfError("history: nothing says what to remove; give an age, or the deleted ones")
        g = generations.c
        where = owned(self.owner)
        since = g.deleted_utc if deleted_only else g.created_utc
        if older_than is not None:
            where.append(since < store_rows.stamp(_ago(older_than)))
        where += [g.deleted_utc.is_not(None)] if deleted_only else []
        where += [g.starred.is_(False)] if keep_starred else []
        gone = sa.select(g.id).where(*where)
        with self._connect(write=not dry_run) as connection:
            count = sa.select(sa.func.count()).select_from(gone.subquery())
            number = int(connection.execute(count).scalar_one())
            if dry_run or not number:
                return number
            unlink = generations.update().where(g.parent_id.in_(gone)).values(parent_id=None)
            connection.execute(unlink)
            connection.execute(generations.delete().where(*where))
        self._database.compact()
        return number

    # --- presets ------------------------------------------------------------------------------

    def save_preset(self, name: str, editor: str, settings: dict[str, Any]) -> None:
        """Keep settings of an editor under a name; an earlier one of that name is replaced.
        Raises ElfError for a name that is empty or too long."""
        key = self._preset_key(name, editor)
        row = key | {"settings_json": storable(json.dumps(settings, ensure_ascii=False))}
        with self._connect(write=True) as connection:
            connection.execute(presets.delete().where(*_equal(key)))
            connection.execute(presets.insert(), row)

    def presets(self, editor: str | None = None) -> Sequence[Preset]:
        """The presets, of one editor or of all, by name."""
        p = presets.c
        query = sa.select(p.name, p.editor, p.settings_json).where(p.owner == (self.owner or ""))
        query = query if editor is None else query.where(p.editor == editor)
        with self._connect() as connection:
            rows = connection.execute(query.order_by(p.name, p.editor)).all()
        return [Preset(name, kind, json.loads(settings)) for name, kind, settings in rows]

    def delete_preset(self, name: str, editor: str) -> bool:
        """Remove a preset; False when there was none."""
        gone = presets.delete().where(*_equal(self._preset_key(name, editor)))
        with self._connect(write=True) as connection:
            return connection.execute(gone).rowcount > 0

    def _preset_key(self, name: str, editor: str) -> dict[str, str]:
        name = storable(" ".join(name.split()))
        if not name or len(name) > _LONGEST_NAME:
            raise ElfError(
                f"preset '{shorten(name)}' needs a name of 1 to {_LONGEST_NAME} characters"
            )
        return {"owner": self.owner or "", "editor": editor, "name": name}

    # --- inside -------------------------------------------------------------------------------

    def _connect(self, write: bool = False) -> AbstractContextManager[sa.Connection]:
        return self._database.connect(write)

    def _where(self, wanted: Filter | None, editor: str | None = None) -> Conditions:
        wanted = wanted or Filter()
        wanted = wanted if editor is None else replace(wanted, editor=editor)
        return conditions(wanted, self.owner, self._database.sqlite)

    def _select(
        self, where: Sequence[Condition], limit: int, oldest_first: bool = False
    ) -> Sequence[Generation]:
        g = generations.c
        order = g.id.asc() if oldest_first else g.id.desc()
        query = sa.select(generations).where(*where).order_by(order).limit(min(limit, sys.maxsize))
        with self._connect() as connection:
            rows = connection.execute(query).mappings().all()
            marked = sa.select(tags).where(tags.c.generation_id.in_([row["id"] for row in rows]))
            named: dict[str, list[str]] = {}
            for id, tag in connection.execute(marked):
                named.setdefault(id, []).append(tag)
        return [to_generation(dict(row), named.get(row["id"], ())) for row in rows]

    def _update(self, ids: Sequence[str], *where: Condition, **values: Any) -> int:
        """Raises ElfError when one id, of several or one, is not there."""
        with self._connect(write=True) as connection:
            mine = [generations.c.id.in_(ids), *owned(self.owner)]
            there = set(connection.execute(sa.select(generations.c.id).where(*mine)).scalars())
            for id in ids:
                if id not in there:
                    raise ElfError(f"history: no result '{shorten(id)}'")
            changed = connection.execute(generations.update().where(*mine, *where).values(values))
            return changed.rowcount

    def _tag(self, id: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        t = tags.c
        fresh = {*add} - {*self.get(id).tags}
        with self._connect(write=True) as connection:
            connection.execute(tags.delete().where(t.generation_id == id, t.tag.in_(remove)))
            if fresh:
                rows = [{"generation_id": id, "tag": tag} for tag in sorted(fresh)]
                connection.execute(tags.insert(), rows)

    def _row(self, made: Generation) -> dict[str, Any]:
        row = to_row(made)
        return row if self._database.sqlite else {k: _no_nul(v) for k, v in row.items()}

    def _add_steps(self, connection: sa.Connection, id: str, trace: Sequence[StoredStep]) -> None:
        rows = [{"generation_id": id, **asdict(s), "text": storable(s.text)} for s in trace]
        if not self._database.sqlite:
            rows = [{k: _no_nul(v) for k, v in row.items()} for row in rows]
        if rows:
            connection.execute(steps.insert(), rows)


def _no_nul(value: Any) -> Any:
    """PostgreSQL keeps every character but this one; it becomes the replacement character."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _ago(age: timedelta) -> datetime:
    try:
        return datetime.now(UTC) - age
    except OverflowError:
        raise ElfError(f"history: {age.days} days is before all time") from None


def _equal(key: dict[str, str]) -> list[Condition]:
    return [presets.c[name] == value for name, value in key.items()]
