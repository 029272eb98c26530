"""What the history holds, free of any database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from editors.request import EditRequest


@dataclass(frozen=True)
class Generation:
    """One stored result. `request`, `settings`, `seed`, `sample_index`, `model_hash` and
    `backend` reproduce `output`; `seconds` is the time of the whole run it came from.

    parent_id    the result this one was edited from
    owner        account that made it; "" where there are no accounts
    preferred    chosen among others in a comparison
    deleted_utc  when it was deleted, which can be undone until it is pruned
    """

    id: str
    parent_id: str | None
    created_utc: str
    editor: str
    input: str
    output: str
    request: EditRequest
    settings: dict[str, Any]
    seed: int
    sample_index: int
    model: str
    model_hash: str
    backend: str
    seconds: float
    warnings: tuple[str, ...]
    versions: dict[str, str]
    owner: str = ""
    starred: bool = False
    preferred: bool = False
    deleted_utc: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredStep:
    """Text of a result after network step `i` (1-based), at time `t`."""

    i: int
    t: float
    text: str


@dataclass(frozen=True)
class Preset:
    """Settings of an editor, saved by a name of the person's own."""

    name: str
    editor: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Filter:
    """Which results; every field that is set must hold.

    text     words anywhere in the input or the output, in any case: each must be there; "in
             quotation marks" they must follow each other, `begin*` says that more may follow
    since    date "2026-11-30" or time (UTC), included; `until` likewise, a date with its whole day
    deleted  the deleted ones instead of the others; None for both
    """

    text: str = ""
    editor: str = ""
    model: str = ""
    tag: str = ""
    since: str = ""
    until: str = ""
    starred: bool = False
    preferred: bool = False
    deleted: bool | None = False
