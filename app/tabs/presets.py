"""Settings saved by name, each person's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.store import Store
from app.tabs.common import HIDDEN, guarded


class Presets:
    """Builds the row. `widgets` are the ones a preset holds, by the name it holds them under."""

    def __init__(self, store: Store, editor: str, widgets: Mapping[str, Any]) -> None:
        self.store, self.editor, self.widgets = store, editor, widgets
        with gr.Row(elem_classes="elf-row"):
            self.chosen = gr.Dropdown(
                [], value=None, label="Preset", elem_id=f"{editor}-preset", min_width=140, scale=3
            )
            self.delete = gr.Button(
                "Delete", size="sm", elem_id=f"{editor}-preset-delete", min_width=80, scale=1
            )
        with gr.Row(elem_classes="elf-row"):
            self.name = gr.Textbox(
                "",
                label="Save these settings as",
                max_lines=1,
                elem_id=f"{editor}-preset-name",
                min_width=140,
                scale=3,
            )
            self.save = gr.Button(
                "Save", size="sm", elem_id=f"{editor}-preset-save", min_width=80, scale=1
            )
        self._wire()

    def _wire(self) -> None:
        held = list(self.widgets.values())
        gr.on(
            [self.save.click, self.name.submit],
            self._save,
            [self.name, *held],
            [self.chosen, self.name],
            **HIDDEN,
        )
        # Only a choice applies a preset: a second `input` would undo what was set since.
        self.chosen.select(self._apply, None, held, **HIDDEN)
        self.delete.click(self._delete, self.chosen, self.chosen, **HIDDEN)

    def names(self, request: gr.Request) -> Any:
        """The choices of this person, for when the page is opened."""
        found = guarded(lambda: self._mine(request).presets(self.editor), [])
        return gr.update(choices=[preset.name for preset in found])

    def _mine(self, request: gr.Request) -> Store:
        return self.store.of(str(request.username or ""))

    def _save(self, request: gr.Request, name: str, *values: Any) -> Any:
        settings = dict(zip(self.widgets, values, strict=True))

        def write() -> bool:
            self._mine(request).save_preset(name, self.editor, settings)
            return True

        if not guarded(write, False):
            return gr.skip(), gr.skip()
        # The store may have tidied the name.
        return gr.update(**{**self.names(request), "value": " ".join(name.split())}), ""

    def _apply(self, event: gr.SelectData, request: gr.Request) -> Any:
        name = event.value
        found = guarded(lambda: self._mine(request).presets(self.editor), [])
        settings: dict[str, Any] = next((p.settings for p in found if p.name == name), {})
        return [settings.get(held, gr.skip()) for held in self.widgets]

    def _delete(self, name: str | None, request: gr.Request) -> Any:
        if name:
            guarded(lambda: self._mine(request).delete_preset(name, self.editor), False)
        return gr.update(**{**self.names(request), "value": None})
