"""Reading YAML that people write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elf_engine.errors import ElfError


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ElfError when there is none."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ElfError(f"'{path}' cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        what = " ".join(str(error).split())
        raise ElfError(f"{path}: no YAML ({what})") from error
    if not isinstance(found, dict):
        raise ElfError(f"{path}: expected a mapping of names to values")
    return {str(key): value for key, value in found.items()}
