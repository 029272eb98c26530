"""collate: ragged examples to padded rows and masks (NumPy, the same for every backend)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elf_engine.layout import Batch
from elf_engine.published.batching import Example, collate
from tests.golden.archive import Archive, BadFileError, read_json
from tests.golden.compare import EQUAL, Row, compare

BACKEND = "numpy"


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Ids and the three masks of every case."""
    inputs = read_json(inputs_path(archive.path))
    for case in archive.cases.values():
        batch = batch_of(archive.path, case.name, inputs)
        for name, found in (
            ("input_ids", batch.ids),
            ("encoder_attention_mask", batch.visible),
            ("attention_mask", batch.valid),
            ("cond_seq_mask", batch.known),
        ):
            yield compare((case.name, name, BACKEND), found, case[name], EQUAL)


def inputs_path(path: Path) -> Path:
    """collate.npz -> collate_inputs.json."""
    return path.with_name(f"{path.stem}_inputs.json")


def batch_of(path: Path, name: str, inputs: Any) -> Batch:
    """The batch of one stored case."""
    try:
        case = inputs[name]
        limits = case["kwargs"]
        examples = [
            Example(e["input_ids"], e.get("condition_input_ids", ())) for e in case["examples"]
        ]
        length, pad = int(limits["max_seq_length"]), int(limits["pad_token_id"])
        return collate(examples, length, pad, limits.get("max_input_seq_length"))
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFileError(f"{inputs_path(path)}: case {name} is missing or malformed") from error
