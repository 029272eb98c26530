"""The few engines kept in memory, loaded in a thread of their own so that no run has to wait."""

from __future__ import annotations

import gc
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from elf_engine.errors import ElfError

log = logging.getLogger(__name__)

KEPT_ENGINES = 2
Key = tuple[str, str]  # model, backend


def attempt(what: str, action: Callable[[], object]) -> str | None:
    """None, or one line about what went wrong. A defect's traceback goes to the log."""
    try:
        action()
    except ElfError as error:
        return str(error)
    except MemoryError:
        log.exception("%s ran out of memory", what)
        return "there is not enough memory for this; try fewer candidates or a smaller length"
    except Exception as error:
        log.exception("%s failed", what)
        kind = type(error).__name__
        return f"something went wrong inside ELF Studio ({kind}); its log says more"
    return None


class Engines:
    """Engines by model and backend. `changed` is called, without a lock, when one was loaded or
    could not be. Never more than KEPT_ENGINES at once, the one being loaded included."""

    def __init__(self, load: Callable[[str, str], Any], changed: Callable[[], None]) -> None:
        self._load, self._tell = load, changed
        self._lock = threading.Condition()
        self._loaded: OrderedDict[Key, Any] = OrderedDict()
        self._failed: dict[Key, str] = {}
        self._wanted: deque[Key] = deque()
        self._ahead: deque[Key] = deque()
        self._held: set[Key] = set()
        self._closed = False
        self._loader = threading.Thread(target=self._work, name="elf-loader", daemon=True)
        self._loader.start()

    def loaded(self) -> list[Key]:
        with self._lock:
            return list(self._loaded)

    def has(self, key: Key) -> bool:
        with self._lock:
            return key in self._loaded

    def want(self, key: Key) -> None:
        """Load it, unless that is under way."""
        with self._lock:
            self._failed.pop(key, None)
            if key not in self._wanted:
                self._wanted.append(key)
            self._lock.notify_all()

    def warm(self, key: Key) -> None:
        """Load it when nobody asks for another; a failure is only logged."""
        with self._lock:
            self._ahead.append(key)
            self._lock.notify_all()

    def hold(self, keys: set[Key]) -> None:
        """These are in use and stay."""
        with self._lock:
            self._held = keys
            self._lock.notify_all()

    @property
    def starved(self) -> bool:
        """An engine is wanted, and all there is room for are in use."""
        with self._lock:
            return bool(self._wanted) and self._room(self._wanted[0]) is None

    def settled(self, key: Key) -> bool:
        """`get` will answer at once. The engine is held from here on."""
        with self._lock:
            if key in self._loaded:
                self._held = {*self._held, key}
            elif key not in self._failed and key not in self._wanted:
                self._wanted.append(key)  # it was let go before its run began
                self._lock.notify_all()
            return key in self._loaded or key in self._failed

    def get(self, key: Key) -> Any:
        """The engine. Raises ElfError when it could not be loaded."""
        with self._lock:
            if key in self._failed:
                raise ElfError(self._failed[key])
            self._loaded.move_to_end(key)
            return self._loaded[key]

    def close(self, timeout: float | None) -> bool:
        """Load no more. False when one is still being loaded after `timeout` seconds."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._loader.join(timeout)
        return not self._loader.is_alive()

    def _room(self, key: Key) -> list[Key] | None:
        """What must be let go to load `key`, least used first; None when all is in use."""
        if key in self._loaded:
            return []
        spare = [k for k in self._loaded if k not in self._held]
        excess = len(self._loaded) + 1 - KEPT_ENGINES
        return spare[: max(0, excess)] if len(spare) >= excess else None

    def _next(self) -> Key | None:
        for line in (self._wanted, self._ahead):
            if line and self._room(line[0]) is not None:
                return line[0]
        return None

    def _work(self) -> None:
        while True:
            with self._lock:
                while (key := self._next()) is None and not self._closed:
                    self._lock.wait()
                if self._closed or key is None:
                    return
                let_go = self._room(key) or ()
                for old in let_go:
                    del self._loaded[old]  # before loading, so that memory never holds more
                needed = key not in self._loaded
            if let_go:
                gc.collect()  # an engine and its compiled programs refer to each other
            if needed:
                self._make(key)
            with self._lock:
                self._settle(key)
            self._tell()

    def _make(self, key: Key) -> None:
        def make() -> None:
            engine = self._load(*key)
            with self._lock:
                self._loaded[key] = engine

        message = attempt("loading", make)
        if message is None:
            return
        with self._lock:
            if key in self._wanted:
                self._failed[key] = message
            else:
                log.warning("loading ahead: %s", message)

    def _settle(self, key: Key) -> None:
        for line in (self._wanted, self._ahead):
            if key in line:
                line.remove(key)
