"""Set before any project module is imported: shapes are checked, and no test sees the real home."""

from __future__ import annotations

import os
import tempfile

from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook looks it up by name)

# Workers of pytest-xdist share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["ELF_HOME"] = tempfile.mkdtemp(prefix="elf-test-home-")
os.environ["HF_HUB_OFFLINE"] = "1"

# Every annotated argument and result in the engine is checked against its type and shape.
install_import_hook("elf_engine", "tests.typechecker.check")
