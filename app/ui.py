"""The page: Gradio on this machine's own address, over `app.service`."""

from __future__ import annotations

import html
import os
from pathlib import Path

# Read by Gradio when it is imported: it must not report home, nor look for a newer self.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from app.about import Shelf
from app.service import BACKENDS, Service
from app.store import Store
from app.tabs.api import Endpoints, Options
from app.tabs.common import HIDDEN, LiveRuns, Page, page_id
from app.tabs.compare import CompareTab
from app.tabs.dials import EDITORS
from app.tabs.history import HistoryTab
from app.tabs.models import ModelsTab
from app.tabs.pairs import PAIR_KINDS, PairTab
from app.tabs.write import WriteTab

# A label that wraps a copy button and a text box names the button; screen readers need the box.
NAME_BOXES = """
() => {
  const name = () => document.querySelectorAll("label textarea, label input").forEach((box) => {
    const label = box.closest("label");
    const words = label.querySelector("[data-testid=block-info]");
    if (label.control !== box && words) box.setAttribute("aria-label", words.innerText.trim());
  });
  name();
  new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
}
"""
CSS = Path(__file__).with_name("page.css")


def build(
    service: Service,
    store: Store,
    model: str = "",
    backend: str = "torch",
    shelf: Shelf | None = None,
    log_out: bool = False,
) -> gr.Blocks:
    """The whole page over a service and a history. `model` "" takes the first there is; `log_out`
    offers that, where people have logged in."""
    shelf = shelf or Shelf(lambda name: service.check(name, BACKENDS[0]))
    models = service.models()
    model = model or (models[0] if models else "")
    runs = LiveRuns()
    with gr.Blocks(title="ELF Studio", analytics_enabled=False, fill_width=True) as blocks:
        with gr.Row(elem_classes="elf-top"):
            with gr.Column(scale=3, min_width=280):
                gr.HTML(
                    "<h1>ELF Studio</h1><p>Text out of noise: write, rewrite, translate.</p>",
                    elem_classes="elf-head",
                )
                if log_out:
                    door = gr.HTML("", elem_id="elf-door")
                    blocks.load(_door_html, None, door, **HIDDEN)
            chooser = gr.Dropdown(models, value=model or None, label="Model", min_width=180)
            device = gr.Dropdown(
                [*BACKENDS], value=backend, label="Backend", min_width=120, filterable=False
            )
        with gr.Tabs() as tabs:
            page = Page(service, runs, tabs, chooser, device)
            write = WriteTab(page, store, shelf)
            pairs = {kind.name: PairTab(page, kind, shelf) for kind in PAIR_KINDS}
            CompareTab(page, store, write)
            HistoryTab(page, store, {**dict.fromkeys(EDITORS, write), **pairs})
            ModelsTab(page, list(pairs.values()))
        Endpoints(blocks, service, shelf, runs, Options(model=model, backend=backend))
        for pair in pairs.values():
            pair.send_to(write, "write")

        def leave(request: gr.Request) -> None:
            runs.stop(page_id(request))

        def reread() -> object:
            return gr.update(choices=service.models())

        write.opened(blocks)
        blocks.load(reread, None, chooser, show_progress="hidden", api_visibility="private")
        blocks.unload(leave)
    blocks.queue(default_concurrency_limit=None)
    return blocks


def _door_html(request: gr.Request) -> str:
    """Who is logged in, and the way out."""
    name = getattr(request, "username", None)
    who = f"<span>Logged in as {html.escape(name)}</span>" if name else ""
    return (
        f'<form method="post" action="/logout">{who}'
        '<button class="elf-btn" type="submit">Log out</button></form>'
    )
