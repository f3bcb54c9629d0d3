"""Python files that the functions of a program import, beside what is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


def checked(file_path: str) -> str:
    """The absolute path. Raises ConfigError if there is nothing."""
    path = Path(file_path).absolute()
    if not path.exists():
        raise ConfigError(
            f"There is no Python file or folder {file_path}",
            where="python.files",
            remedy="Name a module (.py), an archive (.zip, .whl, .egg) or a folder of modules.",
        )
    return str(path)


def make_importable(files: Iterable[str]) -> None:
    """Put them on this process's import path, which slots on this machine share.

    Raises ConfigError if there is none of that name.
    """
    for file in map(checked, files):
        entry = str(Path(file).parent) if file.endswith(".py") else file
        if entry not in sys.path:
            sys.path.append(entry)
