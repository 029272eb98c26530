"""The project file, the pins and the code name the same dependencies."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
CODE = ("elf_engine", "editors", "app", "training")
# Import name -> distribution, where they differ.
DISTRIBUTION = {
    "PIL": "pillow",
    "absl": "absl-py",
    "markdown_it": "markdown-it-py",
    "yaml": "pyyaml",
    "orbax": "orbax-checkpoint",
}
# The default index's torch brings these; the CPU build does not.
CUDA = re.compile(r"nvidia|cuda|triton")


def _pins() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", pin)] == []
    return dict(pin.split("==") for pin in pins)


def _direct() -> list[Requirement]:
    texts = [*PROJECT["project"]["dependencies"], *(d for group in EXTRAS.values() for d in group)]
    return [r for r in map(Requirement, texts) if r.name != PROJECT["project"]["name"]]


@pytest.mark.parametrize("requirement", _direct(), ids=lambda r: r.name)
def test_direct_dependency_is_pinned_within_its_range(requirement: Requirement) -> None:
    assert requirement.specifier, "a range is given"
    pin = _pins()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pin)


def _needed() -> Iterator[str]:
    """Every distribution that the direct dependencies bring, as installed."""
    todo, seen = _direct(), set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        key = (name, *sorted(requirement.extras))
        if key in seen or CUDA.match(name):
            continue
        seen.add(key)
        yield name
        for text in importlib.metadata.requires(name) or []:
            inner = Requirement(text)
            extras = ("", *requirement.extras)
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                todo.append(inner)


def test_pins_are_exactly_what_is_needed_and_installed() -> None:
    pins = _pins()
    assert list(pins) == sorted(pins)
    assert set(pins) == set(_needed())
    installed = {name: importlib.metadata.version(name).split("+")[0] for name in pins}
    assert installed == pins


def _third_party(folder: str) -> set[str]:
    ours = {*CODE, "tests", "benchmarks", "__future__", *sys.stdlib_module_names}
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((node.module or "").split(".")[0])
    return {canonicalize_name(DISTRIBUTION.get(name, name)) for name in found - ours}


def _declared(*extras: str) -> set[str]:
    texts = [*PROJECT["project"]["dependencies"], *(d for extra in extras for d in EXTRAS[extra])]
    return {canonicalize_name(Requirement(text).name) for text in texts}


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("elf_engine", ("jax", "torch", "eval")),
        ("editors", ()),
        ("app", ("app", "eval", "jax")),
        ("training", ("jax", "torch", "train")),
        ("benchmarks", ("jax", "torch", "train")),
        ("tests", tuple(EXTRAS)),
    ],
)
def test_imports_are_declared(folder: str, extras: tuple[str, ...]) -> None:
    assert _third_party(folder) - _declared(*extras) == set()


def test_every_package_is_listed() -> None:
    inits = [path.parent for top in CODE for path in (ROOT / top).rglob("__init__.py")]
    names = sorted(".".join(path.relative_to(ROOT).parts) for path in inits)
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == names


def test_command_is_installed() -> None:
    scripts = importlib.metadata.entry_points(group="console_scripts", name="elf")
    assert [script.value for script in scripts] == [PROJECT["project"]["scripts"]["elf"]]


def test_make_lists_its_targets() -> None:
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True)
    named = {line.split()[0] for line in shown.stdout.splitlines()}
    assert {"setup", "app", "check", "test", "bench", "train-tiny", "golden"} <= named
