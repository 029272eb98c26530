"""Accounts: names and hashed passwords in a file, signed sessions, and a brake on guessing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elf_engine.errors import ElfError

SESSION_SECONDS = 7 * 24 * 3600
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FEWEST_LETTERS = 8
_LOG_N, _R, _P = 15, 8, 1  # scrypt: 32 MiB and about a tenth of a second a try
_FREE_TRIES = 4
_LONGEST_WAIT = 900.0
_REMEMBERED = 10_000


def hash_password(password: str) -> str:
    """scrypt with a salt of its own, as `scrypt$15$8$1$salt$hash`. Raises ElfError when short."""
    if len(password) < _FEWEST_LETTERS:
        raise ElfError(f"a password needs at least {_FEWEST_LETTERS} characters")
    salt = secrets.token_bytes(16)
    made = _scrypt(password, salt, _LOG_N, _R, _P)
    return "$".join(["scrypt", str(_LOG_N), str(_R), str(_P), _text(salt), _text(made)])


def verify_password(password: str, hashed: str) -> bool:
    """Whether `hash_password` made this of it, in time that does not tell how near it was."""
    try:
        kind, log_n, r, p, salt, made = hashed.split("$")
        found = _scrypt(password, _bytes(salt), int(log_n), int(r), int(p))
        return kind == "scrypt" and hmac.compare_digest(found, _bytes(made))
    except (ValueError, TypeError, OverflowError):  # a damaged hash
        return False


def _scrypt(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    given = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(given, salt=salt, n=1 << log_n, r=r, p=p, maxmem=1 << 28, dklen=32)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def default_file() -> Path:
    """Where `elf accounts` keeps accounts unless told otherwise."""
    from elf_engine.model_dir import home  # numpy comes with it

    return home() / "accounts"


def check_name(name: str) -> str:
    """The name, if it may be one. Raises ElfError."""
    if not _NAME.fullmatch(name):
        raise ElfError(
            f"account name '{name[:70]}' is not 1 to 64 of a-z, 0-9, '.', '_' and '-' "
            "that begin with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class AccountFile:
    """Lines `name:hash`. Read anew each time, so that a change counts at once."""

    path: Path

    def read(self) -> dict[str, str]:
        """Hash by name. Raises ElfError when the file is missing or damaged."""
        try:
            lines = self.path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            raise ElfError(
                f"no accounts in {self.path}; make one with `elf accounts add NAME`"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ElfError(f"accounts {self.path} cannot be read: {error}") from error
        found: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            name, colon, hashed = line.partition(":")
            if not line.strip():
                continue
            if not (colon and _NAME.fullmatch(name) and hashed.count("$") == 5):
                raise ElfError(f"accounts {self.path}: line {number} is no `name:hash`")
            found[name] = hashed
        return found

    def set(self, name: str, password: str) -> bool:
        """Add an account or give it another password; True when it is new."""
        known = self.read() if self.path.exists() else {}
        new = check_name(name) not in known
        self._write({**known, name: hash_password(password)})
        return new

    def remove(self, name: str) -> None:
        """Take an account away; its sessions end with it. Raises ElfError if there is none."""
        known = self.read()
        if name not in known:
            raise ElfError(f"no account '{name[:70]}' in {self.path}")
        self._write({n: h for n, h in known.items() if n != name})

    def _write(self, known: Mapping[str, str]) -> None:
        beside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(
                os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w"
            ) as out:
                out.writelines(f"{name}:{hashed}\n" for name, hashed in sorted(known.items()))
            beside.replace(self.path)
        except OSError as error:
            raise ElfError(f"accounts {self.path} cannot be written: {error}") from error


@dataclass
class Sessions:
    """Signed tokens `account.expiry.nonce.signature`. Another password, or none, ends them; so
    does logging out, and a restart of the server, which draws another key."""

    hashes: Callable[[], Mapping[str, str]]
    now: Callable[[], float] = time.time
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _ended: dict[str, float] = field(default_factory=dict)

    def begin(self, account: str) -> str:
        """A token for an account that has just proved itself."""
        body = f"{_text(account.encode())}.{int(self.now()) + SESSION_SECONDS}"
        body = f"{body}.{secrets.token_urlsafe(12)}"
        return f"{body}.{self._sign(body, self.hashes()[account])}"

    def account(self, token: str) -> str | None:
        """Whose valid token this is, or None."""
        body, _, signature = token.rpartition(".")
        try:
            name, expiry, nonce = body.split(".")
            account = _bytes(name).decode()
            hashed = self.hashes().get(account)
            valid = hashed is not None and hmac.compare_digest(
                self._sign(body, hashed).encode(), signature.encode("utf-8", "replace")
            )
            alive = valid and self.now() < int(expiry) and nonce not in self._ended
        except ValueError:
            return None
        return account if alive else None

    def end(self, token: str) -> None:
        """Make a valid token invalid."""
        if self.account(token) is not None:
            _, expiry, nonce, _ = token.split(".")
            now = self.now()
            self._ended = {n: until for n, until in self._ended.items() if until > now}
            self._ended[nonce] = float(expiry)

    def _sign(self, body: str, hashed: str) -> str:
        return _text(hmac.digest(self.key, f"{body}\n{hashed}".encode(), "sha256"))


class Brake:
    """Failed log-ins by address and by account: after a few, each doubles the wait."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, *keys: str) -> float:
        """Seconds until the next try is looked at; 0 when it may be made now."""
        until = [self._failed[key][1] for key in keys if key in self._failed]
        return max(0.0, max(until, default=0.0) - self._now())

    def failed(self, *keys: str) -> None:
        """Note a wrong password. Call it before the slow check and `passed` after it, so that
        tries made at once count."""
        for key in keys:
            count = self._failed.pop(key, (0, 0.0))[0] + 1
            pause = min(_LONGEST_WAIT, 2.0 ** (count - _FREE_TRIES)) if count > _FREE_TRIES else 0.0
            self._failed[key] = (count, self._now() + pause)
        while len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)

    def passed(self, *keys: str) -> None:
        """Forget what failed before."""
        for key in keys:
            self._failed.pop(key, None)
