"""Who may import whom, read from the source; and the size limits of files and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("elf_engine", "editors", "app", "training", "benchmarks")
MAX_FILE, MAX_FUNCTION = 400, 60

# Package -> the project's packages it may import. Tests may import all, nothing imports tests.
ARROWS = {
    "elf_engine": {"elf_engine"},
    "editors": {"editors", "elf_engine"},
    "app": {"app", "editors", "elf_engine"},
    "training": {"training", "elf_engine"},
    "benchmarks": {"app", "benchmarks", "editors", "elf_engine", "training"},
}
# A module of the engine may import only those of a lower rank, or of the same line.
ENGINE_ORDER = (
    ("errors", "types"),
    ("config", "weights", "flow", "tensor_file"),
    ("tokens", "layout", "encoders", "model_dir", "noise", "constraint", "backends", "decoder_dir"),
    ("times", "guidance", "published", "metrics"),
    ("samplers",),
    ("pipeline", "decoding"),
    ("together",),
)
# Library -> the only places that may import it at all.
CONFINED = {
    "gradio": ("app/ui", "app/server", "app/tabs/"),
    "sqlalchemy": ("app/store", "app/migrations/"),
    "alembic": ("app/store", "app/migrations/"),
    "optax": ("training/", "benchmarks/tr"),
}
# Slow to import: at module level only where the module is for nothing else.
HEAVY = {"flax", "gradio", "huggingface_hub", "jax", "optax", "orbax", "torch", "transformers"}
HEAVY_AT_TOP = ("elf_engine/backends/jax/", "elf_engine/backends/torch/", "training/", "app/ui")
HEAVY_AT_TOP += ("app/server", "app/tabs/", "benchmarks/tr")


@dataclass(frozen=True)
class Import:
    """`module` is imported by file `where`; `top` when outside every function."""

    where: str
    module: str
    top: bool

    @property
    def library(self) -> str:
        return self.module.split(".")[0]


def _files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _imports(path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(_name(path), alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{_name(path)}: write imports absolutely"
                module = child.module or ""
                yield Import(_name(path), module, top)
                yield from (Import(_name(path), f"{module}.{a.name}", top) for a in child.names)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, top and not inside and not _typing_only(child))

    yield from walk(ast.parse(path.read_text("utf-8")), True)


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


ALL = [found for path in _files(*PACKAGES) for found in _imports(path)]


def test_the_source_was_found() -> None:
    assert {found.where.split("/")[0] for found in ALL} == set(PACKAGES)


def test_arrows_between_packages() -> None:
    wrong = [
        found
        for found in ALL
        if found.library in (*PACKAGES, "tests")
        and found.library not in ARROWS[found.where.split("/")[0]]
    ]
    assert wrong == []


def test_order_inside_the_engine() -> None:
    rank = {name: i for i, names in enumerate(ENGINE_ORDER) for name in names}
    wrong = []
    for found in ALL:
        source, target = found.where.split("/"), found.module.split(".")
        if source[0] == target[0] == "elf_engine" and len(target) > 1 and len(source) > 1:
            here, there = source[1].removesuffix(".py"), target[1]
            if here in ("__init__", there):
                continue
            if rank[there] > rank[here]:
                wrong.append(found)
    assert wrong == []


def test_backends_do_not_know_each_other() -> None:
    for one, other in (("jax", "torch"), ("torch", "jax")):
        mine = [found for found in ALL if found.where.startswith(f"elf_engine/backends/{one}/")]
        assert mine
        assert [f for f in mine if other in f.module.split(".")] == []


def test_only_training_and_tests_name_a_backend() -> None:
    inside = ("elf_engine/backends/", "training/", "benchmarks/tr")
    named = ("elf_engine.backends.jax", "elf_engine.backends.torch")
    wrong = [f for f in ALL if f.module.startswith(named) and not f.where.startswith(inside)]
    assert wrong == []
    torch = [f for f in ALL if f.where.startswith("training/") and f.module.startswith(named[1])]
    assert [f for f in torch if not f.where.startswith(("training/cpu/", "training/base"))] == []


def test_libraries_stay_where_they_belong() -> None:
    wrong = [
        found
        for found in ALL
        if found.library in CONFINED and not found.where.startswith(CONFINED[found.library])
    ]
    assert wrong == []


def test_heavy_libraries_are_imported_late() -> None:
    wrong = [
        found
        for found in ALL
        if found.top and found.library in HEAVY and not found.where.startswith(HEAVY_AT_TOP)
    ]
    assert wrong == []


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{_name(path)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_sizes(folder: str) -> None:
    files = _files(folder)
    long_files = [_name(p) for p in files if len(p.read_text("utf-8").splitlines()) > MAX_FILE]
    long_functions = [name for p in files for name, n in _functions(p) if n > MAX_FUNCTION]
    assert (long_files, long_functions) == ([], [])
