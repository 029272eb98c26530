"""The page as a server: Gradio behind the guard, over the real engine and history."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read by Gradio and uvicorn when they are imported or begin: no report home, no look for a newer
# version; and it is the guard that decides which proxy to believe.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("FORWARDED_ALLOW_IPS", "")

import gradio as gr
from starlette.middleware import Middleware

from app.accounts import AccountFile, hash_password
from app.guard import ACCOUNT_HEADER, MOST_UPLOAD, Access, Guard
from app.runtime import real_runtime
from app.service import Service
from app.store import Store
from app.ui import CSS, NAME_BOXES, build
from elf_engine.errors import ElfError

LOOPBACK = "127.0.0.1"
OWN_NAMES = (LOOPBACK, "localhost", "::1")


@dataclass(frozen=True)
class Door:
    """How people come in, as the operator said it; see docs/security.md."""

    accounts: Path | None = None
    password: str = ""
    proxy_header: str = ""
    proxies: tuple[str, ...] = ()

    def access(self, host: str) -> Access:
        """Raises ElfError when others could reach the page and nothing would stop them, or when
        the accounts cannot be read."""
        hosts = OWN_NAMES if host in OWN_NAMES else ()
        if self.accounts is not None and self.password:
            raise ElfError("give accounts or ELF_PASSWORD, not both")
        hashes: Callable[[], Mapping[str, str]] | None = None
        if self.accounts is not None:
            hashes = AccountFile(self.accounts).read
            if not hashes():
                raise ElfError(f"no accounts in {self.accounts}; `elf accounts add NAME` makes one")
        elif self.password:
            known = {"": hash_password(self.password)}
            hashes = lambda: known  # noqa: E731
        if host not in OWN_NAMES and hashes is None and not self.proxy_header:
            raise ElfError(
                f"host '{host}' can be reached by others: set ELF_PASSWORD, or give --accounts "
                "FILE (made by `elf accounts add NAME`) or --proxy-user-header NAME"
            )
        given = {"proxies": self.proxies} if self.proxies else {}
        # Behind a proxy the page has the proxy's name.
        return Access(
            hashes, self.proxy_header.lower(), hosts=() if self.proxy_header else hosts, **given
        )


def launch(
    blocks: gr.Blocks,
    host: str,
    port: int | None,
    *,
    block: bool,
    access: Access | None = None,
    service: Service | None = None,
) -> str:
    """Serve the page and return its address; `block` waits until it is interrupted."""
    access = access or Door().access(host)
    guard = Middleware(
        Guard,
        access=access,
        metrics=lambda: metrics(service),
        healthy=lambda: service is None or service.alive,
    )
    # Gradio's own accounts stay unused; it only learns whom the guard let in.
    named = access.proxy_header or (access.hashes is not None and "" not in access.hashes())
    _, url, _ = blocks.launch(
        server_name=host,
        server_port=port,
        theme=gr.themes.Default(
            primary_hue="indigo",
            neutral_hue="slate",
            # Of the fonts that come with Gradio; its half-bold ones lack most letters.
            font=(gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "sans-serif"),
            font_mono=(gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "monospace"),
        ),
        css=CSS.read_text("utf-8"),
        js=NAME_BOXES,
        prevent_thread_lock=not block,
        max_threads=64,
        max_file_size=MOST_UPLOAD,
        auth_dependency=_account if named else None,
        share=False,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        app_kwargs={"middleware": [guard], "docs_url": None, "redoc_url": None},
        quiet=True,
        footer_links=[],
    )
    return str(url)


def _account(request: Any) -> str | None:
    return request.headers.get(ACCOUNT_HEADER) or None


def metrics(service: Service | None) -> dict[str, Any]:
    """What GET /metrics answers: the service's counts and the memory of the process in bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory: int | None = pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        memory = None
    return {**(service.metrics() if service else {}), "memory_bytes": memory}


def serve(
    host: str = LOOPBACK,
    port: int = 7860,
    model: str = "",
    backend: str = "torch",
    open_browser: bool = False,
    door: Door | None = None,
) -> None:
    """Serve the page until interrupted. Raises ElfError when the port is taken, `model` or
    `backend` is unknown, or others could come in unasked. `port` 0 takes a free one."""
    access = (door or Door()).access(host)
    port = free_port(host, port)
    service = Service(real_runtime([model] if model else []), store := Store())
    try:
        model = model or next(iter(service.models()), "")
        if model:
            service.check(model, backend)
            service.settings_for("draft", model)  # a model that cannot be read stops us here
        else:
            print("No model is installed; `elf models list` shows what there is.", flush=True)
        blocks = build(service, store, model, backend, log_out=access.hashes is not None)
        url = launch(blocks, host, port, block=False, access=access, service=service)
        print(f"ELF Studio is at {url}", flush=True)
        if model:
            service.warm(model, backend)
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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ElfError(
                f"port {port} on {host} cannot be used ({error}); choose another with --port"
            ) from error
        return int(probe.getsockname()[1])
