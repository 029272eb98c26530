"""Data sets by name, from the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elf_engine import model_dir
from elf_engine.errors import ElfError

PATTERNS = ("*.arrow", "*.parquet", "*.jsonl", "*.jsonl.gz", "*.txt")
# fetch(name, directory, patterns): download the data set's files that match.
Fetch = Callable[[str, Path, tuple[str, ...]], None]


def local(name: str, fetch: Fetch | None = None) -> Path:
    """The folder or file `name`, or the Hub's data set of that name, downloaded once.
    "owner/name:folder" takes one folder of it (a split).

    Raises ElfError when there is no such path and the Hub does not answer or has none.
    """
    path = Path(name)
    if path.exists():
        return path
    repo, _, folder = name.partition(":")
    if repo.count("/") != 1 or name.startswith((".", "/")):
        raise ElfError(f"no data at '{name}'; give a file, a folder, or a Hub name owner/name")
    place = model_dir.home() / "data" / repo.replace("/", "--")
    place.mkdir(parents=True, exist_ok=True)
    patterns = tuple(f"{folder}/{p}" for p in PATTERNS) if folder else PATTERNS
    try:
        (fetch or _fetch)(repo, place, patterns)
    # The Hub client raises its own errors, its HTTP library's and the system's.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ElfError(
            f"data set '{repo}' could not be downloaded ({reason[:200]}); copy its files into a "
            "folder and give its path"
        ) from error
    return place / folder if folder else place


def _fetch(name: str, directory: Path, patterns: tuple[str, ...]) -> None:
    from huggingface_hub import HfApi, snapshot_download

    # Asked for first: with files already there an unreachable Hub would pass for success.
    revision = HfApi().dataset_info(name).sha
    snapshot_download(
        name, repo_type="dataset", revision=revision, local_dir=directory,
        allow_patterns=list(patterns),
    )  # fmt: skip
