"""Size and checksums of a file of state, and their name in a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flinkformat.handles import SegmentFileStateHandle
from flinkformat.state_streams import file_of

if TYPE_CHECKING:
    from flinkformat.handles import StreamStateHandle


class FileChecksum(NamedTuple):
    """crc32c and size in bytes; sha256 in hexadecimal digits, empty if nobody signs."""

    crc32c: int
    size: int
    sha256: str = ""


def checksum_name(handle: StreamStateHandle) -> str | None:
    """Name under which a snapshot knows the checksum of a handle's bytes; None without a file.

    The path of a file, and ``<path>@<start>`` of a segment: other states are in its file too.
    """
    if isinstance(handle, SegmentFileStateHandle):
        return f"{handle.file_path}@{handle.start_position}"
    return file_of(handle)
