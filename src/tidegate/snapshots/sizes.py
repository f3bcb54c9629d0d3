"""Sizes of keyed state, counted without making values or running code of the job.

An entry may have been written several times, and removed again: where that can be, its keys are
read, so that each counts once. No more than the keys of one key group are in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from flinkformat.handles import IncrementalRemoteKeyedStateHandle, KeyGroupsStateHandle
from tidegate.errors import FileMissing, RestoreRefused
from tidegate.snapshots.reading.keyed_streams import key_space, keyed_streams
from tidegate.snapshots.rows import serializer_read
from tidegate.state.disk.by_entry import name_of
from tidegate.state.disk.store import PREFIX_BYTES
from tidegate.state.format.blocks import COLUMNS, PRESENT, all_sections, keyed_header, reading
from tidegate.state.format.encoding import paired
from tidegate.state.format.streams import bases, in_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flinkformat.handles import KeyedStateHandle
    from tidegate.snapshots.reading.keyed_streams import KeyedStream
    from tidegate.state.format.blocks import Block, ColumnsHeader, StateHeader
    from tidegate.storage.reading import StateReader
    from tidegate.storage.state_files import StateFiles
    from tidegate.typeinfo.serializers import Reader

_CACHE_BYTES: Final = 8 << 20


@dataclass(slots=True)
class Size:
    """A number of entries, and their stored bytes, keys included."""

    entries: int = 0
    size_bytes: int = 0

    def add(self, entries: int, size_bytes: int) -> None:
        self.entries += entries
        self.size_bytes += size_bytes


Sizes = dict[str, defaultdict[int, Size]]
"""By name of a state, and key group."""


def is_on_disk(handles: Iterable[KeyedStateHandle]) -> bool:
    """True where handles name folders of files, which are fetched whole before anything is read."""
    return any(
        isinstance(base, IncrementalRemoteKeyedStateHandle) and base.private_state
        for base in bases(handles)
    )


def keyed_sizes(
    handles: Iterable[KeyedStateHandle], files: StateFiles, reader: StateReader, one_in: int = 1
) -> Sizes:
    """Sizes of the keyed state of one operator, over the handles of all its subtasks.

    one_in: reads one key group in so many, and gives the sizes of these. A state without entries is
    there, without key groups. Raises RestoreRefused if a file is gone, FormatError, StorageFailed;
    handles that only Flink writes are passed over.
    """
    sizes = _Sizes(reader, one_in)
    try:
        for handle in handles:
            parts = list(in_streams([handle], handle.key_groups, reader.read))
            if any(isinstance(part, IncrementalRemoteKeyedStateHandle) for part in parts):
                sizes.add_database(handle)
            elif all(isinstance(part, KeyGroupsStateHandle) for part in parts):
                for stream in keyed_streams(handle, files, reader):
                    sizes.add_blocks(stream)
    except FileMissing as error:
        raise RestoreRefused(
            error.what,
            where=f"{reader.where}, {error.where}",
            remedy="Put the file back; 'tidegate fsck' says what else is missing.",
        ) from error
    return sizes.found


class _Sizes:
    def __init__(self, reader: StateReader, one_in: int) -> None:
        self._reader = reader
        self._one_in = one_in
        self.found: Sizes = {}

    def _of(self, name: str) -> defaultdict[int, Size]:
        return self.found.setdefault(name, defaultdict(Size))

    def add_blocks(self, stream: KeyedStream) -> None:
        headers = stream.headers
        keys = cache(lambda state: _keys_of(stream.key, headers[state]))
        for header in headers:
            self._of(header.name)
        read = [group for group in stream.key_groups if group % self._one_in == 0]
        for group, blocks in stream.sections(read):
            written: defaultdict[str, list[Block]] = defaultdict(list)
            for block in blocks:
                if block.kind == COLUMNS:
                    self._columns(stream.columns, group, block)
                else:
                    written[headers[block.state].name].append(block)
            for name, some in written.items():
                with reading(self._reader.where):
                    entries, size = _counted(some, keys)
                if entries:
                    self._of(name)[group].add(entries, size)

    def _columns(self, columns: ColumnsHeader | None, group: int, block: Block) -> None:
        assert columns is not None, "its blocks say so"
        with reading("columns"):
            schema = pa.ipc.read_schema(pa.py_buffer(columns.schema))
            batch = pa.ipc.read_record_batch(pa.py_buffer(block.values), schema)
        beside = 2 if columns.panes else 1
        for name, column in zip(schema.names[beside:], batch.columns[beside:], strict=True):
            self._of(name)[group].add(len(batch), column.nbytes)

    def add_database(self, handle: KeyedStateHandle) -> None:
        with key_space(handle, self._reader, cache_bytes=_CACHE_BYTES) as space:
            known = () if space.header is None else space.header.states
            states = {state.number: (state, self._of(state.name)) for state in known}
            before = b""
            for name, entry in space.store.scan(b""):
                group, number = int.from_bytes(name[:2]), int.from_bytes(name[2:PREFIX_BYTES])
                if number in states and group in handle.key_groups and not group % self._one_in:
                    state, sizes = states[number]
                    owner = name_of(state, name)
                    sizes[group].add(int(owner != before), len(name) + len(entry))
                    before = owner
            for data in space.columns:
                self._all_columns(memoryview(data))

    def _all_columns(self, data: memoryview) -> None:
        header = keyed_header(data, self._reader.where)
        for group, blocks in all_sections(data, self._reader.where):
            for block in blocks:
                if block.kind == COLUMNS and not group % self._one_in:
                    self._columns(header.columns, group, block)


def _keys_of(key: bytes | None, state: StateHeader) -> Reader:
    assert key is not None, "entries have told the type of the keys"
    beside = state.namespace
    namespace = None if beside is None else serializer_read(beside).type_info
    return paired(serializer_read(key), namespace)


def _counted(written: Sequence[Block], keys: Callable[[int], Reader]) -> tuple[int, int]:
    """Entries and bytes of a state in a key group; later blocks overwrite earlier ones.

    keys: reads the keys of a state, by its number.
    """
    if len(written) == 1:
        [block] = written
        return (block.rows, _bytes(block)) if block.kind == PRESENT else (0, 0)
    last: dict[Any, int] = {}
    for index, block in enumerate(written):
        for key in keys(block.state).decode_many(block.keys):
            if block.kind == PRESENT:
                last[key] = index
            else:
                last.pop(key, None)
    kept = Counter(last.values())
    # Without decoding values the size of an entry is unknown, so each gets an equal share.
    return len(last), sum(
        _bytes(written[index]) * count // written[index].rows for index, count in kept.items()
    )


def _bytes(block: Block) -> int:
    return len(block.keys) + len(block.values)
