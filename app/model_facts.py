"""What can be said of a model without loading it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod
from pathlib import Path

from app.service import Service
from editors.models import fetch_hint
from elf_engine import model_dir
from elf_engine.config import ModelConfig
from elf_engine.errors import ElfError

_WEIGHTS = (model_dir.NETWORK, model_dir.ENCODER)


@dataclass(frozen=True)
class Facts:
    """One model. `size` is bytes of its weight files, 0 where none are at hand; `broken` says
    what is wrong with its configuration, "" when nothing is."""

    name: str
    tasks: tuple[str, ...] = ()
    parameters: int = 0
    size: int = 0
    reads: bool = False
    broken: str = ""


def parameters(config: ModelConfig) -> int:
    """Numbers in the network; the frozen encoder's are not counted."""
    return sum(prod(shape) for shape in model_dir.expected_shapes(config.network).values())


def millions(number: int) -> str:
    return f"{number / 1e6:.0f}M" if number >= 1e7 else f"{number / 1e6:.1f}M"


def facts(name: str, config: ModelConfig, directory: Path | None) -> Facts:
    """Reads no weights, only the sizes of their files."""
    files = [] if directory is None else [directory / f for f in _WEIGHTS]
    sizes = [file.stat().st_size for file in files if file.is_file()]
    reads = directory is not None and (directory / model_dir.ENCODER).is_file()
    return Facts(name, tuple(config.layout.tasks), parameters(config), sum(sizes), reads)


def check_task(service: Service, model: str, task: str) -> None:
    """Raise ElfError when the model was not trained for the task, naming those here that were."""
    if not model:
        raise ElfError("no model is chosen; choose one above")
    if task in service.tasks(model):
        return
    able = [name for name in service.models() if _can(service, name, task)]
    advice = f"; {', '.join(able)} can: choose it above" if able else fetch_hint(task)
    raise ElfError(f"model '{model}' was not trained to {task}{advice}")


def _can(service: Service, model: str, task: str) -> bool:
    try:
        return task in service.tasks(model)
    except ElfError:  # a damaged model can nothing; the Models tab says what is wrong with it
        return False


def all_facts(service: Service) -> list[Facts]:
    """Every model that may be chosen, damaged ones with what is wrong."""
    found = []
    for name in service.models():
        try:
            known = service.known(name)
            found.append(facts(name, known.config, known.path))
        except ElfError as error:
            found.append(Facts(name, broken=str(error)))
    return found


def hash_of(directory: Path | None) -> str:
    """Hex sha256 of a model, read again only when one of its files changed; "" without files."""
    if directory is None:
        return ""
    files = [directory / name for name in (model_dir.CONFIG, *_WEIGHTS)]
    stats = [file.stat() for file in files if file.is_file()]
    return _hash(directory, tuple((s.st_mtime_ns, s.st_size) for s in stats))


@functools.lru_cache(maxsize=64)
def _hash(directory: Path, _changed: tuple[tuple[int, int], ...]) -> str:
    return model_dir.model_hash(directory)
