"""Streams of state, read piece by piece; the counterpart of `blocks.KeyedStreamWriter`.

A reader has one key group, or one element, in memory, never the whole stream. A size that a frame
states is bounded by the size of the stream, so that damage costs neither time nor memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tidegate.state.format.blocks import (
    ELEMENT_BYTES,
    SECTION_BYTES,
    element_size,
    section,
    section_frame,
)
from tidegate.state.format.headers import START_BYTES, header_size, keyed_header, operator_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from flinkformat.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
    from tidegate.state.format.blocks import Block
    from tidegate.state.format.headers import KeyedHeader, OperatorHeader


class StreamReader:
    """Reads one stream of keyed state.

    stream: seekable, of as many bytes as `size` says. where: names the stream in errors. All
    methods raise FormatError for damaged bytes, and StorageFailed.
    """

    def __init__(self, stream: BinaryIO, size: int, where: str) -> None:
        self._bytes = _Bytes(stream, size, where)
        self._where = where

    @cached_property
    def header(self) -> KeyedHeader:
        return keyed_header(self._bytes.head(), self._where)

    def sections(
        self,
        handle: KeyGroupsStateHandle | KeyGroupsSavepointStateHandle,
        groups: Iterable[int] | None = None,
    ) -> Iterator[tuple[int, Iterator[Block]]]:
        """Key groups that have state, and their blocks.

        handle: says where sections begin. groups: some of its key groups; all of them by default.
        """
        for group in handle.key_groups if groups is None else groups:
            if offset := handle.offset_of(group):
                yield group, self.blocks(group, offset)

    def all_sections(self) -> Iterator[tuple[int, Iterator[Block]]]:
        """Key groups and blocks of a stream whose sections no handle names."""
        for group, offset in self.walk():
            yield group, self.blocks(group, offset)

    def walk(self) -> Iterator[tuple[int, int]]:
        """Each key group that has a section, and where it begins."""
        offset = len(self._bytes.head())
        while offset < self._bytes.size:
            group, size = self._frame(offset)
            yield group, offset
            offset += size

    def section_size(self, offset: int) -> int:
        """Size of the section at an offset, with its frame."""
        return self._frame(offset)[1]

    def blocks(self, group: int, offset: int) -> Iterator[Block]:
        """Blocks of the section at an offset, which this call reads."""
        data = self._bytes.at(offset, self.section_size(offset))
        return section(memoryview(data), 0, group, self._where)

    def _frame(self, offset: int) -> tuple[int, int]:
        return section_frame(self._bytes.at(offset, SECTION_BYTES), self._where)


class ElementReader:
    """Reads one stream of operator state; arguments and errors as of `StreamReader`."""

    def __init__(self, stream: BinaryIO, size: int, where: str) -> None:
        self._bytes = _Bytes(stream, size, where)
        self._where = where

    @cached_property
    def header(self) -> OperatorHeader:
        return operator_header(self._bytes.head(), self._where)

    def stored(self, offset: int) -> bytes:
        """The element at an offset as it is stored, with its frame, perhaps compressed."""
        size = element_size(self._bytes.at(offset, ELEMENT_BYTES), self._where)
        return self._bytes.at(offset, size)


class _Bytes:
    def __init__(self, stream: BinaryIO, size: int, where: str) -> None:
        self._stream = stream
        self._where = where
        self.size = size

    def head(self) -> memoryview:
        """Bytes up to the end of the header."""
        size = header_size(self.at(0, START_BYTES), self._where)
        return memoryview(self.at(0, size))

    def at(self, offset: int, size: int) -> bytes:
        """This many bytes; fewer at the end of the stream, which the parser reports."""
        size = min(size, self.size - offset)
        if offset < 0 or size <= 0:
            return b""
        self._stream.seek(offset)
        return self._stream.read(size)
