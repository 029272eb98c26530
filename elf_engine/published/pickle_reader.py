"""Read a pickle of nested dicts of NumPy arrays as data, without executing it.

A pickle is a program for a stack machine. Python's own loader imports and calls whatever the
program names; this one walks the opcodes with `pickletools.genops`, which only parses them, and
knows just the few that build dicts, strings, numbers, bytes, tuples and arrays. Globals are never
imported: the four callables NumPy writes are recognised by name and their effect is rebuilt here.
Everything else is refused by name.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elf_engine.errors import ElfError

MAX_BYTES = 4 << 30
# An encoder of 24 layers takes about 10,000.
MAX_OPCODES = 100_000
MAX_DEPTH = 32
# What may be stored: engine weights are these or become float32 exactly.
DTYPES = ("f2", "f4")

Tree = dict[str, Any]

# The globals NumPy arrays name, and what this module calls them. None is ever imported.
_GLOBALS = {
    "numpy.core.multiarray _reconstruct": "_reconstruct",
    "numpy._core.multiarray _reconstruct": "_reconstruct",
    "numpy.core.numeric _frombuffer": "_frombuffer",
    "numpy._core.numeric _frombuffer": "_frombuffer",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
    "__builtin__ bytes": "bytes",
}


def read_pickle(path: Path) -> Tree:
    """The tree of dicts and arrays in pickle `path`; its arrays are read-only.

    Raises ElfError, naming the opcode or global and its byte, for anything that is not such a tree,
    and for a truncated or overlong file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ElfError(f"{path.name}: larger than {MAX_BYTES >> 30} GiB, not an encoder pickle")
        data = path.read_bytes()
    except OSError as error:
        raise ElfError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        return read_pickle_bytes(data)
    except ElfError as error:
        raise ElfError(f"{path.name}: {error}") from error


def read_pickle_bytes(data: bytes) -> Tree:
    """`read_pickle` of bytes."""
    machine, position, stream = _Machine(len(data)), 0, io.BytesIO(data)
    try:
        for count, (opcode, argument, at) in enumerate(pickletools.genops(stream)):
            position = at or 0
            if count > MAX_OPCODES:
                raise _RefusedError("has too many opcodes for an encoder")
            step = _STEPS.get(opcode.name)
            if step is None:
                raise _RefusedError(f"uses opcode {opcode.name}")
            step(machine, argument)
        if stream.tell() != len(data):
            raise _RefusedError(f"goes on for {len(data) - stream.tell()} bytes after its end")
        return _checked_tree(machine.pop())
    except _RefusedError as refused:
        raise ElfError(
            f"the pickle {refused} at byte {position}; only dicts of arrays are read"
        ) from refused
    # pickletools raises these for bytes that are no pickle, or end too early.
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "malformed"
        raise ElfError(f"truncated or not a pickle after byte {position} ({reason})") from error


class _RefusedError(Exception):
    """The pickle asks for something that is not read. Not a ValueError, see above."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass
class _Dtype:
    code: str
    order: str = "="


@dataclass
class _Array:
    value: npt.NDArray[Any] | None = None


@dataclass
class _Machine:
    """The stack machine's state. `marks` are stack heights; `budget` is how many bytes strings may
    still become, no more than the file holds, so that a short program cannot fill the memory."""

    budget: int
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) <= floor:
            raise _RefusedError("takes from an empty stack")
        return self.stack.pop()

    def encode(self, text: str) -> bytes:
        """How protocols 0 to 2 write bytes: a string to encode as Latin-1."""
        self.budget -= len(text)
        if self.budget < 0:
            raise _RefusedError("makes more bytes than the file holds")
        return text.encode("latin1")

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise _RefusedError("uses a mark that is not there")
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items


def _push_argument(machine: _Machine, argument: Any) -> None:
    machine.push(argument)


def _push_bytes(machine: _Machine, argument: Any) -> None:
    # Immutable, so that arrays made of it share it.
    machine.push(bytes(argument))


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(value)


def _nothing(machine: _Machine, argument: Any) -> None:
    """PROTO, FRAME, STOP: bookkeeping that builds nothing."""


def _mark(machine: _Machine, _: Any) -> None:
    machine.marks.append(len(machine.stack))


def _empty_dict(machine: _Machine, _: Any) -> None:
    machine.push({})


def _dict(machine: _Machine, _: Any) -> None:
    items = machine.pop_to_mark()
    machine.push({})
    _set(machine, items)


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    _set(machine, [key, value])


def _set_items(machine: _Machine, _: Any) -> None:
    _set(machine, machine.pop_to_mark())


def _set(machine: _Machine, items: list[Any]) -> None:
    target = machine.pop()
    machine.push(target)
    if not isinstance(target, dict) or len(items) % 2:
        raise _RefusedError("sets items on something that is not a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str):
            raise _RefusedError(f"has a key of type {type(key).__name__}")
        if key in target:
            raise _RefusedError(f"sets the key '{key[:80]}' twice")
        target[key] = value


def _tuple(size: int) -> Callable[[_Machine, Any], None]:
    def build(machine: _Machine, _: Any) -> None:
        machine.push(tuple(machine.pop() for _ in range(size))[::-1])

    return build


def _marked_tuple(machine: _Machine, _: Any) -> None:
    machine.push(tuple(machine.pop_to_mark()))


def _memoize(machine: _Machine, _: Any) -> None:
    _put(machine, len(machine.memo))


def _put(machine: _Machine, argument: Any) -> None:
    value = machine.pop()
    machine.push(value)
    machine.memo[int(argument)] = value


def _get(machine: _Machine, argument: Any) -> None:
    if int(argument) not in machine.memo:
        raise _RefusedError(f"reads memo {argument}, which was never written")
    machine.push(machine.memo[int(argument)])


def _global(machine: _Machine, argument: Any) -> None:
    _push_global(machine, argument)


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise _RefusedError("names a global by something that is not a string")
    _push_global(machine, f"{module} {name}")


def _push_global(machine: _Machine, name: str) -> None:
    if name not in _GLOBALS:
        raise _RefusedError(f"names the global {name.replace(' ', '.')[:120]!r}")
    machine.push(_Global(_GLOBALS[name]))


def _reduce(machine: _Machine, _: Any) -> None:
    """REDUCE: `callable(*arguments)`, for the recognised callables only."""
    arguments, function = machine.pop(), machine.pop()
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise _RefusedError("calls something that is not a known function")
    match function.name, arguments:
        case "encode", (str(text), "latin1"):
            machine.push(machine.encode(text))
        case "bytes", ():
            machine.push(b"")
        case "dtype", (str(code), bool() | 0 | 1, bool() | 0 | 1):
            if code not in DTYPES:
                raise _RefusedError(f"holds numbers of type {code[:40]!r}, not f2 or f4")
            machine.push(_Dtype(code))
        case "_reconstruct", (_Global("ndarray"), (0,), b"b"):
            machine.push(_Array())
        case "_frombuffer", (raw, _Dtype() as dtype, shape, "C" | "F" as order):
            machine.push(_Array(_array(raw, dtype, shape, order)))
        case _:
            raise _RefusedError(f"calls {function.name} with unknown arguments")


def _build(machine: _Machine, _: Any) -> None:
    """BUILD: give a dtype its byte order, or an array its shape, dtype and bytes."""
    state, target = machine.pop(), machine.pop()
    match target, state:
        case _Dtype(), (3 | 4, "<" | ">" | "=" as order, None, None, None, -1, -1, 0):
            target.order = order
        case _Array(value=None), (1, shape, _Dtype() as dtype, bool() | 0 | 1 as fortran, raw):
            target.value = _array(raw, dtype, shape, "F" if fortran else "C")
        case _:
            raise _RefusedError(
                f"builds a {type(target).__name__.strip('_').lower()} in an unknown way"
            )
    machine.push(target)


def _array(raw: Any, dtype: _Dtype, shape: Any, order: Any) -> npt.NDArray[Any]:
    if not isinstance(raw, bytes):
        raise _RefusedError("makes an array of something that is not bytes")
    if not isinstance(shape, tuple) or len(shape) > MAX_DEPTH:
        raise _RefusedError("makes an array of a shape that is not a tuple of sizes")
    if not all(type(n) is int and 0 <= n <= MAX_BYTES for n in shape):
        raise _RefusedError("makes an array of a shape that is not a tuple of sizes")
    kind = np.dtype(dtype.order + dtype.code)
    if math.prod(shape) * kind.itemsize != len(raw):
        raise _RefusedError(f"makes an array of shape {shape} from {len(raw)} bytes")
    return np.frombuffer(raw, kind).reshape(shape, order=order)


def _checked_tree(top: Any, depth: int = 0, seen: set[int] | None = None) -> Tree:
    """Dicts of finished arrays, each dict in one place only: no cycles, no exponential sharing."""
    seen = set() if seen is None else seen
    if not isinstance(top, dict):
        raise _RefusedError(
            f"holds a {type(top).__name__.strip('_').lower()} where a dict is expected"
        )
    if depth > MAX_DEPTH or id(top) in seen:
        raise _RefusedError("nests its dicts too deeply or holds one dict twice")
    seen.add(id(top))
    tree: Tree = {}
    for key, value in top.items():
        if isinstance(value, _Array) and value.value is not None:
            tree[key] = value.value
        elif isinstance(value, dict):
            tree[key] = _checked_tree(value, depth + 1, seen)
        else:
            raise _RefusedError(f"holds under '{key[:80]}' neither an array nor a dict")
    return tree


_ARGUMENTS = (
    "INT LONG LONG1 LONG4 BININT BININT1 BININT2 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8"
)
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(_ARGUMENTS.split(), _push_argument),
    "BYTEARRAY8": _push_bytes,
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "MEMOIZE": _memoize,
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "MARK": _mark,
    "EMPTY_DICT": _empty_dict,
    "DICT": _dict,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "EMPTY_TUPLE": _constant(()),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "TUPLE": _marked_tuple,
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
}
