"""The page: Gradio on this machine's own address, over `app.service`."""

from __future__ import annotations

import logging
import os
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Any

# Read by Gradio when it is imported: it must not report home, nor look for a newer self.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from app.about import Shelf
from app.runtime import real_runtime
from app.service import BACKENDS, Service
from app.store import Store
from app.tabs.common import LiveRuns, Page
from app.tabs.compare import CompareTab
from app.tabs.editor import EditorKind, EditorTab
from app.tabs.history import HistoryTab
from app.tabs.pairs import PAIR_KINDS, PairTab
from app.tabs.write import WriteTab
from elf_engine.errors import ElfError

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
OWN_NAMES = (LOOPBACK, "localhost")
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

KINDS = (
    EditorKind(
        "draft",
        "Draft",
        "Draft",
        "Beginning",
        "Start writing, or leave it empty…",
        "The model writes on from here. Shift+Enter starts it.",
    ),
    EditorKind(
        "infill",
        "Infill",
        "Fill the gaps",
        "Text with gaps",
        "A [[2-6]] house on the hill.",
        r"Mark a gap with [[2-6]] (2 to 6 tokens), [[4]] or [[]]; a token is a short word or a "
        r"piece of one. Write \[[ for the signs themselves.",
    ),
)


def build(
    service: Service,
    store: Store,
    model: str = "",
    backend: str = "torch",
    shelf: Shelf | None = None,
) -> gr.Blocks:
    """The whole page over a service and a history. `model` "" takes the first there is."""
    shelf = shelf or Shelf(lambda name: service.check(name, BACKENDS[0]))
    models = service.models()
    model = model or (models[0] if models else "")
    runs = LiveRuns()
    with gr.Blocks(title="ELF Studio", analytics_enabled=False, fill_width=True) as blocks:
        with gr.Row(equal_height=True):
            with gr.Column(scale=3, min_width=280):
                gr.HTML(
                    "<h1>ELF Studio</h1><p>Text out of noise: draft, fill gaps, translate.</p>",
                    elem_classes="elf-head",
                )
            chooser = gr.Dropdown(models, value=model or None, label="Model", min_width=180)
            device = gr.Dropdown(
                [*BACKENDS], value=backend, label="Backend", min_width=120, filterable=False
            )
        with gr.Tabs() as tabs:
            page = Page(service, runs, tabs, chooser, device)
            write = WriteTab(page, store, shelf)
            editors = {kind.name: EditorTab(page, kind) for kind in KINDS}
            pairs = {kind.name: PairTab(page, kind) for kind in PAIR_KINDS}
            CompareTab(page, store, write)
            HistoryTab(page, store, {**editors, **pairs})
        editors["draft"].send_to(editors["infill"])
        for pair in pairs.values():
            pair.send_to(write, "write", "use")
            pair.send_to(editors["infill"], "infill", "infill")

        def leave(request: gr.Request) -> None:
            runs.stop(str(request.session_hash or ""))

        def reread() -> object:
            return gr.update(choices=service.models())

        write.opened(blocks)
        blocks.load(reread, None, chooser, show_progress="hidden", api_visibility="private")
        blocks.unload(leave)
    blocks.queue(default_concurrency_limit=None)
    return blocks


def launch(blocks: gr.Blocks, host: str, port: int | None, *, block: bool) -> str:
    """Serve the page and return its address; `block` waits until it is interrupted."""
    _, url, _ = blocks.launch(
        server_name=host,
        server_port=port,
        theme=gr.themes.Default(primary_hue="indigo", neutral_hue="slate"),
        css=CSS.read_text("utf-8"),
        js=NAME_BOXES,
        prevent_thread_lock=not block,
        max_threads=64,
        share=False,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        app_kwargs=_only_for(host),
        quiet=True,
        footer_links=[],
    )
    return str(url)


def _only_for(host: str) -> dict[str, Any]:
    """On the loopback, answer only to its own names: a web page whose name was made to point
    here must not read what the person writes."""
    if host not in OWN_NAMES:
        return {}
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return {"middleware": [Middleware(TrustedHostMiddleware, allowed_hosts=[*OWN_NAMES])]}


def serve(
    host: str = LOOPBACK,
    port: int = 7860,
    model: str = "",
    backend: str = "torch",
    open_browser: bool = False,
) -> None:
    """Serve the page until interrupted. Raises ElfError when the port is taken or `model` or
    `backend` is unknown. `port` 0 takes a free one."""
    port = free_port(host, port)
    service = Service(real_runtime([model] if model else []), store := Store())
    try:
        model = model or next(iter(service.models()), "")
        if model:
            service.check(model, backend)
            service.settings_for("draft", model)  # a model that cannot be read stops us here
        else:
            print("No model is installed; `elf models list` shows what there is.", flush=True)
        blocks = build(service, store, model, backend)
        url = launch(blocks, host, port, block=False)
        print(f"ELF Studio is at {url}", flush=True)
        if model:
            service.warm(model, backend)
        if host not in OWN_NAMES:
            print("Anyone who reaches this address can use it: there is no password.", flush=True)
        if open_browser:
            webbrowser.open(url)
        blocks.block_thread()
    finally:
        ended = service.close(timeout=5.0)
        store.close()
    if not ended:
        # The worker is inside native code, loading perhaps. It can be neither waited for nor
        # ended, and Python leaving around it aborts; everything finished is on disk already.
        sys.stdout.flush()
        os._exit(0)


def free_port(host: str, port: int) -> int:
    """`port` if it can be served, some free one when it is 0. Raises ElfError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ElfError(
                f"port {port} on {host} cannot be used ({error}); choose another with --port"
            ) from error
        return int(probe.getsockname()[1])
