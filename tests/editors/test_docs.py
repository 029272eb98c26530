"""The examples of docs/editors.md do what they say."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_the_examples() -> None:
    file = Path(__file__).parents[2] / "docs" / "editors.md"
    result = doctest.testfile(str(file), module_relative=False, encoding="utf-8")
    assert result.attempted > 25
    assert result.failed == 0
