"""Files of channel state: how a buffer stands in one, and how a channel is named in handles.

File format: docs/formats/channel-state.md.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT_VERSION: Final = 0

_INT: Final = struct.Struct(">i")


@frozen
class InputChannelInfo:
    """An input channel by its place: the gate among the subtask's, the channel in the gate."""

    gate: int
    channel: int


@frozen
class ResultSubpartitionInfo:
    """An output by its place: the partition among the subtask's, the subpartition in it."""

    partition: int
    subpartition: int


ChannelInfo = InputChannelInfo | ResultSubpartitionInfo


def file_header() -> bytes:
    """The first bytes of a file of channel state."""
    return _INT.pack(FORMAT_VERSION)


def chunk(data: bytes) -> bytes:
    """One buffer as it stands in a file: its length, then its bytes."""
    return _INT.pack(len(data)) + data


def read_chunks(file: bytes, offsets: Iterable[int]) -> list[memoryview]:
    """The buffers that begin at these offsets. Raises FormatError for what is no such file."""
    view = memoryview(file)
    version = _INT.unpack_from(view)[0] if len(view) >= _INT.size else None
    if version != FORMAT_VERSION:
        raise FormatError(
            "not a file of channel state", expected=str(FORMAT_VERSION), found=str(version)
        )
    found: list[memoryview] = []
    for offset in offsets:
        begin = offset + _INT.size
        length = _INT.unpack_from(view, offset)[0] if 0 < offset <= len(view) - _INT.size else -1
        if not 0 <= length <= len(view) - begin:
            raise FormatError("a buffer beyond the end of its file", offset=offset)
        found.append(view[begin : begin + length])
    return found
