"""The door of the page: who may come in, how much they may send, and what browsers are told.

Plain ASGI around Gradio's application, so that no route of it, known or not, is reached past it.
What it promises is in docs/security.md.
"""

from __future__ import annotations

import html
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.accounts import SESSION_SECONDS, Brake, Sessions, hash_password, verify_password

COOKIE = "elf-session"
ACCOUNT_HEADER = "x-elf-account"
MOST_BYTES = 8 << 20  # a text of a megabyte, however it is escaped
MOST_UPLOAD = 32 << 20
_MOST_LOGIN = 4096
_OPEN = ("/health", "/gradio_api/startup-events")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Parts of Gradio that this page does not use and that reach out, watch or change the server.
_CLOSED = (
    "proxy=",
    "stream/",
    "vibe-",
    "undo-vibe",
    "run-history",
    "profiling",
    "dev/",
    "deep_link",
)
_HEADERS = {
    # Gradio's page needs inline scripts and styles, and makes functions of its `js=` handlers.
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "media-src 'self' data: blob:; worker-src 'self' blob:; connect-src 'self' data: blob:; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would then send a form of our own with the origin "null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_CACHED = ("/assets/", "/static/", "/svelte/", "/favicon.ico")


@dataclass(frozen=True)
class Access:
    """Who may come in. Nothing set: everyone who reaches the address.

    hashes        password hash by account; the account "" is a password without a name
    proxy_header  header in which a proxy names the person; believed from `proxies` alone
    hosts         names the server answers to; empty: any
    """

    hashes: Callable[[], Mapping[str, str]] | None = None
    proxy_header: str = ""
    proxies: tuple[str, ...] = _LOOPBACK[:2]
    hosts: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        """People have to say who they are."""
        return self.hashes is not None or bool(self.proxy_header)


@dataclass
class Guard:
    """The middleware. `metrics` answers GET /metrics, `healthy` GET /health."""

    app: ASGIApp
    access: Access
    metrics: Callable[[], dict[str, Any]]
    healthy: Callable[[], bool]
    brake: Brake = field(default_factory=Brake)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.access.hashes or dict)
        self._nobody = hash_password(secrets.token_urlsafe()) if self.access.hashes else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on with the person's account in ACCOUNT_HEADER."""
        if scope["type"] == "websocket":  # none is used
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), str(scope["path"])
        send = _with_headers(send, path)
        refused = self._refuse(scope, headers, path)
        if refused is not None:
            await refused(scope, receive, send)
            return
        limit = MOST_UPLOAD if path.rstrip("/").endswith("/upload") else MOST_BYTES
        body = _Limited(receive, headers, limit)
        answer = await self._own(scope, headers, path, body)
        if answer is not None:
            await answer(scope, receive, send)
            return
        account = self._account(scope, headers)
        if account is None and path not in _OPEN:
            await _ask(headers, path)(scope, receive, send)
            return
        await body.pass_on(self.app, _signed(scope, account or ""), send)

    def _refuse(self, scope: Scope, headers: Headers, path: str) -> Response | None:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if self.access.hosts and host not in self.access.hosts:
            return _line(f"this server does not answer to the name '{host[:80]}'", 400)
        if any(part in path for part in ("/gradio_api/", "/monitoring", "/proxy=")):
            inner = path.removeprefix("/gradio_api/").lstrip("/")
            if inner.startswith(_CLOSED) or path.startswith(("/monitoring", "/proxy=")):
                return _line("there is nothing here", 404)
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and not self._same_site(
            scope, headers
        ):
            return _line("this request comes from another site's page", 403)
        return None

    def _same_site(self, scope: Scope, headers: Headers) -> bool:
        """Whether a browser, which says where a request comes from, says it is from our page."""
        origin = headers.get("origin")
        if headers.get("sec-fetch-site") == "cross-site":
            return False
        if origin is None:
            return True
        names = {headers.get("host", "")}
        if self.access.proxy_header and _peer(scope) in self.access.proxies:
            names.add(headers.get("x-forwarded-host", ""))
        return urlsplit(origin).netloc in names - {""}

    def _address(self, scope: Scope, headers: Headers) -> str:
        """Where a person is; a proxy of ours adds the address it sees at the end."""
        chain = headers.get("x-forwarded-for", "").split(",")[-1].strip()
        peer = _peer(scope)
        return chain if chain and peer in self.access.proxies else peer

    def _account(self, scope: Scope, headers: Headers) -> str | None:
        """Who asks, "" for anyone where all may come in; None when it has to be asked."""
        access = self.access
        if not access.closed:
            return ""
        if access.proxy_header and _peer(scope) in access.proxies:
            named = headers.getlist(access.proxy_header)
            if len(named) == 1 and named[0].strip():
                return named[0].strip()
        if access.hashes is None:
            return None
        return self.sessions.account(_token(headers))

    async def _own(
        self, scope: Scope, headers: Headers, path: str, body: _Limited
    ) -> Response | None:
        """The answer to what is not Gradio's."""
        method = scope["method"]
        if path == "/health" and method in ("GET", "HEAD"):
            good = self.healthy()
            return JSONResponse({"status": "ok" if good else "down"}, 200 if good else 503)
        if path == "/metrics" and method == "GET" and self._account(scope, headers) is not None:
            return JSONResponse(self.metrics())
        if self.access.hashes is None:
            return None
        if path.rstrip("/") == "/login":
            if method == "POST":
                return await self._log_in(scope, headers, await body.read(_MOST_LOGIN))
            return HTMLResponse(_page(""))
        if path.rstrip("/") == "/logout" and method == "POST":
            self.sessions.end(_token(headers))
            gone = RedirectResponse("/login", 303)
            gone.delete_cookie(COOKIE, path="/")
            return gone
        return None

    async def _log_in(self, scope: Scope, headers: Headers, body: bytes | None) -> Response:
        given = parse_qs((body or b"").decode("utf-8", "replace"))
        hashes = self.access.hashes() if self.access.hashes else {}
        name = "" if "" in hashes else given.get("username", [""])[0].strip()
        password = given.get("password", [""])[0]
        browser = "text/html" in headers.get("accept", "")
        keys = (f"address {self._address(scope, headers)}", f"account {name[:64]}")
        wait = self.brake.wait(*keys)
        if wait > 0:
            text = f"too many wrong passwords; try again in {wait:.0f} s"
            refused = HTMLResponse(_page(text), 429) if browser else _line(text, 429)
            refused.headers["retry-after"] = str(int(wait) + 1)
            return refused
        self.brake.failed(*keys)
        known = hashes.get(name, self._nobody)
        if not await run_in_threadpool(verify_password, password, known) or name not in hashes:
            text = "name or password is wrong"
            return HTMLResponse(_page(text), 401) if browser else _line(text, 401)
        self.brake.passed(*keys)
        answer: Response = (
            RedirectResponse("/", 303) if browser else JSONResponse({"success": True})
        )
        answer.set_cookie(
            COOKIE,
            self.sessions.begin(name),
            max_age=SESSION_SECONDS,
            path="/",
            httponly=True,
            samesite="strict",
            secure="https" in (scope["scheme"], headers.get("x-forwarded-proto", "")),
        )
        return answer


class _Limited:
    """A request's body, up to a number of bytes."""

    def __init__(self, receive: Receive, headers: Headers, most: int) -> None:
        self._receive, self._most, self._seen = receive, most, 0
        told = headers.get("content-length", "0")
        self._over = not told.isdecimal() or int(told) > most

    async def read(self, most: int) -> bytes | None:
        """The whole body, None when it is longer than `most`."""
        body = b""
        while True:
            message = await self._receive()
            body += message.get("body", b"")
            if len(body) > most:
                return None
            if not message.get("more_body"):
                return body

    async def pass_on(self, app: ASGIApp, scope: Scope, send: Send) -> None:
        """Let the application read it; too long a one is answered with 413."""
        begun = False

        async def counted() -> Message:
            message = await self._receive()
            self._seen += len(message.get("body", b""))
            if self._seen > self._most:
                raise _TooLongError
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if self._over:
                raise _TooLongError
            await app(scope, counted, noted)
        except _TooLongError:
            if not begun:
                answer = _line(f"more than {self._most >> 20} MiB is too much to send at once", 413)
                await answer(scope, self._receive, send)


class _TooLongError(Exception):
    """A body went past its limit."""


def _peer(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])


def _token(headers: Headers) -> str:
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _signed(scope: Scope, account: str) -> Scope:
    """The scope with the account in our header, whatever the client had put there."""
    kept = [(k, v) for k, v in scope["headers"] if k.lower() != ACCOUNT_HEADER.encode()]
    return {**scope, "headers": [*kept, (ACCOUNT_HEADER.encode(), account.encode())]}


def _with_headers(send: Send, path: str) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if not path.startswith(_CACHED):
                headers["cache-control"] = "no-store"
        await send(message)

    return sent


def _ask(headers: Headers, path: str) -> Response:
    """Browsers that open the page are sent to log in; everything else is told 401."""
    if "text/html" in headers.get("accept", "") and path in ("", "/"):
        return RedirectResponse("/login", 303)
    return _line("log in first", 401)


def _line(message: str, status: int) -> Response:
    return Response(json.dumps({"detail": message}), status, media_type="application/json")


def _page(message: str) -> str:
    note = f'<p role="alert">{html.escape(message)}</p>' if message else ""
    return _LOGIN.replace("<!--note-->", note)


_LOGIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>ELF Studio: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 20rem; margin: 15vh auto; padding: 0 1rem }
label { display: block; margin: 1rem 0 } [role=alert] { font-weight: 600 }
input, button { font: inherit; width: 100%; padding: .5rem; box-sizing: border-box }
</style></head><body><main><h1>ELF Studio</h1><!--note-->
<form method="post" action="/login">
<label>Name <input name="username" autocomplete="username" autocapitalize="none"></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required>
</label><button>Log in</button></form></main></body></html>
"""
