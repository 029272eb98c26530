"""Export and import on the History tab. An export goes to the browser as text and is saved there,
so that no file of anyone's history lies on the server."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import gradio as gr

from app import store_formats
from app.records import Filter
from app.store import Store
from app.tabs.common import status_html
from elf_engine.errors import ElfError

LARGEST = 32 * 2**20  # characters to the browser, bytes from it
CHOICES = [
    ("JSON lines (complete, can be imported)", "jsonl"),
    ("CSV (spreadsheets)", "csv"),
    ("Markdown (reading)", "markdown"),
]
# The first line is the file's name.
SAVE_JS = """
(text) => {
  if (!text) return "";
  const end = text.indexOf("\\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text.slice(end + 1)], { type: "text/plain" }));
  link.download = text.slice(0, end);
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  return "";
}
"""


def exported(store: Store, wanted: Filter, kind: str) -> tuple[str, str]:
    """The file's name on one line and then the file, and what to say. Raises ElfError when it is
    too large for a page."""
    parts, size = [], 0
    for piece in store_formats.write(kind, store.export(wanted)):
        size += len(piece)
        if size > LARGEST:
            raise ElfError(
                f"this is more than {LARGEST >> 20} million characters; filter the list, or use: "
                "elf history export"
            )
        parts.append(piece)
    number = store.count(wanted=wanted)
    day = datetime.now(UTC).date().isoformat()
    name = f"elf-history-{day}{store_formats.FORMATS[kind]}"
    return f"{name}\n{''.join(parts)}", status_html(f"{_results(number)} in {name}.", kind="good")


def imported(store: Store, data: bytes | None) -> str:
    """Add an uploaded export and say what was added. Raises ElfError when it is none."""
    if not data:
        raise ElfError("the file is empty; choose one that was exported as JSON lines")
    if len(data) > LARGEST:
        raise ElfError(f"the file is over {LARGEST >> 20} MiB; use: elf history import")
    done = store.take(store_formats.read_jsonl(io.BytesIO(data)))
    said = f"{_results(done.added)} added, {done.known} already there."
    if done.unlinked:
        said += f" {done.unlinked} came from others that are not there."
    return status_html(said, kind="good")


class Files:
    """The fold with export and import, built where it is made."""

    def __init__(self) -> None:
        with gr.Accordion("Export and import", open=False, elem_id="history-files"):
            self.kind = gr.Radio(
                CHOICES,
                value="jsonl",
                label="Export what the list shows as",
                elem_id="history-kind",
            )
            with gr.Row(elem_classes="elf-row"):
                self.export = gr.Button("Export", size="sm", elem_id="history-export")
                self.upload = gr.UploadButton(
                    "Import JSON lines…",
                    size="sm",
                    type="binary",
                    file_types=[".jsonl"],
                    elem_id="history-import",
                )
            self.said = gr.HTML("", elem_id="history-files-status")
            self.text = gr.Textbox(visible="hidden", label="Exported", elem_id="history-exported")


def _results(number: int) -> str:
    return f"{number} result" + ("" if number == 1 else "s")
