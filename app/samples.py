"""Unpicked samples of a model as Markdown: `python -m app.samples assets/starter`.

Request i of a task runs with seed i and the model's own settings, through the same editors as the
command line. The requests below were written for this page (the verses are King James); none is
from the training data but the verses' neighbours.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import editors
from editors import EditRequest, EditResult
from elf_engine.errors import ElfError

REQUESTS: dict[str, tuple[str, ...]] = {
    "draft": ("", "", "", "", "", "The old man", "She opened", "In the morning", "You can use",
              "He said"),
    "infill": (
        "The [[1-4]] on the hill.",
        "He walked [[2-6]] the river.",
        "She [[2-5]] to her mother.",
        "Click [[1-5]] to open the file.",
        "[[1-4]] is very cold today.",
        "We saw [[2-6]] in the garden.",
        "The king [[2-6]] and his men.",
        "I have never [[1-5]] before.",
        "This option [[2-6]] of the window.",
        "The children [[2-6]].",
    ),
    "translate": (
        "Das Haus ist alt.",
        "Ich habe keine Zeit.",
        "Der Hund schläft im Garten.",
        "Wir gehen morgen in die Stadt.",
        "Die Datei konnte nicht geöffnet werden.",
        "ein altes Buch",
        "Klicken Sie auf die Schaltfläche.",
        "Sie liest einen Brief.",
        "die neue Brücke",
        "Wo ist der König?",
    ),
    "summarise": (
        "This program shows pictures. It can turn them, make them smaller and print them.",
        "A small game for two players. You move stones over a board of eight rows.",
        "It plays music from files and from the network. Lists of songs can be saved.",
        "The editor opens text files of any size. It colours the words of many languages.",
        "It draws maps of the world. You can measure distances and plan a route.",
        "This library reads and writes compressed files. It supports several formats.",
        "A tool that looks for files with the same content. It can remove the copies.",
        "You fly a small ship through space. Collect gold and avoid the rocks.",
        "It keeps your passwords in one file. The file is locked with a single key.",
        "The server sends mail to other hosts. It checks every message for spam.",
    ),
    "modernise": (
        "And he said unto them, Whither go ye?",
        "Thou shalt not steal.",
        "And it came to pass, that he went into the city.",
        "For thou art my rock and my fortress.",
        "The king spake unto his servants.",
        "And she brought forth a son.",
        "Hear ye the word of the LORD.",
        "Then saith he unto him, Follow me.",
        "He that hath ears to hear, let him hear.",
        "And they took up stones to cast at him.",
    ),
}  # fmt: skip


def sample(engine: Any, task: str, text: str, seed: int) -> str:
    """The text of one request; an error's message where the model gave none."""
    settings = dataclasses.replace(engine.defaults(task), seed=seed)
    request = EditRequest(editor=task, text=text, settings=settings)
    try:
        results = [r for r in editors.run(engine, request) if isinstance(r, EditResult)]
    except ElfError as error:
        return f"({error})"
    return results[0].text


def table(engine: Any, task: str) -> str:
    """A Markdown table of a task's requests and answers."""
    lines = ["| seed | request | text |", "| --- | --- | --- |"]
    for seed, text in enumerate(REQUESTS[task]):
        cells = (_cell(text) or "(empty)", _cell(sample(engine, task, text, seed)) or "(nothing)")
        lines.append(f"| {seed} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ⏎ ")


def main() -> None:
    """Print one section per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="starter")
    parser.add_argument("--backend", default="torch", choices=("jax", "torch"))
    parser.add_argument("--tasks", nargs="*", default=list(REQUESTS))
    options = parser.parse_args()
    from elf_engine.pipeline import Engine

    engine = Engine.load(Path(options.model), options.backend)
    for task in options.tasks:
        print(f"### {task}\n\n{table(engine, task)}\n", flush=True)


if __name__ == "__main__":
    main()
