"""The published protocols (ELF.md, "Sampling" and "Published results"), as settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elf_engine.errors import ElfError

_OWT = {"sampler": "sde", "guidance": 3.0, "condition_guidance": 1.0, "grid": "logit-normal"}
_PAIR = {"sampler": "ode", "gamma": 0.0, "guidance": 1.0, "condition_guidance": 2.0}


@dataclass(frozen=True)
class Protocol:
    """Everything but the model and the inputs.

    grid       axes of settings, one file each
    published  what the paper reports for it
    """

    task: str
    model: str
    settings: Mapping[str, Any]
    metrics: str
    limit: int | None
    published: str
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


# Drafts fill the whole row (length -1), as published: 1,000 samples of up to 1024 tokens.
PROTOCOLS: dict[str, Protocol] = {
    "owt-32-sde": Protocol(
        "unconditional",
        "ELF-B-owt",
        {**_OWT, "steps": 32, "gamma": 1.5, "length": -1},
        "ppl,entropy",
        1000,
        "Gen. PPL 24.08 ± 0.16, entropy 5.15",
    ),
    "owt-64-sde": Protocol(
        "unconditional",
        "ELF-M-owt",
        {**_OWT, "steps": 64, "gamma": 1.0, "length": -1},
        "ppl,entropy",
        1000,
        "Gen. PPL 21.7, entropy 5.18 (M); 23.3, 5.28 (L)",
    ),
    "de-en": Protocol(
        "translate",
        "ELF-B-de-en",
        {**_PAIR, "steps": 64, "grid": "logit-normal"},
        "bleu",
        None,
        "BLEU 26.4",
    ),
    "xsum": Protocol(
        "summarise",
        "ELF-B-xsum",
        {**_PAIR, "steps": 64, "grid": "logit-normal"},
        "rouge",
        None,
        "ROUGE-1/2/L 36.0/12.2/27.8",
    ),
    "few-step": Protocol(
        "unconditional",
        "ELF-B-PD-owt",
        {**_OWT, "gamma": 1.5, "length": -1},
        "ppl,entropy",
        1000,
        "Gen. PPL 136.1, 68.3, 34.3, 23.2, 22.1, 21.3 at 1 to 32 steps (entropy 5.26 to 5.04)",
        {"steps": (1, 2, 4, 8, 16, 32)},
    ),
}


def protocol(name: str) -> Protocol:
    """A protocol by name. Raises ElfError for an unknown one."""
    if name not in PROTOCOLS:
        raise ElfError(f"protocol '{name}' is unknown; use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
