"""Samples entries of a key space in a snapshot, as a stream that any backend restores."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from tidegate.state.disk.by_entry import wholes_of
from tidegate.state.disk.files import download
from tidegate.state.disk.restore import COLUMNS_FILE
from tidegate.state.disk.store import PREFIX_BYTES, RocksDBMemory, RocksDBStore, after, prefix_of
from tidegate.state.format.blocks import PRESENT, Block, KeyedStreamWriter
from tidegate.state.format.headers import KeyedHeader, keyed_header, rocksdb_header
from tidegate.state.format.samples import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flinkformat.handles import IncrementalRemoteKeyedStateHandle
    from tidegate.model.settings import RocksDBSettings
    from tidegate.state.format.headers import RocksDBHeader, RocksDBState
    from tidegate.state.format.samples import Sampled
    from tidegate.state.protocols import StateReads

_ENTRIES_OF_ONE: Final = 100
"""What is taken, at most, of a map or list that is stored by entry."""


def folder_sample(
    handle: IncrementalRemoteKeyedStateHandle,
    folder: Path,
    reader: StateReads,
    settings: RocksDBSettings,
    sampled: Sampled,
) -> tuple[KeyedHeader, KeyGroupsStateHandle]:
    """Content of the key space, with some entries of each state. Blocking.

    folder: a new one of this machine. Of a key space that has more bytes than are left to look at,
    and of columnar state, there are no entries. Raises FormatError, RestoreRefused, StorageFailed.
    """
    where = handle.meta.physical_id
    meta = rocksdb_header(memoryview(reader.read(handle.meta)), where)
    columns = next(
        (
            keyed_header(memoryview(reader.read(file.handle)), where).columns
            for file in (*handle.shared_state, *handle.private_state)
            if file.local_path == COLUMNS_FILE
        ),
        None,
    )
    header = KeyedHeader(
        meta.operator, meta.checkpoint, meta.max_parallelism, meta.key, meta.in_blocks(), columns
    )
    data = bytearray()
    written = KeyedStreamWriter(data.extend, header, handle.key_groups)
    if handle.state_size > sampled.bytes_left:
        sampled.complete = False
    else:
        sampled.bytes_left -= handle.state_size
        download(handle, folder, reader)
        store = RocksDBStore(folder, RocksDBMemory(settings))
        try:
            for group in handle.key_groups:
                written.add(group, list(_blocks(store, meta, group, sampled)))
        finally:
            store.destroy()
    sample = ByteStreamStateHandle(f"sample of {where}", bytes(data))
    name = handle.state_handle_id
    return header, KeyGroupsStateHandle(handle.key_groups, written.offsets, sample, name)


def _blocks(
    store: RocksDBStore, meta: RocksDBHeader, group: int, sampled: Sampled
) -> Iterator[Block]:
    first = 0
    for state in meta.states:
        left = max(0, ROWS - sampled.rows[state.name])
        for name, piece in islice(_entries(store, state, group), left):
            # A block each: to join pickles one would have to make their values.
            sampled.rows[state.name] += 1
            yield Block(PRESENT, first + piece[0], 1, name[PREFIX_BYTES:], piece[1:])
        first += len(state.versions)


def _entries(store: RocksDBStore, state: RocksDBState, group: int) -> Iterator[tuple[bytes, bytes]]:
    """Names and pieces of a state's entries; a map or list has one for each version."""
    if state.by_entry:
        wholes = wholes_of(store, state, group, _ENTRIES_OF_ONE)
        return ((name, piece) for name, pieces in wholes for piece in pieces)
    prefix = prefix_of(group, state.number)
    return store.scan(prefix, after(prefix))
