"""Fetch published models from the Hugging Face Hub and install them."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Callable
from pathlib import Path

from elf_engine import model_dir
from elf_engine.errors import ElfError
from elf_engine.published.catalogue import CATALOGUE, T5_REPO, Published
from elf_engine.published.convert import TOKENIZER_FILES, Options, convert

MODEL_FILES = ("checkpoint_*",)
T5_FILES = ("config.json", "model.safetensors", *TOKENIZER_FILES)

# fetch(repo, directory, patterns): download the files of `repo` that match, going on where an
# earlier try stopped.
Fetch = Callable[[str, Path, tuple[str, ...]], None]


def pull(name: str, repo: str | None = None, fetch: Fetch | None = None) -> Path:
    """Download published model `name` with the T5 encoder and tokenizer, convert and install it;
    return its directory. `repo` replaces the catalogue's "owner/name".

    An interrupted download is taken up again by the next call. Raises ElfError, saying which files
    to copy by hand, when the Hub cannot be reached.
    """
    model = published(name)
    target = model_dir.home() / "models" / name
    if (target / model_dir.CONFIG).is_file():
        return target
    downloads = model_dir.home() / "downloads" / name
    fetch = fetch or fetch_snapshot
    source = repo or model.repo
    for what, place, patterns in (
        (source, downloads / name, MODEL_FILES),
        (T5_REPO, downloads / "t5", T5_FILES),
    ):
        place.mkdir(parents=True, exist_ok=True)
        try:
            fetch(what, place, patterns)
        # The Hub client raises its own errors, its HTTP library's and the system's.
        except Exception as error:
            raise _unreachable(name, source, target, error) from error
    t5 = downloads / "t5"
    convert(downloads / name, target, Options(name=name, encoder=t5, tokenizer=t5))
    shutil.rmtree(downloads)
    return target


def published(name: str) -> Published:
    """The catalogue's entry. Raises ElfError naming the nearest one."""
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(CATALOGUE)}"
        raise ElfError(f"no published model '{name}'; {hint}")
    return CATALOGUE[name]


def fetch_snapshot(repo: str, directory: Path, patterns: tuple[str, ...]) -> None:
    """`Fetch` from the Hub. Progress goes to stderr, where that is a terminal."""
    import sys

    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    # Asked for first: with files already in `directory` an unreachable Hub would pass for success.
    revision = HfApi().repo_info(repo).sha
    snapshot_download(repo, revision=revision, local_dir=directory, allow_patterns=list(patterns))


def _unreachable(name: str, repo: str, target: Path, error: Exception) -> ElfError:
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return ElfError(
        f"{name} could not be downloaded ({reason[:200]}). Run the command again to resume, or, "
        f"without network: on another machine fetch {', '.join(MODEL_FILES)} of "
        f"https://huggingface.co/{repo} into a folder {name}, and {', '.join(T5_FILES[:4])} of "
        f"https://huggingface.co/{T5_REPO} into a folder t5-small; copy both here and run: "
        f"elf models convert {name} {target} --name {name} --encoder t5-small --tokenizer t5-small"
    )


def tokenizer_directory(name_or_path: str, fetch: Fetch | None = None) -> Path:
    """A directory of tokenizer files: `name_or_path` itself, or that Hub repository's, downloaded.

    Raises ElfError when it is neither, or the Hub cannot be reached.
    """
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    place = model_dir.home() / "downloads" / "tokenizers" / name_or_path.replace("/", "--")
    place.mkdir(parents=True, exist_ok=True)
    try:
        (fetch or fetch_snapshot)(name_or_path, place, TOKENIZER_FILES)
    # See `pull`.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ElfError(
            f"tokenizer '{name_or_path}' is no directory and could not be downloaded "
            f"({reason[:200]}); copy its {', '.join(TOKENIZER_FILES[:2])} into a directory"
        ) from error
    return place
