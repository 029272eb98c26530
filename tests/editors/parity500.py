"""`python -m tests.editors.parity500`: do JAX and torch give the same text?

Runs varied requests of every editor on both backends and prints the share of equal texts and the
largest difference between final latents. Exits 1 below 99 % or past the tolerance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from editors import EditRequest, edit, settings, task_of
from elf_engine.config import SampleSpec
from elf_engine.pipeline import Engine

LATENTS, SHARE = 1e-3, 0.99

ENGLISH = (
    "The old house stood on the hill. Nobody had lived there for years, and the garden was wild. "
    "In the evening a light was seen in the window. She opened the letter and read it twice. "
    "There was no reason to stay, but he did not want to leave. The rain had stopped at last."
)
GERMAN = (
    "Das alte Haus stand auf dem Hügel. Niemand wusste, wer dort wohnte. Am Abend sah man ein "
    "Licht im Fenster. Wenn der Wind kam, schlug eine Tür. Er las den Brief zweimal. Morgen "
    "fahren wir mit dem Zug nach Berlin. Es hatte endlich aufgehört zu regnen."
)
ARCHAIC = (
    "Thou art come at last. Wherefore dost thou weep? He hath seen the king, and knoweth his mind. "
    "I pray thee, tell me what thou seest."
)


class Watched:
    """An engine that remembers the final latents of its runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.latents: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def sample(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """`Engine.sample`, watched."""
        step = None
        for step in self._engine.sample(*args, **kwargs):
            yield step
        if step is not None:
            self.latents.append(self._engine.backend.to_numpy(step.state.z)[: step.rows])


def requests(count: int, steps: int, engine: Any) -> Iterator[EditRequest]:
    """The same requests in every run of this program; settings vary around the model's own."""
    draw = random.Random(1)
    tasks = engine.config.layout.tasks
    editors = ["draft", "infill", "rewrite", "translate", "summarise", "modernise"]
    able = [editor for editor in editors if task_of(editor) in tasks]
    for number in range(count):
        editor = able[number % len(able)]
        text = {"translate": GERMAN, "modernise": ARCHAIC}.get(editor, ENGLISH)
        sentences = [part.strip(" .") + "." for part in text.split(". ")]
        start = draw.randrange(len(sentences))
        source = " ".join(sentences[start : start + draw.randint(1, 2)])
        words = source.split()
        rest: dict[str, Any] = {}
        if editor == "draft":
            source = " ".join(words[: draw.randint(0, len(words))])
            rest["length"] = draw.randint(4, 48)
        if editor == "infill":
            at = draw.randrange(len(words))
            words[at : at + draw.randint(0, 3)] = [draw.choice(["[[]]", "[[3]]", "[[2-6]]"])]
            source = " ".join(words)
        if editor == "rewrite":
            rest["strength"] = draw.choice([0.2, 0.5, 0.8, 1.0])
        spec = settings(
            engine,
            editor,
            steps=steps or draw.choice([8, 16, 32]),
            sampler=draw.choice(["ode", "sde"]),
            gamma=draw.choice([0.5, 1.0, 1.5]),
            guidance=draw.choice([0.5, 1.0, 2.0, 3.0]),
            condition_guidance=draw.choice([1.0, 1.0, 2.0]),
            grid=draw.choice(["uniform", "quantile", "logit-normal"]),
            seed=draw.randrange(2**63),
        )
        assert isinstance(spec, SampleSpec)
        yield EditRequest(editor, source, settings=spec, **rest)


@click.command()
@click.option("--model", default="starter", show_default=True)
@click.option("--count", default=500, show_default=True)
@click.option("--steps", default=0, help="Steps of every request; 0 varies them.")
def main(model: str, count: int, steps: int) -> None:
    """Compare the two backends."""
    one, two = (Watched(Engine.load(model, backend=name)) for name in ("jax", "torch"))
    equal, worst, differing = 0, 0.0, 0
    for number, request in enumerate(requests(count, steps, one), 1):
        texts = [[result.text for result in edit(engine, request)] for engine in (one, two)]
        pairs = zip(one.latents, two.latents, strict=True)
        gap = max(float(np.abs(a - b).max()) for a, b in pairs)
        one.latents.clear()
        two.latents.clear()
        worst = max(worst, gap)
        differing += gap > LATENTS
        equal += texts[0] == texts[1]
        if texts[0] != texts[1] or gap > LATENTS:
            click.echo(f"{number} {request.editor}: latents differ by {gap:.1e}\n  {request}")
            for name, text in zip(("jax", "torch"), texts, strict=True):
                click.echo(f"  {name:<6}{text}")
    click.echo(f"{equal} of {count} texts equal ({100 * equal / count:.1f} %)")
    click.echo(f"largest latent difference {worst:.2e}; past {LATENTS:g}: {differing}")
    raise SystemExit(equal < SHARE * count or differing > 0)


if __name__ == "__main__":
    main()
