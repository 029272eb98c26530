"""Files a person saves. They are made in the browser: nothing of them is left on the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from app.comparison_export import FORMATS, Record
from app.tabs.common import HIDDEN, guarded

File = dict[str, str]


def made(name: str, kind: str, make: Callable[[], Sequence[Record]]) -> File | None:
    """The file of a kind of FORMATS; None after a notice when `make` fails."""
    if kind not in FORMATS:
        return None
    ending, form = FORMATS[kind]
    text: str | None = guarded(lambda: form(make()), None)
    return None if text is None else {"name": f"{name}.{ending}", "text": text}


def download(
    button: gr.Button, make: Callable[..., File | None], inputs: list[Any], file: gr.JSON
) -> None:
    """Let the button save what `make` returns; `file` is where it passes through."""
    asked = button.click(make, inputs, file, **HIDDEN)
    asked.then(None, file, None, js=_SAVE_JS, **HIDDEN)


_SAVE_JS = """
(file) => {
  if (!file) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([file.text], { type: "text/plain;charset=utf-8" }));
  link.download = file.name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
"""
