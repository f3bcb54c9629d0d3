"""A snapshot's ``_metadata`` in a folder of this machine."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flinkformat.errors import FormatError
from flinkformat.metadata import decode

if TYPE_CHECKING:
    from flinkformat.snapshots import CheckpointMetadata

METADATA: Final = "_metadata"


def read(path: str | PathLike[str]) -> CheckpointMetadata:
    """Reads the ``_metadata`` of a snapshot. path: the file, or its folder.

    Raises FormatError for bytes that are none, and OSError where there is no such file.
    """
    file = Path(fspath(path))
    file = file / METADATA if file.is_dir() else file
    try:
        return decode(file.read_bytes())
    except FormatError as error:
        error.where = ", ".join(filter(None, [str(file), error.where]))
        raise
