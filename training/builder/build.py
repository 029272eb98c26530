"""`elf-data build`: fetch, extract part by part, merge, and say in a manifest what was done.

Every file appears whole, by a rename; a killed build goes on where it was. A part's file is named
after its packages' checksums and the rules' version, so that a changed package is read anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elf_engine.errors import ElfError
from training.builder.clean import RULES, RULES_VERSION
from training.builder.fetch import (
    INDEXES,
    Package,
    PackageSource,
    describe,
    licence,
    sha256,
    unpack,
)
from training.builder.files import only_one, whole
from training.builder.merge import merge
from training.builder.parts import Part, fault, parts

Say = Callable[[str], None]


class Build:
    """One build in `out`; its working files lie in `out/work`."""

    def __init__(self, out: Path, source: PackageSource, say: Say) -> None:
        self.out, self.work, self.source, self.say = out, out / "work", source, say
        self.packages: dict[str, Package] = {}
        self.missing: list[str] = []

    def fetch_all(self, wanted: list[Part]) -> None:
        """Every package of the parts; those that do not exist are gathered in `missing`."""
        names = list(dict.fromkeys(n for part in wanted for n in part.packages))
        store = self.work / "packages"
        store.mkdir(parents=True, exist_ok=True)
        for i, name in enumerate(names, 1):
            if name in INDEXES:
                if not self.source.indexes(name):
                    self.missing.append(name)
                continue
            have = [f for s in (".deb", ".tar.gz") if (f := store / (name + s)).is_file()]
            file = have[0] if have else self.source.fetch(name, store)
            if file is None:
                self.missing.append(name)
                continue
            if not have:
                self.say(f"[{i}/{len(names)}] {file.name}")
            self.packages[name] = describe(name, file)

    def _indexes(self) -> dict[str, Path]:
        """A folder of files for each kind of index, copied so that they stay as they are."""
        roots = {}
        for kind in INDEXES:
            root = self.work / "indexes" / kind
            if not root.is_dir():
                part = root.with_name(root.name + ".part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                for file in self.source.indexes(kind):
                    shutil.copy(file, part)
                os.replace(part, root)
            roots[kind] = root
        return roots

    def _key(self, part: Part) -> str:
        mark = hashlib.sha256(f"rules {RULES_VERSION}".encode())
        for name in part.packages:
            if name in INDEXES:
                for file in sorted(self._indexes()[name].iterdir()):
                    mark.update(sha256(file).encode())
            else:
                mark.update(self.packages[name].sha256.encode())
        return mark.hexdigest()[:16]

    def extract(self, part: Part) -> Path:
        """The part's rows, made unless they are there."""
        file = self.work / "parts" / f"{part.name}-{self._key(part)}.jsonl.gz"
        if file.is_file():
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        unpacked = self.work / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        roots = {n: self._unpack(n, unpacked) for n in part.packages if n not in INDEXES}
        roots |= self._indexes() if part.packages == INDEXES else {}
        left_out: Counter[str] = Counter()
        kept = 0
        with whole(file) as out:
            for stem, row in part.extract(roots):
                reason = fault(stem, row)
                if reason:
                    left_out[f"{stem}: {reason}"] += 1
                    continue
                kept += 1
                out.write(json.dumps([stem, row], ensure_ascii=False) + "\n")
            out.write(json.dumps(["", dict(sorted(left_out.items()))]) + "\n")
        shutil.rmtree(unpacked, ignore_errors=True)
        self.say(f"{part.name}: {kept} rows, {left_out.total()} left out")
        return file

    def _unpack(self, name: str, directory: Path) -> Path:
        package = self.packages[name]
        root = unpack(package, directory / name)
        names, text = licence(package, root)
        folder = self.work / "licences"
        folder.mkdir(exist_ok=True)
        with whole(folder / f"{name}.txt") as out:
            out.write(f"{names}\n\n{text}")
        return root

    def manifest(self, wanted: list[Part], files: dict[str, Any]) -> dict[str, Any]:
        """What was read, by which rules, and what came of it."""
        said = {n: (self.work / f"licences/{n}.txt").read_text("utf-8") for n in self.packages}
        return {
            "format": 1,
            "rules": RULES,
            "rules_version": RULES_VERSION,
            "split": "sha1(key) mod 50: 7 is test, 8 is validation, all else train",
            "packages": [
                {
                    "name": p.name,
                    "version": p.version,
                    "registry": p.registry,
                    "sha256": p.sha256,
                    "licence": said[p.name].partition("\n")[0],
                }
                for p in self.packages.values()
            ],
            "indexes": {
                file.name: sha256(file)
                for part in wanted if part.packages == INDEXES
                for root in self._indexes().values() for file in sorted(root.iterdir())
            },
            "missing": self.missing,
            "files": files,
        }  # fmt: skip


def build(
    out: Path, source: PackageSource, say: Say, allow_missing: bool = False
) -> dict[str, Any]:
    """Build the corpus in `out`; its manifest, which is also `out/manifest.json`.

    Raises ElfError when packages are missing (unless allowed), damaged or cannot be had.
    """
    work = Build(out, source, say)
    with only_one(work.work):
        wanted = parts()
        work.fetch_all(wanted)
        if work.missing and not allow_missing:
            raise ElfError(
                f"{len(work.missing)} packages are not to be had: {', '.join(work.missing)}; "
                "--allow-missing builds without them"
            )
        if work.missing:
            say(f"without {len(work.missing)} packages: {', '.join(work.missing)}")
        wanted = [part for part in wanted if not set(part.packages) & set(work.missing)]
        used = {name for part in wanted for name in part.packages}
        work.packages = {n: p for n, p in work.packages.items() if n in used}
        files = merge([work.extract(part) for part in wanted], work.work / "merged", out, say)
        found = work.manifest(wanted, files)
        licences = out / "licences"
        shutil.copytree(work.work / "licences", licences, dirs_exist_ok=True)
        with whole(out / "manifest.json") as text:
            json.dump(found, text, indent=1, ensure_ascii=False)
    return found
