"""The bundled model, for real: it is whole, small, and the same on both backends."""

from __future__ import annotations

import numpy as np
import pytest

from editors import run
from editors.request import EditRequest, EditResult, Progress
from elf_engine import model_dir
from elf_engine.config import SampleSpec
from elf_engine.layout import TASKS, Free, build_row
from elf_engine.pipeline import Engine

REQUESTS = {
    "draft": EditRequest("draft", "The old man", count=2, length=20),
    "infill": EditRequest("infill", "A [[2-6]] house on the [[1-3]].\r\n", count=2),
    "translate": EditRequest("translate", "Das Haus ist alt.", count=2),
    "summarise": EditRequest("summarise", "A game in which two players move stones.", count=2),
    "modernise": EditRequest("modernise", "And he said unto them, Go ye.", count=2),
}


@pytest.fixture(scope="module")
def engines():
    return [Engine.load("starter", backend=name) for name in ("jax", "torch")]


def test_it_is_complete_and_small():
    directory = model_dir.find("starter")
    assert sum(f.stat().st_size for f in directory.iterdir()) < 40e6
    config = model_dir.load(directory).config
    assert tuple(config.layout.tasks) == TASKS
    assert set(config.defaults) == set(TASKS)
    card = (directory / "MODEL_CARD.md").read_text("utf-8")
    assert card == (directory.parent / "MODEL_CARD.md").read_text("utf-8")


def test_a_32_step_sde_run_ends_on_the_same_latents_and_ids(engines):
    spec = SampleSpec(steps=32, sampler="sde", gamma=1.0, guidance=2.0, seed=1)
    ends = []
    for engine in engines:
        ids = engine.tokenizer.encode("The house")
        rows = [build_row(engine.config.layout, 1, "draft", [ids, Free(20)])] * 4
        *_, last = engine.sample(engine.batch(rows), spec, [0, 1, 2, 3])
        ends.append((engine.backend.to_numpy(last.state.z)[:4], last.ids()))
    np.testing.assert_allclose(ends[0][0], ends[1][0], atol=1e-3)
    np.testing.assert_array_equal(ends[0][1], ends[1][1])


@pytest.mark.parametrize("task", REQUESTS)
def test_every_task_gives_the_same_text_on_both_backends(engines, task):
    texts = []
    for engine in engines:
        events = list(run(engine, REQUESTS[task]))
        results = [event for event in events if isinstance(event, EditResult)]
        assert sum(isinstance(event, Progress) for event in events) > 0
        assert len(results) == 2
        texts.append([result.text for result in results])
    assert texts[0] == texts[1]
    assert all(text.strip() for text in texts[0])
    if task == "infill":
        assert all(t.startswith("A ") and t.endswith(".\r\n") for t in texts[0])
        assert all(" house on the " in t for t in texts[0])
    if task == "draft":
        assert all(t.startswith("The old man") for t in texts[0])
