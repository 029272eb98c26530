"""What is looked for, as SQL."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.records import Filter
from app.store_rows import clean_tag, shorten, stamp, storable
from app.store_schema import generations, search, search_rows, tags
from elf_engine.errors import ElfError

_TERM = re.compile(r'"([^"]*)"?|(\S+)')
_INDEXED = 3  # characters that one entry of the search index holds
MOST_TERMS = 64

Condition = sa.ColumnElement[bool]


def conditions(wanted: Filter, owner: str | None, sqlite: bool) -> list[Condition]:
    """Conditions on `generations`, all to hold. Raises ElfError for a date that is none."""
    g = generations.c
    found = owned(owner)
    for name in ("editor", "model"):
        if value := getattr(wanted, name):
            found.append(g[name] == value)
    found += [g[name].is_(True) for name in ("starred", "preferred") if getattr(wanted, name)]
    if wanted.deleted is not None:
        found.append(g.deleted_utc.is_not(None) if wanted.deleted else g.deleted_utc.is_(None))
    if wanted.tag:
        query = sa.select(tags.c.generation_id).where(tags.c.tag == clean_tag(wanted.tag))
        found.append(g.id.in_(query))
    if wanted.since:
        found.append(g.created_utc >= _moment(wanted.since))
    if wanted.until:
        found.append(g.created_utc < _moment(wanted.until, end=True))
    words = terms(wanted.text)
    return found + (_sqlite_search(words) if sqlite else [_has(word) for word in words])


def owned(owner: str | None) -> list[Condition]:
    """Results of one owner, or of all when it is None."""
    return [] if owner is None else [generations.c.owner == owner]


def terms(text: str) -> list[str]:
    """What a search asks for: words, and phrases in quotation marks. Any text is a search."""
    found = []
    for match in _TERM.finditer(storable(text)):
        phrase, word = match.groups()
        # A term matches inside words too, so the star that asks for more characters adds nothing.
        term = phrase if phrase is not None else (word.rstrip("*") or word)
        found += [term] if term.strip() else []
    if len(found) > MOST_TERMS:
        raise ElfError(f"search: {len(found)} words; give at most {MOST_TERMS}, or fewer in quotes")
    return list(dict.fromkeys(found))


def _sqlite_search(words: list[str]) -> list[Condition]:
    g = generations.c
    indexed = [word for word in words if len(word) >= _INDEXED and "\0" not in word]
    found: list[Condition] = []
    if indexed:
        # As strings of the query language its words, brackets and stars mean themselves.
        query = " ".join('"' + word.replace('"', '""') + '"' for word in indexed)
        hits = sa.select(search_rows.c.generation_id).where(
            search_rows.c.n.in_(
                sa.select(search.c.rowid).where(sa.literal_column("search").op("MATCH")(query))
            )
        )
        found.append(g.id.in_(hits))
    for word in words:
        if word not in indexed:
            part = word.casefold()
            has: Any = sa.func.elf_has
            found.append(sa.or_(has(g.input, part) == 1, has(g.output, part) == 1))
    return found


def _has(word: str) -> Condition:
    word = word.replace("\0", "\ufffd")
    g = generations.c
    return sa.or_(*(c.icontains(word, autoescape=True) for c in (g.input, g.output)))


def _moment(text: str, end: bool = False) -> str:
    """The moment a date or time means; with `end`, the one after it."""
    text = text.strip()
    try:
        if len(text) <= len("2026-11-30"):
            day = date.fromisoformat(text) + timedelta(days=end)
            return day.isoformat()
        return stamp(datetime.fromisoformat(text) + timedelta(milliseconds=end))
    except (ValueError, OverflowError):
        raise ElfError(
            f"'{shorten(text)}' is no date; give one such as 2026-11-30 or 2026-11-30T18:00"
        ) from None
