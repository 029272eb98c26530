"""Sample texts of a run under way, written by the engine that writers use."""

from __future__ import annotations

from typing import Any

from jax.sharding import Mesh

from elf_engine import backends
from elf_engine.config import SampleSpec
from elf_engine.layout import Batch
from elf_engine.pipeline import MAX_ROWS, Engine
from elf_engine.types import Weights
from training.config import TrainConfig, open_tokenizer
from training.export import host_weights, model_config
from training.mesh import first_process
from training.sources import open_source


def show(config: TrainConfig, average: Any, encoder: Weights, mesh: Mesh | None = None) -> str:
    """Rows of the validation split with their free text written anew, as Markdown; "" on all
    processes but the first. The averaged weights are gathered, so every process must call it."""
    network, encoder = host_weights(average, encoder, mesh)
    if not first_process():
        return ""
    model = model_config(config)
    device = backends.load("jax")(model, network, encoder, "float32")
    engine = Engine(model, device, open_tokenizer(config), model_hash="")
    drawn = open_source(config, "validation").draw(0)
    count = min(config.watch.samples, len(drawn.tasks), MAX_ROWS)
    whole = drawn.batch
    batch = Batch(whole.ids[:count], whole.known[:count], whole.valid[:count])
    specs = [_spec(config, task) for task in drawn.tasks[:count]]
    *_, last = engine.sample(batch, specs, list(range(count)))
    written, blocks = last.ids(), []
    for i, task in enumerate(drawn.tasks[:count]):
        known, free = batch.known[i], batch.valid[i] & ~batch.known[i]
        parts = (("given", batch.ids[i][known]), ("written", written[i][free]))
        texts = [f"- {name}: {engine.tokenizer.decode(ids.tolist())!r}" for name, ids in parts]
        truth = engine.tokenizer.decode(batch.ids[i][free].tolist())
        blocks.append("\n".join([f"**{task}**", *texts, f"- text: {truth!r}"]))
    return "\n\n".join(blocks) + "\n"


def _spec(config: TrainConfig, task: str) -> SampleSpec:
    """The task's own settings, all with the steps of the config, so that they share a batch."""
    own = config.defaults.get(task, SampleSpec())
    return SampleSpec(
        steps=config.watch.sample_steps,
        sampler=own.sampler,
        gamma=own.gamma,
        guidance=own.guidance,
        condition_guidance=own.condition_guidance,
        grid=own.grid,
    )
