"""How maps stand in a key space of which each entry is stored for itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, groupby, islice
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from tidegate.state.kinds import Kind
from tidegate.state.rocksdb.store import after
from tidegate.state.rocksdb.table import PREFIX_BYTES, prefix_of
from tidegate.typeinfo.serializers import SerializerSnapshot, join_map, serializer_of
from tidegate.typeinfo.types import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    INT,
    LONG,
    SHORT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    MapTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.state.format import RocksDBState
    from tidegate.state.rocksdb.store import RocksDBStore

_SIZE: Final = Struct(">I")
_ROWS_A_SLICE: Final = 4096
_EXACT: Final = frozenset(
    {
        STRING, CHAR, BYTE, SHORT, INT, LONG, BOOLEAN, BYTES, SQL_DATE, SQL_TIME, SQL_TIMESTAMP,
    }
)  # fmt: skip


def is_stored_by_entry(kind: str, type_info: TypeInformation | None) -> bool:
    """Whether state of a kind and type is: maps, but not of keys that are equal and written apart.

    A value that is a map is one entry.
    """
    if kind != Kind.MAP.value or not isinstance(type_info, MapTypeInfo):
        return False
    return _is_exact(type_info.key_type)


def _is_exact(key: TypeInformation) -> bool:
    if isinstance(key, TupleTypeInfo):
        return all(map(_is_exact, key.children))
    return key in _EXACT


def maps_of(
    store: RocksDBStore, state: RocksDBState, group: int, entries_max: int | None = None
) -> Iterator[tuple[bytes, list[bytes]]]:
    """The maps of a state that are stored by entry, in a key group: their names and pieces.

    Name and piece are what `table` has of a map as a whole. There is a piece for each version, and
    each way to encode values, that a map's entries have. entries_max: how many are taken of a map.
    """
    prefix = prefix_of(group, state.number)
    slices = store.slices(prefix, after(prefix), _ROWS_A_SLICE)
    rows = chain.from_iterable(zip(*each, strict=True) for each in slices)
    keys = serializer_of(map_type_of(state).key_type)
    split = ((*split_name(name), piece) for name, piece in rows)
    for owner, parts in groupby(split, itemgetter(0)):
        forms: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for _, key, piece in islice(parts, entries_max):
            forms.setdefault(piece[:2], []).append((key, piece[1:]))
        yield owner, [form[:1] + join_map(each, keys) for form, each in forms.items()]


def map_type_of(state: RocksDBState) -> MapTypeInfo:
    """The type of maps that are stored by entry; as for their keys, the same in all versions."""
    type_info = SerializerSnapshot.from_bytes(state.versions[-1].serializer).type_info
    assert isinstance(type_info, MapTypeInfo), "nothing else is stored by entry"
    return type_info


def value_snapshot(written: bytes) -> SerializerSnapshot:
    """Of the serializer of maps, what it says of their values alone."""
    maps = SerializerSnapshot.from_bytes(written)
    assert isinstance(maps.type_info, MapTypeInfo), "nothing else is stored by entry"
    return replace(maps, type_info=maps.type_info.value_type)


def split_name(name: bytes) -> tuple[bytes, bytes]:
    """The name of a map, as `table` has it, and the piece of one of its keys."""
    start = PREFIX_BYTES + _SIZE.size
    end = start + _SIZE.unpack_from(name, PREFIX_BYTES)[0]
    return name[:PREFIX_BYTES] + name[start:end], name[end:]


def beginning(owner: bytes) -> bytes:
    """How the names of all entries of a map begin."""
    size = _SIZE.pack(len(owner) - PREFIX_BYTES)
    return owner[:PREFIX_BYTES] + size + owner[PREFIX_BYTES:]
