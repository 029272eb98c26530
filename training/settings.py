"""Presets, YAML files and `--set key=value`: how a `TrainConfig` is put together.

A file may say `extends: NAME`; its keys then replace that preset's, mapping by mapping. Settings
come last. Everything is checked against the types of `TrainConfig`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elf_engine.config import from_dict, to_dict
from elf_engine.errors import ElfError
from training.config import TrainConfig

CONFIGS = Path(__file__).parent / "configs"
EXTENDS = "extends"
MAX_DEPTH = 5
C = TypeVar("C")
REPLACED = ("tasks", "defaults", "mix")  # mappings that are taken whole
# YAML 1.1 reads 1e-3 as a text, for want of a dot.
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


def presets(folder: Path = CONFIGS) -> list[str]:
    """Names of the configurations that come with the project."""
    return sorted(path.stem for path in folder.glob("*.yml"))


def load(name: str, settings: Sequence[str] = ()) -> TrainConfig:
    """The preset or YAML file `name` with `settings`, "dotted.key=value", on top.

    Raises ElfError for an unknown key, naming the nearest, a wrong type or a missing file.
    """
    return load_as(TrainConfig, CONFIGS, name, settings)


def load_as(cls: type[C], folder: Path, name: str, settings: Sequence[str] = ()) -> C:
    """As `load`, a config of another class, with presets in `folder`."""
    return _build(cls, _read(name, folder), settings, Path(name).name)


def change(config: TrainConfig, settings: Sequence[str]) -> TrainConfig:
    """`config` with "dotted.key=value" settings on top."""
    return _build(TrainConfig, to_dict(config), settings, "config") if settings else config


def _build(cls: type[C], data: dict[str, Any], settings: Sequence[str], where: str) -> C:
    keys = set(known_keys(cls))
    for setting in settings:
        key, value = _parse(setting, keys)
        *path, last = key.split(".")
        node = data
        for part in path:
            inner = node.get(part)
            node[part] = dict(inner) if isinstance(inner, dict) else {}
            node = node[part]
        node[last] = value
    return from_dict(cls, data, where)


def _parse(setting: str, keys: set[str]) -> tuple[str, Any]:
    import yaml

    key, equals, text = setting.partition("=")
    if not equals:
        raise ElfError(f"--set {setting}: write it as key=value")
    if not _known(key, keys):
        raise ElfError(f"--set {key}: no such setting; {_nearest(key, keys)}")
    if _NUMBER.fullmatch(text.strip()):
        return key, float(text)
    try:
        return key, yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = str(getattr(error, "problem", None) or "it is not valid YAML")
        raise ElfError(f"--set {key}: '{text}' cannot be read; {reason}") from error


def _known(key: str, keys: set[str]) -> bool:
    """Whether `key` is a setting, or lies inside a mapping with free keys ("batches.mix.*")."""
    parts = key.split(".")
    ways = {".".join([*parts[:i], "*"]) for i in range(1, len(parts))}
    ways |= {".".join([*parts[:i], "*", *parts[i + 1 :]]) for i in range(1, len(parts))}
    return key in keys or bool(ways & keys)


def _nearest(key: str, keys: set[str]) -> str:
    """A key that ends alike before one that looks alike, and the shorter before the longer."""
    named = sorted((k for k in keys if "*" not in k), key=len)
    last = key.split(".")[-1]
    same_end = [k for k in named if k.split(".")[-1] == last]
    near = difflib.get_close_matches(key, same_end, n=1, cutoff=0.4) or same_end
    near = near or difflib.get_close_matches(key, named, n=1, cutoff=0.6)
    if not near:
        ends = {k.split(".")[-1]: k for k in reversed(named)}
        near = [ends[k] for k in difflib.get_close_matches(last, ends, n=1)]
    return f"did you mean '{near[0]}'?" if near else "`elf-train presets starter` shows them all"


def known_keys(cls: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted key of a config class; "*" stands for the free keys of a mapping."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        yield from _keys_of(hints[field.name], f"{prefix}{field.name}")


def _keys_of(hint: Any, name: str) -> Iterator[str]:
    yield name
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        hint = next(a for a in args if a is not type(None))
        origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        yield from known_keys(hint, f"{name}.")
    elif origin is dict:
        yield from _keys_of(args[1], f"{name}.*")


def _read(name: str, folder: Path, depth: int = 0) -> dict[str, Any]:
    import yaml

    file = Path(name) if name.endswith((".yml", ".yaml", ".json")) else folder / f"{name}.yml"
    if not file.is_file():
        near = difflib.get_close_matches(name, presets(folder), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        have = ", ".join(presets(folder))
        raise ElfError(f"no training config '{name}'; {hint}There is {have}, or give a .yml file")
    try:
        data: Any = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ElfError(f"{file}: is not readable YAML ({reason})") from error
    if not isinstance(data, dict):
        raise ElfError(f"{file}: expected a mapping, found {type(data).__name__}")
    base = data.pop(EXTENDS, None)
    if base is None:
        return data
    if depth == MAX_DEPTH:
        raise ElfError(f"{file}: extends '{base}', which is too deep; is it a circle?")
    return _merge(_read(str(base), folder, depth + 1), data)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        if key in REPLACED:
            merged[key] = value
            continue
        inner = merged.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = _merge(inner, value) if both else value  # type: ignore[arg-type]
    return merged
