"""Makes a result of the history again and compares: the same text, or word by word what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.records import Generation
from app.store_rows import shorten, versions
from editors.changes import word_diff
from editors.request import EditRequest
from elf_engine.config import SampleSpec, from_dict
from elf_engine.errors import ElfError


@dataclass(frozen=True)
class Verdict:
    """`identical`, or the two texts in one (`editors.word_diff`) and the versions that changed
    since."""

    identical: bool
    diff: str = ""
    changed: str = ""


def request_again(found: Generation) -> EditRequest:
    """The request that makes this one result again. Raises ElfError when its settings are not
    ones of today's."""
    names = {f.name for f in dataclasses.fields(SampleSpec)}
    known = {name: value for name, value in found.settings.items() if name in names}
    spec = from_dict(SampleSpec, known, f"history {found.id}: settings")
    return replace(
        found.request,
        settings=replace(spec, seed=found.seed),
        first=found.sample_index,
        count=1,
        distinct=False,
        rank="sample",
        texts_every_step=False,
    )


def precision(found: Generation) -> str:
    """The precision the weights had: "float32" unless the result says otherwise."""
    return str(found.settings.get("dtype", "float32"))


def check_model(found: Generation, model_hash: str) -> None:
    """Raise ElfError unless these are the weights that made the result."""
    if model_hash != found.model_hash:
        raise ElfError(
            f"'{shorten(found.model)}' is not the model that made {found.id}: its hash is "
            f"{model_hash[:12]}…, not {found.model_hash[:12]}…"
        )


def compare(found: Generation, text: str) -> Verdict:
    """Compare the text made again with the stored one, character by character."""
    if text == found.output:
        return Verdict(True)
    now = versions()
    names = sorted({*now, *found.versions})
    changed = [
        f"{name} {found.versions.get(name, 'none')} then, {now.get(name, 'none')} now"
        for name in names
        if found.versions.get(name) != now.get(name)
    ]
    return Verdict(False, word_diff(found.output, text), "; ".join(changed))


def installed_as(model: str, names: Sequence[str], name_of: Callable[[str], Any]) -> str | None:
    """Which of the models in `names` results called `model` come from; `name_of` reads the name in
    a model's own configuration. None when there is none."""
    if model in names:
        return model
    for name in names:
        try:
            if name_of(name) == model:
                return name
        except ElfError:  # a damaged model is not the one sought
            continue
    return None
