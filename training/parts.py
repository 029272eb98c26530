"""A model directory as a few files of limited size, to be carried where large files cannot go."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from elf_engine.errors import ElfError

PART_BYTES = 15 * 2**20  # under 16 MiB
INDEX = "parts.json"


def split(directory: Path, out: Path, size: int = PART_BYTES) -> list[Path]:
    """Pack `directory` into `out/NAME.tar.000`, ... of at most `size` bytes each, with an index of
    their hashes; the files written."""
    out.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(directory, arcname=directory.name)
    raw, written, index = packed.getbuffer(), [], []
    for number, start in enumerate(range(0, len(raw), size)):
        part = out / f"{directory.name}.tar.{number:03d}"
        part.write_bytes(raw[start : start + size])
        digest = hashlib.sha256(raw[start : start + size]).hexdigest()
        index.append({"file": part.name, "sha256": digest})
        written.append(part)
    (out / INDEX).write_text(json.dumps({"directory": directory.name, "parts": index}, indent=2))
    return [*written, out / INDEX]


def join(source: Path, out: Path) -> Path:
    """Put the parts in `source` together again: the directory `out`. Raises ElfError naming a part
    that is missing or damaged."""
    try:
        index = json.loads((source / INDEX).read_text("utf-8"))
        name, listed = str(index["directory"]), [(p["file"], p["sha256"]) for p in index["parts"]]
    except OSError as error:
        raise ElfError(f"'{source}' holds no {INDEX}; give the directory of the parts") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ElfError(f"{source / INDEX}: is damaged; copy it again") from error
    if out.exists():
        raise ElfError(f"'{out}' exists already; choose another place")
    packed = io.BytesIO()
    for file, digest in listed:
        part = source / Path(file).name
        raw = part.read_bytes() if part.is_file() else b""
        if hashlib.sha256(raw).hexdigest() != digest:
            raise ElfError(f"{part}: is missing or damaged; copy it again")
        packed.write(raw)
    packed.seek(0)
    scratch = out.parent / f".{out.name}.part"
    with tarfile.open(fileobj=packed) as tar:
        tar.extractall(scratch, filter="data")
    (scratch / name).rename(out)
    scratch.rmdir()
    return out
