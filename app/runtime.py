"""The real engine behind the service. Nothing heavy is imported before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from app.service import Runtime
from editors.request import EditRequest, EditResult, Progress
from elf_engine import model_dir


def real_runtime(extra: Sequence[str] = ()) -> Runtime:
    """Models that are bundled or installed, and `extra` ones (names or paths the operator gave)."""

    def models() -> list[str]:
        return list(dict.fromkeys([*extra, *model_dir.bundled(), *model_dir.installed()]))

    return Runtime(
        load=_load,
        run=_run,
        config=lambda name: model_dir.load_config(model_dir.find(name)),
        models=models,
        path=model_dir.find,
    )


def _load(model: str, backend: str) -> Any:
    from elf_engine.pipeline import Engine
    from elf_engine.together import Together

    return Together(Engine.load(model, backend=backend))


def _run(engine: Any, request: EditRequest) -> Iterator[Progress | EditResult]:
    import editors

    return iter(editors.run(engine, request))
