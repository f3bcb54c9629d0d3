"""A value whose pickle does something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Touch:
    """Makes a file wherever it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return touched, (self._path,)


def touched(path: Path) -> Touch:
    """The value, once the file is there."""
    path.touch()
    return Touch(path)
