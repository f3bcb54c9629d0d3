"""Size and checksums of a file of state."""

from __future__ import annotations

from typing import NamedTuple


class FileChecksum(NamedTuple):
    """crc32c and size in bytes; sha256 in hexadecimal digits, empty if nobody signs."""

    crc32c: int
    size: int
    sha256: str = ""
