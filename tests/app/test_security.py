"""Each promise of docs/security.md, at the guard alone and at the real page behind it."""

from __future__ import annotations

import gc
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from app import accounts, server, ui
from app.accounts import AccountFile, Brake, Sessions, hash_password, verify_password
from app.cli import cli
from app.guard import ACCOUNT_HEADER, COOKIE, MOST_BYTES, Access, Guard
from app.service import Service
from app.store import Store
from elf_engine.errors import ElfError
from tests.app.fake import FakeWorld

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Gradio leaves event loops of its own unclosed when it is built.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SECRET = "correct horse"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_LOG_N", 4)


@pytest.fixture
def people(tmp_path: Path) -> AccountFile:
    made = AccountFile(tmp_path / "accounts")
    made.set("anna", SECRET)
    made.set("ben", SECRET + "2")
    return made


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands for Gradio: says who it takes the person for, and how much was sent."""
    request = Request(scope, receive)
    body = await request.body()
    answer = f"{request.headers.get(ACCOUNT_HEADER)} {len(body)}"
    await PlainTextResponse(answer)(scope, receive, send)


def client(access: Access, brake: Brake | None = None, **given: Any) -> TestClient:
    guard = Guard(inner, access, lambda: {"running": 0}, lambda: True, brake or Brake())
    options = {"base_url": "http://localhost", "client": ("192.0.2.7", 1), **given}
    return TestClient(guard, follow_redirects=False, **options)


def log_in(to: TestClient, name: str = "anna", password: str = SECRET) -> httpx.Response:
    return to.post("/login", data={"username": name, "password": password})  # type: ignore[return-value]


# --- where it listens -------------------------------------------------------------------------


def test_others_are_let_in_only_when_they_have_to_say_who_they_are(people: AccountFile) -> None:
    assert not server.Door().access("127.0.0.1").closed
    for host in ("0.0.0.0", "::", "192.168.1.4"):
        with pytest.raises(ElfError, match=r"ELF_PASSWORD.*--accounts.*--proxy-user-header"):
            server.Door().access(host)
        for door in (
            server.Door(password=SECRET),
            server.Door(accounts=people.path),
            server.Door(proxy_header="X-Forwarded-User"),
        ):
            assert door.access(host).closed


def test_the_command_refuses_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELF_PASSWORD", raising=False)
    done = CliRunner().invoke(cli, ["serve", "--host", "0.0.0.0", "--port", "0"])
    assert done.exit_code == 2
    assert "can be reached by others" in done.stderr


def test_a_short_password_or_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="at least 8"):
        server.Door(password="short").access("0.0.0.0")
    with pytest.raises(ElfError, match="elf accounts add"):
        server.Door(accounts=tmp_path / "none").access("0.0.0.0")
    (tmp_path / "bad").write_text("anna:plain password\n")
    with pytest.raises(ElfError, match="line 1"):
        server.Door(accounts=tmp_path / "bad").access("0.0.0.0")


def test_another_name_for_this_machine_is_not_answered() -> None:
    open_here = client(server.Door().access("127.0.0.1"))
    assert open_here.get("/").status_code == 200
    assert open_here.get("/", headers={"host": "evil.example"}).status_code == 400


# --- accounts ---------------------------------------------------------------------------------


def test_passwords_are_kept_hashed_and_private(people: AccountFile) -> None:
    assert SECRET not in people.path.read_text()
    assert stat.S_IMODE(people.path.stat().st_mode) == 0o600
    hashed = people.read()["anna"]
    assert verify_password(SECRET, hashed)
    assert not verify_password(SECRET + " ", hashed)
    assert hash_password(SECRET) != hash_password(SECRET), "salted"
    for damaged in ("", "scrypt$4$8$1$x", "md5$4$8$1$eA$eA", "scrypt$99$8$1$eA$eA"):
        assert not verify_password(SECRET, damaged)


def test_accounts_on_the_command_line(tmp_path: Path) -> None:
    file = ["--file", str(tmp_path / "a")]
    run = CliRunner().invoke
    assert run(cli, ["accounts", "add", "eva", *file], input=f"{SECRET}\n{SECRET}\n").exit_code == 0
    assert run(cli, ["accounts", "list", *file]).stdout == "eva\n"
    assert run(cli, ["accounts", "remove", "eva", *file]).exit_code == 0
    assert run(cli, ["accounts", "list", *file]).stdout == ""
    bad = run(cli, ["accounts", "add", "Eva:x", "--password", SECRET, *file])
    assert (bad.exit_code, "account name" in bad.stderr) == (2, True)


def test_nothing_is_answered_before_logging_in(people: AccountFile) -> None:
    page = client(Access(people.read))
    for path in ("/config", "/gradio_api/info", "/gradio_api/queue/data", "/metrics", "/assets/x"):
        assert page.get(path).status_code == 401, path
    assert page.post("/gradio_api/upload").status_code == 401
    opened = page.get("/", headers={"accept": "text/html"})
    assert (opened.status_code, opened.headers["location"]) == (303, "/login")
    assert page.get("/health").json() == {"status": "ok"}
    assert log_in(page, "anna", "wrong password").status_code == 401
    assert log_in(page, "nobody").status_code == 401
    assert page.get("/config").status_code == 401


def test_a_session_is_its_accounts_and_cannot_be_made_up(people: AccountFile) -> None:
    page = client(Access(people.read))
    assert log_in(page).status_code == 200
    assert page.get("/x").text == "anna 0"
    assert page.get("/x", headers={ACCOUNT_HEADER: "ben"}).text == "anna 0"
    assert page.get("/metrics").json() == {"running": 0}
    cookie = page.cookies[COOKIE]
    name, expiry, nonce, signature = cookie.split(".")
    other = accounts._text(b"ben")
    page.cookies.clear()
    for forged in (
        f"{other}.{expiry}.{nonce}.{signature}",
        f"{name}.{int(expiry) + 1}.{nonce}.{signature}",
        "x",
        "....",
        "",
    ):
        assert page.get("/x", headers={"cookie": f"{COOKIE}={forged}"}).status_code == 401
    assert page.get("/x", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 200


def test_a_session_ends(people: AccountFile) -> None:
    clock = [1000.0]
    sessions = Sessions(people.read, now=lambda: clock[0])
    first, second = sessions.begin("anna"), sessions.begin("anna")
    sessions.end(first)
    assert (sessions.account(first), sessions.account(second)) == (None, "anna")
    clock[0] += accounts.SESSION_SECONDS
    assert sessions.account(second) is None, "by its age"
    third = sessions.begin("anna")
    people.set("anna", SECRET + "new")
    assert sessions.account(third) is None, "by another password"
    fourth = sessions.begin("anna")
    people.remove("anna")
    assert sessions.account(fourth) is None, "with its account"


def test_logging_out_and_the_cookies_flags(people: AccountFile) -> None:
    page = client(Access(people.read), base_url="https://localhost")
    flags = log_in(page).headers["set-cookie"].lower()
    assert all(flag in flags for flag in ("httponly", "samesite=strict", "secure"))
    cookie = page.cookies[COOKIE]
    assert page.post("/logout").status_code == 303
    assert page.get("/x", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 401


def test_guessing_is_braked_by_address_and_by_account(people: AccountFile) -> None:
    clock = [0.0]
    brake = Brake(lambda: clock[0])
    page = client(Access(people.read), brake)
    for _ in range(accounts._FREE_TRIES + 1):
        assert log_in(page, password="wrong password").status_code == 401
    refused = log_in(page)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3")
    assert log_in(page, "ben", SECRET + "2").status_code == 429, "the address"
    elsewhere = client(Access(people.read), brake, client=("192.0.2.8", 1))
    assert log_in(elsewhere).status_code == 429, "the account"
    assert log_in(elsewhere, "ben", SECRET + "2").status_code == 200
    waits = []
    for _ in range(12):
        brake.failed("address")
        waits.append(brake.wait("address"))
    assert waits[3:6] == [0, 2, 4]
    assert waits[-1] <= accounts._LONGEST_WAIT
    clock[0] += accounts._LONGEST_WAIT
    assert log_in(page).status_code == 200
    assert brake.wait("address 192.0.2.7") == 0


def test_one_password_without_names() -> None:
    page = client(server.Door(password=SECRET).access("0.0.0.0"))
    assert page.get("/x").status_code == 401
    assert log_in(page, "whoever").status_code == 200
    assert page.get("/x").text == " 0"


def test_only_the_proxy_may_name_people() -> None:
    access = Access(proxy_header="x-forwarded-user", proxies=("192.0.2.7",))
    proxied = client(access)
    assert proxied.get("/x", headers={"X-Forwarded-User": "anna"}).text == "anna 0"
    assert proxied.get("/x").status_code == 401
    direct = client(access, client=("192.0.2.66", 1))
    assert direct.get("/x", headers={"X-Forwarded-User": "anna"}).status_code == 401
    assert direct.get("/x", headers={"X-Forwarded-For": "192.0.2.7", "X-Forwarded-User": "a"})\
        .status_code == 401  # fmt: skip


# --- what is sent -----------------------------------------------------------------------------


def test_what_is_sent_is_limited() -> None:
    page = client(Access())
    assert page.post("/x", content=b"a" * 1000).text == " 1000"
    assert page.post("/x", content=b"a" * (MOST_BYTES + 1)).status_code == 413
    chunks = (b"a" * (1 << 20) for _ in range(9))
    assert page.post("/x", content=chunks).status_code == 413, "without a length, too"
    assert page.post("/x", content=b"a", headers={"content-length": "-5"}).status_code == 413


def test_other_sites_cannot_post() -> None:
    page = client(Access())
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"},
                    {"sec-fetch-site": "cross-site"}):  # fmt: skip
        assert page.post("/x", headers=headers).status_code == 403
    assert page.post("/x", headers={"origin": "http://localhost"}).status_code == 200


def test_every_answer_carries_the_headers() -> None:
    page = client(Access())
    for answer in (
        page.get("/x"),
        page.get("/health"),
        page.post("/x", headers={"origin": "null"}),
    ):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "connect-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
    assert "cache-control" not in page.get("/assets/x.js").headers


@pytest.mark.parametrize(
    "path",
    ["/gradio_api/proxy=http://evil.example", "/proxy=x", "/gradio_api/vibe-edit", "/monitoring",
     "/gradio_api/stream/x", "/gradio_api//proxy=x", "/gradio_api/profiling/traces"],
)  # fmt: skip
def test_what_gradio_has_and_the_page_does_not_use_is_closed(path: str) -> None:
    assert client(Access()).get(path).status_code == 404


# --- the page itself --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The real page with accounts; its address and a file that no one may read."""
    home = tmp_path_factory.mktemp("home")
    people = AccountFile(home / "accounts")
    people.set("anna", SECRET)
    store = Store(home / "history.db")
    service = Service(FakeWorld().runtime(), store)
    blocks = ui.build(service, store)
    access = server.Door(accounts=people.path).access("127.0.0.1")
    port = server.free_port("127.0.0.1", 0)
    url = server.launch(blocks, "127.0.0.1", port, block=False, access=access, service=service)
    gc.collect()  # here, where what Gradio has left open is not held against a test
    yield url, people.path
    blocks.close(verbose=False)
    service.close()
    store.close()


def test_no_path_of_a_request_reaches_the_files(page: tuple[str, Path]) -> None:
    url, secret = page
    root = Path(__file__).resolve().parents[2]
    with httpx.Client(base_url=url, timeout=60) as browser:
        for path in ("config", f"gradio_api/file={secret}"):
            assert browser.get(path).status_code == 401
        browser.post("login", data={"username": "anna", "password": SECRET}).raise_for_status()
        assert browser.get("config").status_code == 200
        for path in (secret, "/etc/passwd", root / "pyproject.toml", "../../etc/passwd",
                     "..%2f..%2fetc%2fpasswd", root / "app" / "server.py"):  # fmt: skip
            for route in ("gradio_api/file=", "gradio_api/file/", "static/", "assets/"):
                answer = browser.get(f"{route}{path}")
                assert answer.status_code in (401, 403, 404), (route, path, answer.status_code)
        up = {"files": ("../../../evil.txt", b"words")}
        answer = browser.post("gradio_api/upload", files=up)
        if answer.is_success:
            (kept,) = answer.json()
            assert Path(kept).name == "evil.txt"
            assert ".." not in kept
            assert not (root.parent / "evil.txt").exists()
        health = browser.get("health").json()
        facts = browser.get("metrics").json()
    assert health == {"status": "ok"}
    assert {
        "waiting",
        "running",
        "finished",
        "failed",
        "run_seconds",
        "memory_bytes",
        "loaded",
    } <= (facts.keys())
    assert facts["memory_bytes"] > 1 << 20
