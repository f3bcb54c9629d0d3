"""PyFlink's serializers of windows, which assigners of one's own return there.

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
    """Start and end, 8 bytes each."""

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        """Write a window."""
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        """Read a window."""
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The window's number, 8 bytes."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        """Write a window."""
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        """Read a window."""
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """One byte that says nothing."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        """Write the window."""
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        """Read the window."""
        stream.read(1)
        return GlobalWindow.get()
