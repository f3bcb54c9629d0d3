"""PyFlink's serializers of windows, for programs with their own assigners.

Here windows are kept in state by `WindowAssigner.window_type`; nothing asks for a serializer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidegate.api.serializers import TypeSerializer
from tidegate.api.windows import CountWindow, GlobalWindow, TimeWindow

if TYPE_CHECKING:
    from io import BytesIO


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Writes start and end, 8 bytes each."""

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Writes the window's number, 8 bytes."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Writes one meaningless byte."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()
