"""Keyed state as it is read: every form of a snapshot as streams, and those piece by piece.

A changelog is its base, then the parts of the log, laid over it; of state in memory that
checkpoints share, each file holds some key groups.

A reader of a stream has one key group, or one element, in memory, never the whole stream. A size
that a frame states is bounded by the size of the stream, so that damage costs neither time nor
memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from flinkformat.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyGroupsStateHandle,
)
from tidegate.errors import FormatError
from tidegate.state.format.blocks import (
    ELEMENT_BYTES,
    SECTION_BYTES,
    START_BYTES,
    element_size,
    header_size,
    keyed_header,
    operator_header,
    rocksdb_header,
    section,
    section_frame,
    section_offsets,
    sections_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from flinkformat.handles import (
        KeyedStateHandle,
        KeyGroupsSavepointStateHandle,
        StreamStateHandle,
    )
    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.format.blocks import Block, KeyedHeader, OperatorHeader
    from tidegate.storage.state_files import StateFiles

    Read = Callable[[StreamStateHandle], bytes]


def bases(handles: Iterable[KeyedStateHandle]) -> Iterator[KeyedStateHandle]:
    """Handles with each changelog replaced by its base."""
    for handle in handles:
        if isinstance(handle, ChangelogStateBackendHandle):
            yield from handle.materialized
        else:
            yield handle


def log_streams(
    handles: Iterable[KeyedStateHandle], wanted: KeyGroupRange, read: Read
) -> Iterator[KeyGroupsStateHandle]:
    """The parts of logs that hold key groups of a range, in order, each with its bytes.

    They are laid over the `bases`. Raises FormatError.
    """
    for handle in handles:
        if not isinstance(handle, ChangelogStateBackendHandle):
            continue
        for part in handle.non_materialized:
            groups = part.key_groups.intersection(wanted)
            if isinstance(part, InMemoryChangelogStateHandle):
                data = b"".join(change.change for change in part.changes)
                yield _stream(groups, data, part.state_handle_id)
                continue
            for each in part.handles:
                data = read(each.handle)[each.offset :]
                yield _stream(groups, data, each.handle.physical_id)


def _stream(groups: KeyGroupRange, data: bytes, name: str) -> KeyGroupsStateHandle:
    view = memoryview(data)
    keyed_header(view, name)
    found = section_offsets(view, name)
    if len(found) > len(set(group for group, _ in found)):
        raise FormatError("A part of a changelog has a key group twice", where=name)
    offsets = dict(found)
    of_each = tuple(offsets.get(group, 0) for group in groups)
    return KeyGroupsStateHandle(groups, of_each, ByteStreamStateHandle(name, data), name)


def in_streams(
    handles: Iterable[KeyedStateHandle],
    wanted: KeyGroupRange,
    read: Callable[[StreamStateHandle], bytes],
) -> Iterator[KeyedStateHandle]:
    """The handles, with those of such checkpoints as the streams that hold key groups of a range.

    Those of a changelog come as its base, and after all bases the logs. Raises FormatError.
    """
    given = list(handles)
    for handle in bases(given):
        # State on disk always has files of its own, beside those that it shares.
        if isinstance(handle, IncrementalRemoteKeyedStateHandle) and not handle.private_state:
            yield from _streams_of(handle, wanted, memoryview(read(handle.meta)))
        else:
            yield handle
    yield from log_streams(given, wanted, read)


def _streams_of(
    handle: IncrementalRemoteKeyedStateHandle, wanted: KeyGroupRange, meta: memoryview
) -> Iterator[KeyGroupsStateHandle]:
    header = sections_header(meta, handle.meta.physical_id)
    places = {file.local_path: file.handle for file in handle.shared_state}
    for name, sections in header.files.items():
        offsets = {group: offset for group, offset in sections if group in wanted}
        if offsets:
            of_each = tuple(offsets.get(group, 0) for group in handle.key_groups)
            yield KeyGroupsStateHandle(handle.key_groups, of_each, places[name], name)


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


def keyed_names(handle: KeyedStateHandle, files: StateFiles) -> list[str]:
    """The names of the keyed states of a subtask, told from headers alone. Blocking.

    None of a form that is not ours. Raises FormatError, StorageFailed.
    """
    names: list[str] = []
    for part in in_streams([handle], handle.key_groups, files.read_handle):
        if isinstance(part, IncrementalRemoteKeyedStateHandle):
            meta = memoryview(files.read_handle(part.meta))
            names += [state.name for state in rocksdb_header(meta, part.meta.physical_id).states]
        elif isinstance(part, KeyGroupsStateHandle):
            with files.open_handle(part.delegate) as stream:
                header = StreamReader(stream, part.state_size, part.delegate.physical_id).header
            names += [state.name for state in header.states]
    return list(dict.fromkeys(names))
