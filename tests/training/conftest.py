"""Shared by the tests of real steps."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from tests.training.small import QUICK
from training import loop, step


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where compiled steps are kept for the tests after."""
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def quick_steps(compiled: str) -> Iterator[None]:
    """Steps are compiled fast and once; the machine's peak is not measured."""
    changes = {
        "jax_compilation_cache_dir": compiled,
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    before = {name: getattr(jax.config, name) for name in changes}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK:
            patch.setitem(step.COMPILER, name, value)
        patch.setattr(loop, "peak_flops", lambda dtype: 1e11)
        for name, value in changes.items():
            jax.config.update(name, value)
        yield
    for name, value in before.items():
        jax.config.update(name, value)
