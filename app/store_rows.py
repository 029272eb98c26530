"""Results as rows of the database and back, their ids, times and tags; free of SQL."""

from __future__ import annotations

import functools
import json
import platform
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from app.records import Generation
from editors.request import EditRequest, EditResult
from elf_engine.config import from_dict
from elf_engine.errors import ElfError

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
LONGEST_TAG = 64
_TIME_CHARS, _TAIL_CHARS = 9, 5
_JSON = ("request", "settings", "warnings", "versions")


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
        return "".join(ALPHABET[number >> 5 * i & 31] for i in reversed(range(size)))


new_id = _Ids().next


def now() -> str:
    """The time (UTC) as the history writes it, to the millisecond: it sorts as text."""
    return stamp(datetime.now(UTC))


def stamp(moment: datetime) -> str:
    """A moment as the history writes it; one without a zone is UTC."""
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


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


def fresh(
    result: EditResult, request: EditRequest, parent_id: str | None, owner: str
) -> Generation:
    """A result as it goes into the history, with a new id."""
    return Generation(
        id=new_id(),
        parent_id=parent_id,
        created_utc=now(),
        editor=result.editor,
        input=result.input,
        output=result.text,
        request=request,
        settings=result.settings,
        seed=result.seed,
        sample_index=result.index,
        model=result.model,
        model_hash=result.model_hash,
        backend=result.backend,
        seconds=result.seconds,
        warnings=result.warnings,
        versions=versions(),
        owner=owner,
    )


def to_row(g: Generation) -> dict[str, Any]:
    """Columns of `generations`; the tags are not among them."""
    row = {name: value for name, value in vars(g).items() if name != "tags"}
    row["input"], row["output"] = storable(g.input), storable(g.output)
    row["request"] = asdict(g.request)
    return {f"{k}_json" if k in _JSON else k: _dump(v) if k in _JSON else v for k, v in row.items()}


def to_generation(row: dict[str, Any], tags: Sequence[str] = ()) -> Generation:
    """A row and its tags as a result. Raises ElfError when the request is not one of today's."""
    values = dict(row)
    for name in _JSON:
        values[name] = json.loads(values.pop(f"{name}_json"))
    values["request"] = from_dict(EditRequest, values["request"], f"history {values['id']}")
    values["warnings"] = tuple(values["warnings"])
    return Generation(**values, tags=tuple(sorted(tags)))


def storable(text: str) -> str:
    """UTF-8 cannot carry a lone surrogate, which a broken client may send."""
    return text.encode("utf-8", "replace").decode("utf-8")


def clean_tag(tag: str) -> str:
    """A tag in its one spelling: small letters, single spaces. Raises ElfError for none."""
    found = storable(" ".join(tag.lower().split()))
    if not found or len(found) > LONGEST_TAG or "," in found or not found.isprintable():
        raise ElfError(
            f"tag '{shorten(tag)}' is none; give 1 to {LONGEST_TAG} characters without a comma"
        )
    return found


def shorten(text: str, most: int = 80) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _dump(value: Any) -> str:
    return storable(json.dumps(value, ensure_ascii=False))
