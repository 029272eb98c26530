"""Which model an editor runs on when none is named."""

from __future__ import annotations

from elf_engine import model_dir
from elf_engine.errors import ElfError

# The task of the model that an editor needs, where it is not called like the editor.
_TASK = {"rewrite": "infill"}
_FETCH = {"draft": "ELF-B-owt", "translate": "ELF-B-de-en", "summarise": "ELF-B-xsum"}


def task_of(editor: str, style: str = "") -> str:
    """The task a model must have been trained for."""
    return "modernise" if style == "modern" else _TASK.get(editor, editor)


def choose_model(task: str) -> str:
    """The name of the model here that is made for `task`: of those that have it, the one with the
    fewest other tasks; the bundled one among equals. Raises ElfError when none has it."""
    bundled = model_dir.bundled()
    known = bundled | model_dir.installed()
    found = []
    for name, path in known.items():
        try:
            tasks = model_dir.load_config(path).layout.tasks
        except ElfError:  # `elf models list` shows what is wrong with it
            continue
        reads = (path / model_dir.ENCODER).exists()
        if task in tasks and (reads or task == "draft"):
            found.append((len(tasks), name not in bundled, name))
    if found:
        return min(found)[2]
    here = ", ".join(known) or "none"
    raise ElfError(f"no model here can {task} (here: {here}){fetch_hint(task)}")


def fetch_hint(task: str) -> str:
    """The end of a message: how to get a published model for `task`, where there is one."""
    return f"; fetch one with: elf models pull {_FETCH[task]}" if task in _FETCH else ""
