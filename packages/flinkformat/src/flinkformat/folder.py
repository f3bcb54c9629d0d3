"""A snapshot's ``_metadata`` in a folder of this machine."""

from __future__ import annotations

from itertools import count
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from flinkformat.errors import FormatError
from flinkformat.metadata import decode

if TYPE_CHECKING:
    from flinkformat.snapshots import CheckpointMetadata

METADATA = "_metadata"


def read(path: str | PathLike[str]) -> CheckpointMetadata:
    """Reads the ``_metadata`` of a snapshot. path: the file, or its folder.

    Raises FormatError for bytes that are none, and OSError where there is no such file.
    """
    file = Path(fspath(path))
    file = file / METADATA if file.is_dir() else file
    numbers = count()
    try:
        return decode(file.read_bytes(), lambda: f"handle-{next(numbers)}")
    except FormatError as error:
        error.where = ", ".join(filter(None, [str(file), error.where]))
        raise
