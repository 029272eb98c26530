"""What the history holds, free of any database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from editors.request import EditRequest


@dataclass(frozen=True)
class Generation:
    """One stored result. `request`, `settings`, `seed`, `sample_index`, `model_hash` and
    `backend` reproduce `output`; `seconds` is the time of the whole run it came from."""

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


@dataclass(frozen=True)
class StoredStep:
    """Text of a result after network step `i` (1-based), at time `t`."""

    i: int
    t: float
    text: str
