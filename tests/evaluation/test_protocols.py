"""The published protocols, end to end on tiny checkpoints in the published formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from app.evaluation.protocols import PROTOCOLS
from elf_engine.config import SampleSpec
from elf_engine.published.catalogue import CATALOGUE
from elf_engine.published.convert import Options, convert
from tests.checkpoints import makers
from tests.evaluation.common import read_jsonl, write_jsonl

Command = Callable[..., Result]

# protocol -> checkpoint format, task of the catalogue
CASES = {
    "owt-32-sde": ("orbax", "owt"),
    "owt-64-sde": ("msgpack", "owt"),
    "few-step": ("torch", "owt"),
    "de-en": ("msgpack", "de-en"),
    "xsum": ("torch", "xsum"),
}
ROWS = [{"id": k, "input": f"w{k + 3} w4 w5", "output": "w3 w4"} for k in range(2)]


def _checkpoint(folder: Path, form: str) -> Path:
    weights = makers.network()
    state = makers.train_state(weights, weights)
    if form == "torch":
        return makers.write_torch(folder / "checkpoint_7", weights, weights)
    write = makers.write_orbax if form == "orbax" else makers.write_msgpack
    return write(folder / "checkpoint_7", state)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_one_command_samples_as_published(name: str, elf_eval: Command, tmp_path: Path) -> None:
    form, task = CASES[name]
    preset, tokenizer = PROTOCOLS[name], makers.write_tokenizer(tmp_path / "words")
    encoder = makers.write_pickle(tmp_path / "t5.pkl", makers.encoder())
    options = Options(
        name="own", task=task, max_length=32, max_source=16, encoder=encoder, tokenizer=tokenizer
    )
    model = convert(_checkpoint(tmp_path, form), tmp_path / "model", options)
    out = tmp_path / ("folder" if preset.grid else "out.jsonl")
    more: tuple[Any, ...] = ("--model", model, "-o", out, "-n", 2, "--backend", "torch")
    if preset.task != "unconditional":
        more += ("--inputs", write_jsonl(tmp_path / "in.jsonl", ROWS))
    made = elf_eval("generate", "--protocol", name, *more)
    assert made.exit_code == 0, made.output
    files = sorted(out.iterdir()) if preset.grid else [out]
    assert len(files) == len(preset.grid.get("steps", (1,)))
    knobs = asdict(SampleSpec())
    for file in files:
        rows = read_jsonl(file)
        assert [row["id"] for row in rows] == ["0", "1"]
        for row in rows:
            expected = {k: v for k, v in preset.settings.items() if k in knobs}
            assert {k: row["settings"][k] for k in expected} == expected
            assert not row.get("error")
    metrics = "bleu,rouge" if preset.task != "unconditional" else "entropy"
    scored = elf_eval("score", "-g", files[0], "--metrics", metrics, "--tokens", model, "--json")
    assert json.loads(scored.stdout)["samples"] == 2
    if preset.task == "unconditional":
        # The whole row is written, as published.
        assert row["settings"]["length"] == -1


@pytest.mark.parametrize("name", PROTOCOLS)
def test_presets_are_the_catalogues_settings(name: str) -> None:
    """ELF.md, "Sampling": written twice in the project, once a model and once a protocol."""
    preset = PROTOCOLS[name]
    editor = "draft" if preset.task == "unconditional" else preset.task
    known = asdict(CATALOGUE[preset.model].defaults()[editor])
    known = {k: v for k, v in known.items() if k in preset.settings}
    wanted = {k: v for k, v in preset.settings.items() if k in known}
    assert wanted == known
    assert {*wanted} >= {"sampler", "guidance", "condition_guidance", "grid", "gamma"}
