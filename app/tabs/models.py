"""Models: what is installed, what each can do, its card; and the choice for this page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import gradio as gr

from app.model_card import card_html, read_card
from app.model_facts import all_facts, hash_of
from app.tabs.common import HIDDEN, LATEST, Page, guarded, status_html
from app.tabs.models_html import TABLE_JS, detail_html, fetch_html, models_html
from elf_engine.config import to_dict
from elf_engine.published.catalogue import CATALOGUE, PARAMETERS


class Resets(Protocol):
    """A tab whose knobs start from the model's own settings."""

    def reset(self, model: str) -> dict[Any, Any]: ...

    def resettable(self) -> list[Any]: ...


class ModelsTab:
    """Builds the tab. A choice changes the widgets of this page alone; runs under way, here and
    on other pages, go on with the model they began with."""

    def __init__(self, page: Page, tabs: Sequence[Resets]) -> None:
        self.page, self.tabs = page, tabs
        with gr.Tab("Models", id="models") as self.tab:
            self.table = gr.HTML("", elem_id="models-table", js_on_load=TABLE_JS)
            self.detail = gr.HTML(
                status_html("“Show card” says what a model was trained on.", kind="idle"),
                elem_id="models-detail",
            )
            self.fetch = gr.HTML("", elem_id="models-fetch")
        gr.on(
            [self.tab.select, page.model.change],
            self._list,
            page.model,
            [self.table, self.fetch],
            **LATEST,
        )
        knobs = [widget for tab in tabs for widget in tab.resettable()]
        self.table.click(self._act, None, [page.model, self.detail, *knobs], **HIDDEN)

    def _list(self, chosen: str) -> tuple[str, str]:
        service = self.page.service
        found = all_facts(service)
        here = {f.name for f in found}
        missing = [(m.name, PARAMETERS[m.size], m.task) for m in CATALOGUE.values()]
        missing = [row for row in missing if row[0] not in here]
        return models_html(found, chosen, service.loaded()), fetch_html(missing)

    def _act(self, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        """A button in the table. The name is checked against what is installed."""
        data = event._data if isinstance(event._data, dict) else {}
        name = str(data.get("name"))
        known = guarded(lambda: self.page.service.known(name), None)
        if known is None:
            return
        if data.get("act") == "choose":
            choice = gr.update(value=name, choices=self.page.service.models())
            knobs = [tab.reset(name) for tab in self.tabs]
            yield {self.page.model: choice, **{w: u for each in knobs for w, u in each.items()}}
            return
        config = json.dumps(to_dict(known.config), indent=2, ensure_ascii=False)
        card = card_html(read_card(known.path))
        # Large files take a while to sum up; the card need not wait for it.
        yield {self.detail: detail_html(name, "…", config, card)}
        hash = guarded(lambda: hash_of(known.path), "")
        yield {self.detail: detail_html(name, hash, config, card)}
