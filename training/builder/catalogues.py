"""gettext catalogues: messages and their German translations."""

from __future__ import annotations

import html
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from elf_engine.errors import ElfError
from training.builder.clean import normalise, text_fault
from training.builder.rows import StemRow, pairs

_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*•])")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
# Keyboard accelerators: "&Open", "_Open".
_ACCELERATOR = re.compile(r"(?<!\w)[&_](?=\w)|(?<=\w)[&_](?=\w)(?!\w*_)")
_CONTEXT = re.compile(r"^[\w -]{1,60}\^")
_FORMAT = re.compile(r"%[-+ #0-9.*$lhjztL]*[a-zA-Z]|%\d|%\(|\{[^}]*\}|\$\{?\w+|@\w+@|\\[a-z]|`|\|")
GAMES = re.compile(
    r"^(wesnoth|freeciv|lordsawar|minetest|tuxpaint|pingus|colobot|gcompris|kgeography|openttd"
    r"|freeorion)"
)
TOOLS = re.compile(r"^(gcc|git|coreutils|gettext|dpkg)")


def messages(data: bytes) -> Iterator[tuple[str, str]]:
    """(msgid, msgstr) of a .mo file; contexts and plural forms beyond the first are dropped.

    Raises ElfError when it is none.
    """
    order = {0x950412DE: "<", 0xDE120495: ">"}.get(int.from_bytes(data[:4], "little"))
    if order is None or len(data) < 28:
        raise ElfError("not a gettext catalogue: wrong magic number")
    count, ids, translated = struct.unpack(f"{order}3I", data[8:20])

    def text(table: int, i: int) -> str:
        size, at = struct.unpack_from(f"{order}2I", data, table + 8 * i)
        return data[at : at + size].decode("utf-8", "replace").split("\0")[0]

    try:
        for i in range(count):
            yield text(ids, i).rpartition("\x04")[2], text(translated, i)
    except struct.error as error:
        raise ElfError("not a gettext catalogue: it is cut off") from error


def plain_text(message: str) -> str:
    """A message without tags, accelerators and a leading "context^"."""
    text = _TAG.sub("", html.unescape(_CONTEXT.sub("", message)))
    return " ".join(_ACCELERATOR.sub("", text).replace("\\n", " ").split())


def tier(package: str) -> str:
    """The tier of a package's messages: games tell stories, tools report."""
    if GAMES.match(package):
        return "A-games"
    return "C-techmsg" if TOOLS.match(package) else "C-ui"


def translations(data: bytes, package: str) -> Iterator[StemRow]:
    """Sentence pairs of one German catalogue."""
    for english, german in messages(data):
        if not english or not german or english == german:
            continue
        left, right = _PARAGRAPH.split(german), _PARAGRAPH.split(english)
        if len(left) != len(right):
            left, right = [german], [english]
        for de, en in zip(left, right, strict=True):
            if not _FORMAT.search(de) and not _FORMAT.search(en):
                yield from pairs(plain_text(de), plain_text(en), tier(package), f"mo:{package}")


def story(data: bytes) -> Iterator[StemRow]:
    """English messages of a game as prose (Wesnoth's story and dialogue)."""
    for english, _ in messages(data):
        text = normalise(plain_text(english))
        if not text_fault(text, 8, 120):
            yield "plain_more", {"text": text, "src": "wesnoth-story"}


def rows(package: str, root: Path) -> Iterator[StemRow]:
    """All German catalogues of an unpacked package. Lists of names (iso-codes) are left out."""
    for file in sorted(root.rglob("de/LC_MESSAGES/*.mo")):
        if not file.name.startswith("iso"):
            yield from translations(file.read_bytes(), package)
            if package.startswith("wesnoth"):
                yield from story(file.read_bytes())
