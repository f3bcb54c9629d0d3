"""A savepoint in canonical form: a folder of links as blocks of entries, as all backends have them.

The folder does not change any more, so it is opened and read off the loop while rows flow: by scans
in slices, of which one key group's are in memory at a time. Entries stay the bytes that they are;
only those of an older type of their state are read and written anew.
"""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from flinkformat.handles import KeyGroupsStateHandle
from tidegate.errors import StorageFailed
from tidegate.state.disk.by_entry import together, wholes_of
from tidegate.state.disk.store import PREFIX_BYTES, RocksDBStore, after, prefix_of
from tidegate.state.format.blocks import PRESENT, Block, KeyedStreamWriter
from tidegate.state.format.headers import KeyedHeader, StateHeader
from tidegate.storage.streams import written_beside
from tidegate.typeinfo.serializers import PICKLED_BEGIN, join_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.disk.codecs import StoredValues
    from tidegate.state.disk.store import RocksDBMemory
    from tidegate.state.format.headers import ColumnsHeader, RocksDBHeader, RocksDBState
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
    key_groups: KeyGroupRange,
    place: Place,
    columns: tuple[ColumnsHeader, Mapping[int, Sequence[Block]]] | None,
    compress: Callable[[bytes], bytes] | None,
) -> KeyGroupsStateHandle:
    """Write what a folder holds. Blocking. values: of the states that the program has asked for.

    columns: what is to stand beside the rows, by key group. Raises StorageFailed, also where
    entries of a state that nobody has asked for are of an older type, which nothing here can read.
    """
    store = RocksDBStore(folder, memory, read_only=True)
    try:
        with place.stream() as stream:
            described, batches = columns or (None, {})
            with written_beside(stream.write) as write:
                rows = KeyedStreamWriter(write, _header(header, described), key_groups, compress)
                for group in key_groups:
                    blocks = [*_blocks(store, header, values, group), *batches.get(group, ())]
                    rows.add(group, blocks)
            handle = stream.close_and_get_handle()
    finally:
        store.close()
    first, last = key_groups.first, key_groups.last
    name = f"{header.operator.hex()}-{header.checkpoint}-{first}-{last}"
    return KeyGroupsStateHandle(key_groups, rows.offsets, handle, name)


def _header(header: RocksDBHeader, columns: ColumnsHeader | None) -> KeyedHeader:
    states = [
        StateHeader(
            state.name,
            state.kind,
            state.versions[-1].serializer,
            state.namespace,
            ttl=state.versions[-1].ttl,
        )
        for state in header.states
    ]
    return KeyedHeader(
        header.operator, header.checkpoint, header.max_parallelism, header.key, states, columns
    )


def _blocks(
    store: RocksDBStore, header: RocksDBHeader, values: Mapping[str, StoredValues], group: int
) -> Iterator[Block]:
    for index, state in enumerate(header.states):
        of_state = values.get(state.name)
        slices = _wholes if state.by_entry else _slices
        for names, pieces in slices(store, state, of_state, group):
            yield from _of_slice(index, names, pieces, state, of_state)


def _slices(
    store: RocksDBStore, state: RocksDBState, values: StoredValues | None, group: int
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Names and pieces of a state's entries, whose keys have one encoding."""
    del values
    prefix = prefix_of(group, state.number)
    pickled, end = prefix + PICKLED_BEGIN, after(prefix)
    # Keys of one encoding stand together, so that none of them has to be looked at.
    for first, behind in ((prefix, pickled), (pickled, end)):
        yield from store.slices(first, behind, _ROWS_A_BLOCK)


def _wholes(
    store: RocksDBStore, state: RocksDBState, values: StoredValues | None, group: int
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Names and pieces of whole maps and lists that are stored by entry."""
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
