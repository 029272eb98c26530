"""The published models by name, and what their files do not say about themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from elf_engine.config import (
    PUBLISHED_SIZES,
    LayoutSpec,
    NetworkSpec,
    SampleSpec,
    TokenizerSpec,
)
from elf_engine.errors import ElfError
from elf_engine.types import Weights

OWNER = "embedded-language-flows"
# The frozen encoder and tokenizer of every published model.
T5_REPO = "google-t5/t5-small"
TOKENIZER_DIR = "tokenizer"
PARAMETERS = {"B": "105M", "M": "342M", "L": "652M"}

Task = Literal["draft", "translate", "summarise"]


@dataclass(frozen=True)
class Family:
    """How a model of one task is laid out and sampled (ELF.md, "Training", "Sampling").

    max_length    tokens of a whole row
    max_source    most condition tokens, 0 for unconditional models
    """

    task: Task
    max_length: int
    max_source: int = 0

    @property
    def conditional(self) -> bool:
        return self.task != "draft"

    def layout(self) -> LayoutSpec:
        """Published models saw no padding mask; the unconditional ones never saw a condition."""
        names = [self.task] if self.conditional else ["draft", "infill"]
        return LayoutSpec(
            padding="attended",
            hold="clean" if self.conditional else "renoise",
            lengths=(self.max_length,),
            tasks={str(name): -1 for name in names},
            max_source=self.max_source,
        )

    def tokenizer(self) -> TokenizerSpec:
        """T5's ids. Conditional models are padded with EOS."""
        pad = 1 if self.conditional else 0
        return TokenizerSpec(kind="huggingface", file=TOKENIZER_DIR, pad_id=pad, eos_id=1)

    def defaults(self, size: str = "B") -> dict[str, SampleSpec]:
        """Published sampling settings."""
        if self.conditional:
            spec = SampleSpec(64, "ode", 0.0, 1.0, 2.0, "logit-normal")
        elif size == "B":
            spec = SampleSpec(32, "sde", 1.5, 3.0, 1.0, "logit-normal")
        else:
            spec = SampleSpec(64, "sde", 1.0, 3.0, 1.0, "logit-normal")
        return dict.fromkeys(self.layout().tasks, spec)


FAMILIES = {
    "owt": Family("draft", 1024),
    "de-en": Family("translate", 128, 64),
    "xsum": Family("summarise", 1088, 1024),
}


@dataclass(frozen=True)
class Published:
    """One published model."""

    name: str
    size: str
    family: Family
    distilled: bool = False

    @property
    def repo(self) -> str:
        return f"{OWNER}/{self.name}"

    @property
    def task(self) -> str:
        return f"{self.family.task}, few steps" if self.distilled else self.family.task

    def defaults(self) -> dict[str, SampleSpec]:
        specs = self.family.defaults(self.size)
        if self.distilled:
            specs = {task: replace(spec, steps=8) for task, spec in specs.items()}
        return specs


def _catalogue() -> dict[str, Published]:
    models = [Published(f"ELF-{size}-owt", size, FAMILIES["owt"]) for size in "BML"]
    models += [Published(f"ELF-B-{task}", "B", FAMILIES[task]) for task in ("de-en", "xsum")]
    models += [Published("ELF-B-PD-owt", "B", FAMILIES["owt"], distilled=True)]
    models += [replace(model, name=f"{model.name}-torch") for model in models]
    return {model.name: model for model in models}


CATALOGUE = _catalogue()


def infer_network(weights: Weights, max_length: int, file: str) -> NetworkSpec:
    """Sizes of a network from its weights. Raises ElfError when a telling weight is missing."""

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if name not in weights:
            raise ElfError(f"{file}: {name} is missing; this is no ELF network")
        found = weights[name].shape
        if len(found) != rank or not all(found):
            raise ElfError(f"{file}: {name} is {found}, expected {rank} axes, none empty")
        return found

    hidden = shape("blocks_0/norm1/weight", 1)[0]
    head = shape("blocks_0/attn/q_norm/weight", 1)[0]
    if hidden % head:
        raise ElfError(f"{file}: heads of {head} do not divide a width of {hidden}")
    return NetworkSpec(
        embedding_dim=shape("proj_bias", 1)[0],
        hidden=hidden,
        depth=len({m[1] for name in weights if (m := re.match(r"blocks_(\d+)/", name))}),
        heads=hidden // head,
        bottleneck=shape("text_proj/proj1/kernel", 2)[1],
        vocab=shape("unembed_bias", 1)[0],
        max_length=max_length,
        time_tokens=shape("t_emb_tokens", 3)[1],
        guidance_tokens=_tokens(weights, "self_cond_cfg_tokens", file),
        mode_tokens=_tokens(weights, "mode_tokens", file),
        self_conditioning="self_cond_proj/kernel" in weights,
    )


def check_published(spec: NetworkSpec, model: Published, file: str) -> None:
    """Raise ElfError when `spec` is not of the published model's size."""
    expected = PUBLISHED_SIZES[model.size]
    for name in ("hidden", "depth", "heads", "embedding_dim"):
        if getattr(spec, name) != getattr(expected, name):
            raise ElfError(
                f"{file}: {name} is {getattr(spec, name)}, {model.name} has "
                f"{getattr(expected, name)}; give another --name for another model"
            )


def _tokens(weights: Weights, name: str, file: str) -> int:
    if name not in weights:
        return 0
    if weights[name].ndim != 3:
        raise ElfError(f"{file}: {name} is {weights[name].shape}, expected 3 axes")
    return int(weights[name].shape[1])
