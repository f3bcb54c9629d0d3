"""A folder of a key space as blocks of entries, which all backends read.

A folder of links, which does not change any more, is read off the loop while rows flow: by scans in
slices, of which one key group's are in memory at a time. Entries stay the bytes that they are; only
those of an older type of their state are read and written anew.
"""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.errors import StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.state.disk.by_entry import together, wholes_of
from tidegate.state.disk.store import PREFIX_BYTES, RocksDBMemory, RocksDBStore, after, prefix_of
from tidegate.state.format.blocks import (
    PRESENT,
    Block,
    StateHeader,
)
from tidegate.storage.streams import written_beside
from tidegate.typeinfo.serializers import PICKLED_BEGIN, join_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tidegate.state.format.blocks import RocksDBHeader, RocksDBState
    from tidegate.state.format.encoding import StoredValues
    from tidegate.state.scope import BesideRows, StateScope
    from tidegate.storage.places import Place

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
    batches = {} if columns is None else columns.blocks()
    store = RocksDBStore(folder, memory, read_only=True)
    try:
        with place.stream() as stream:
            with written_beside(stream.write) as write:
                rows = scope.writer(
                    write, checkpoint, key=header.key, states=states, columns=described
                )
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
