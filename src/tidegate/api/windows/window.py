"""Windows: bounded parts of a stream, for each key."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from io import BytesIO


_LONG_MAX: Final = 2**63 - 1


class Window:
    """A bounded part of a stream, for each key."""

    __slots__ = ()

    def max_timestamp(self) -> int:
        """Largest event time that still belongs to the window."""
        raise NotImplementedError


@frozen(order=True)
class TimeWindow(Window):
    """The event times from start (inclusive) to end (exclusive), milliseconds.

    >>> TimeWindow(0, 10_000).max_timestamp()
    9999
    """

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """True if they overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow],
        callback: Callable[[Collection[TimeWindow], TimeWindow], None],
    ) -> None:
        """Calls back with each group of windows that overlap or touch, and with their cover."""
        group: list[TimeWindow] = []
        cover: TimeWindow | None = None
        for window in sorted(set(windows)):
            if cover is not None and cover.intersects(window):
                group.append(window)
                cover = cover.cover(window)
                continue
            if cover is not None and len(group) > 1:
                callback(group, cover)
            group, cover = [window], window
        if cover is not None and len(group) > 1:
            callback(group, cover)

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Start of the window of that size in which the timestamp lies; right below 0 too."""
        return timestamp - (timestamp - offset) % window_size


@frozen(order=True)
class CountWindow(Window):
    """A window of so many records, known by its number."""

    id: int

    def max_timestamp(self) -> int:
        return _LONG_MAX


@frozen
class GlobalWindow(Window):
    """The one window that holds all of a key; any two are equal."""

    @staticmethod
    def get() -> GlobalWindow:
        """The one global window of all keys."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return _LONG_MAX


T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values of one type to a stream of bytes, and reads them."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Writes a value to the stream."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Reads a value from the stream."""


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
