"""Which check a file needs, told from its contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.golden import (
    checkpoint,
    collate,
    estimate,
    forward,
    optim,
    scores,
    t5,
    train,
    train_torch,
    trajectory,
    utilities,
)
from tests.golden.archive import Archive, BadFileError, read_json, read_npz
from tests.golden.compare import Row

Check = Callable[[Archive, str], Iterator[Row]]


@dataclass(frozen=True)
class Kind:
    """`check` None: the schema is known and the project has no check for it yet.

    arrayless  needs no array library, so it runs once whatever the backends asked for
    """

    name: str
    check: Check | None = None
    arrayless: bool = False

    def backends(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the backends asked for that it runs on; may be none."""
        if self.arrayless:
            return ("numpy",)
        return asked


def _training(archive: Archive, backend: str) -> Iterator[Row]:
    return train.check(archive, backend) if backend == "jax" else train_torch.check(archive)


def _optimiser(archive: Archive, backend: str) -> Iterator[Row]:
    return optim.check(archive, backend) if backend == "jax" else train_torch.check_muon(archive)


def recognise(archive: Archive) -> Kind:
    """The kind of an .npz file. Raises BadFileError when it has none of the known contents."""
    tops = {name.partition("/")[0] for name in archive.arrays}
    leaves = {name.rpartition("/")[2] for name in archive.arrays}
    for kind, belongs in (
        (Kind("optimiser", _optimiser), "params0" in tops),
        (Kind("distillation"), {"teacher", "student"} <= tops),
        (Kind("training", _training), "loss" in leaves),
        (Kind("encoder", t5.check), "last_hidden_state" in leaves),
        (Kind("trajectories", trajectory.check), "z_final" in leaves),
        (Kind("sampling utilities", utilities.check), "add_noise" in tops),
        (Kind("guided estimate", estimate.check), {"v", "x", "cond_seq"} <= leaves),
        (Kind("forward", forward.check), {"x", "t", "output"} <= leaves),
        (Kind("collate", collate.check, arrayless=True), "encoder_attention_mask" in leaves),
    ):
        if belongs:
            return kind
    raise BadFileError(f"{archive.path}: no known kind of reference file has these arrays")


@dataclass(frozen=True)
class Item:
    """One thing to check: a file, or a directory of published checkpoints."""

    path: Path
    kind: Kind
    archive: Archive | None = None

    @property
    def covered(self) -> bool:
        """Whether the project has a check for it."""
        return self.archive is None or self.kind.check is not None

    def rows(self, backends: tuple[str, ...]) -> Iterator[Row]:
        """Compare on every backend asked for."""
        if self.archive is None:
            yield from checkpoint.check(self.path, backends)
        elif self.kind.check is not None:
            for backend in self.kind.backends(backends):
                yield from self.kind.check(self.archive, backend)


def find(path: Path) -> list[Item]:
    """What there is to check at `path`, by name. Raises BadFileError when there is nothing."""
    if path.is_dir():
        items = _in_directory(path)
    elif path.suffix == ".npz":
        items = [_file(path)]
    elif path.suffix == ".json":
        items = _json(path)
    elif path.exists():
        raise BadFileError(f"{path}: neither an .npz or .json file nor a directory of them")
    else:
        raise BadFileError(f"{path}: no such file or directory")
    if not items:
        raise BadFileError(f"{path}: holds no reference file")
    return items


def _in_directory(path: Path) -> list[Item]:
    if any((path / name).is_file() for name in (checkpoint.EXPECTED, checkpoint.ENCODER)):
        return [Item(path, Kind("checkpoints"))]
    items: list[Item] = []
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            items += _in_directory(entry)
        elif entry.suffix == ".npz":
            items.append(_file(entry))
        elif entry.suffix == ".json":
            items += _json(entry)
    return items


def _file(path: Path) -> Item:
    archive = read_npz(path)
    return Item(path, recognise(archive), archive)


def _json(path: Path) -> list[Item]:
    """Scores are a kind of their own; inputs and file lists belong to other files."""
    content = read_json(path)
    if not (isinstance(content, dict) and any("bleu" in key.lower() for key in content)):
        return []
    return [Item(path, Kind("scores", scores.check, arrayless=True), Archive(path, {}))]
