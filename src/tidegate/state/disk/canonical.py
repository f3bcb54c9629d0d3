"""A folder of a key space as blocks of entries, which all backends read: all of it, or a sample.

For a savepoint in canonical form a folder of links, which does not change any more, is read off the
loop while rows flow: by scans in slices, of which one key group's are in memory at a time. Entries
stay the bytes that they are; only those of an older type of their state are read and written anew.
"""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from tidegate.errors import StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.state.disk.by_entry import together, wholes_of
from tidegate.state.disk.files import download
from tidegate.state.disk.restore import COLUMNS_FILE
from tidegate.state.disk.store import PREFIX_BYTES, RocksDBMemory, RocksDBStore, after, prefix_of
from tidegate.state.format.blocks import PRESENT, Block, KeyedStreamWriter
from tidegate.state.format.headers import KeyedHeader, StateHeader, keyed_header, rocksdb_header
from tidegate.state.format.samples import ROWS
from tidegate.storage.streams import written_beside
from tidegate.typeinfo.serializers import PICKLED_BEGIN, join_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from flinkformat.handles import IncrementalRemoteKeyedStateHandle
    from tidegate.model.settings import RocksDBSettings
    from tidegate.state.disk.codecs import StoredValues
    from tidegate.state.format.headers import RocksDBHeader, RocksDBState
    from tidegate.state.format.samples import Sampled
    from tidegate.state.protocols import BesideRows, StateReads
    from tidegate.state.scope import StateScope
    from tidegate.storage.places import Place

_ENTRIES_OF_ONE: Final = 100
"""Entries, at most, that a sample has of a map or list that is stored by entry."""

_ROWS_A_BLOCK: Final = 1024
"""So few that they are in a core's cache from the scan to the block (benchmarks/savepoint.py)."""

_HEAD: Final = itemgetter(slice(0, 2))
"""Of an entry's value: the number of its version, and its encoding."""

_LOWEST: Final = b"\0\1"
"""The first of all heads: version 0, in MessagePack."""


def write_canonical(
    folder: Path,
    memory: RocksDBMemory,
    header: RocksDBHeader,
    values: Mapping[str, StoredValues],
    scope: StateScope,
    place: Place,
    columns: BesideRows | None,
) -> KeyGroupsStateHandle:
    """Write what a folder holds, and columns beside it. Blocking.

    values: of the states that the program has asked for. Raises StorageFailed, also where entries
    of a state that nobody has asked for are of an older type, which nothing here can read.
    """
    described = None if columns is None else columns.header
    states = [
        StateHeader(each.name, each.kind, newest.serializer, each.namespace, ttl=newest.ttl)
        for each in header.states
        for newest in each.versions[-1:]
    ]
    checkpoint = CheckpointId(header.checkpoint)
    in_blocks = scope.header(checkpoint, header.key, states, described)
    batches = {} if columns is None else columns.blocks()
    store = RocksDBStore(folder, memory, read_only=True)
    try:
        with place.stream() as stream:
            with written_beside(stream.write) as write:
                rows = KeyedStreamWriter(write, in_blocks, scope.key_groups, scope.compress)
                for group in scope.key_groups:
                    blocks = [*_blocks(store, header, values, group), *batches.get(group, ())]
                    rows.add(group, blocks)
            handle = stream.close_and_get_handle()
    finally:
        store.close()
    name = scope.handle_name(checkpoint)
    return KeyGroupsStateHandle(scope.key_groups, rows.offsets, handle, name)


def _blocks(
    store: RocksDBStore, header: RocksDBHeader, values: Mapping[str, StoredValues], group: int
) -> Iterator[Block]:
    for index, state in enumerate(header.states):
        of_state = values.get(state.name)
        slices = _slices(store, state, group)
        if state.by_entry:
            slices = _wholes(store, state, of_state, group)
        for names, pieces in slices:
            yield from _of_slice(index, names, pieces, state, of_state)


def _slices(
    store: RocksDBStore, state: RocksDBState, group: int
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Names and pieces of a state's entries, whose keys have one encoding."""
    prefix = prefix_of(group, state.number)
    pickled, end = prefix + PICKLED_BEGIN, after(prefix)
    # Keys of one encoding stand together, so that none of them has to be looked at.
    for first, behind in ((prefix, pickled), (pickled, end)):
        yield from store.slices(first, behind, _ROWS_A_BLOCK)


def _wholes(
    store: RocksDBStore, state: RocksDBState, values: StoredValues | None, group: int
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Names and pieces of maps and lists that are stored by entry, one piece each."""
    newest = bytes([len(state.versions) - 1])
    wholes = (
        (name, pieces[0] if len(pieces) == 1 else newest + _renewed(pieces, state, values))
        for name, pieces in wholes_of(store, state, group)
    )
    for _, alike in groupby(wholes, lambda entry: entry[0][PREFIX_BYTES]):
        while some := list(islice(alike, _ROWS_A_BLOCK)):
            yield [name for name, _ in some], [piece for _, piece in some]


def _of_slice(
    index: int,
    names: list[bytes],
    pieces: list[bytes],
    state: RocksDBState,
    values: StoredValues | None,
) -> Iterator[Block]:
    """Blocks of entries with one encoding each; nearly always one."""
    newest = bytes([len(state.versions) - 1])
    lowest, highest = _heads(pieces)
    if lowest[:1] != newest:
        pieces = [
            piece if piece[:1] == newest else newest + _renewed([piece], state, values)
            for piece in pieces
        ]
        lowest, highest = _heads(pieces)
    if lowest == highest:
        keys = join_pieces(names, PREFIX_BYTES)
        yield Block(PRESENT, index, len(names), keys, join_pieces(pieces, 1))
        return
    for _, alike in groupby(zip(names, pieces, strict=True), lambda entry: _HEAD(entry[1])):
        some = list(alike)
        yield from _of_slice(
            index, [name for name, _ in some], [piece for _, piece in some], state, values
        )


def _heads(pieces: list[bytes]) -> tuple[bytes, bytes]:
    """First and last one in order; if both have one head, so have all between."""
    highest = _HEAD(max(pieces))
    return (highest if highest == _LOWEST else _HEAD(min(pieces))), highest


def _renewed(pieces: list[bytes], state: RocksDBState, values: StoredValues | None) -> bytes:
    """An entry of older versions as the newest one has it, without its number.

    pieces: one, or those of the parts of a map or list.
    """
    if values is None:
        raise StorageFailed(
            f"The state '{state.name}' has entries of an older type, and the program has not "
            "asked for it, so that they can't be written in canonical form",
            where=f"state '{state.name}'",
            remedy="Ask for the state in open(), or take a savepoint in native form.",
        )
    return values.encode_each([together(values.decode_each(pieces))])[0][1:]


def folder_sample(
    handle: IncrementalRemoteKeyedStateHandle,
    folder: Path,
    reader: StateReads,
    settings: RocksDBSettings,
    sampled: Sampled,
) -> tuple[KeyedHeader, KeyGroupsStateHandle]:
    """What the key space holds, and some entries of each state. Blocking.

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
                written.add(group, list(_sampled_blocks(store, meta, group, sampled)))
        finally:
            store.destroy()
    sample = ByteStreamStateHandle(f"sample of {where}", bytes(data))
    name = handle.state_handle_id
    return header, KeyGroupsStateHandle(handle.key_groups, written.offsets, sample, name)


def _sampled_blocks(
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
    """Names and pieces of a state's entries; a map's or list's are one for each form."""
    if state.by_entry:
        wholes = wholes_of(store, state, group, _ENTRIES_OF_ONE)
        return ((name, piece) for name, pieces in wholes for piece in pieces)
    prefix = prefix_of(group, state.number)
    return store.scan(prefix, after(prefix))
