"""How maps and lists stand in a key space where they are more than one entry each.

Of a map each entry is stored for itself, behind how long the name of the map is. Of a list there
are parts, each of which is a list, with a number behind the name; keys are written so that none
begins like another, so that the parts of one list are all that begins with its name.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, groupby, islice
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from tidegate.state.disk.store import PREFIX_BYTES, after, prefix_of
from tidegate.state.user.kinds import Kind
from tidegate.typeinfo.serializers import SerializerSnapshot, join_lists, join_map, serializer_of
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
    from collections.abc import Iterable, Iterator, Sequence

    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.format.blocks import RocksDBState

_SIZE: Final = Struct(">I")
_ROWS_A_SLICE: Final = 4096
_FORM: Final = itemgetter(slice(0, 2))

NUMBER: Final = Struct(">Q")
"""The number of a part, behind the name of its list."""

WHOLE: Final = NUMBER.pack(0)
"""Of a part that was written as all that the list has."""
_EXACT: Final = frozenset(
    {
        STRING, CHAR, BYTE, SHORT, INT, LONG, BOOLEAN, BYTES, SQL_DATE, SQL_TIME, SQL_TIMESTAMP,
    }
)  # fmt: skip


def is_stored_by_entry(kind: str, type_info: TypeInformation | None) -> bool:
    """True if state of a kind and type is stored by entry: lists, and most maps.

    Keys of some types are equal and written apart. A value that is a map or a list is one entry.
    """
    if kind == Kind.LIST.value:
        return True
    if kind != Kind.MAP.value or not isinstance(type_info, MapTypeInfo):
        return False
    return _is_exact(type_info.key_type)


def _is_exact(key: TypeInformation) -> bool:
    if isinstance(key, TupleTypeInfo):
        return all(map(_is_exact, key.children))
    return key in _EXACT


def wholes_of(
    store: RocksDBStore, state: RocksDBState, group: int, entries_max: int | None = None
) -> Iterator[tuple[bytes, list[bytes]]]:
    """The maps, or lists, of a state that is stored by entry, in a key group: names and pieces.

    Name and piece are what a table has of one as a whole. There are several pieces, of which
    `together` makes one value, where what they hold is of several versions, or encoded in several
    ways. entries_max: how many entries of a map, or parts of a list, are taken.
    """
    prefix = prefix_of(group, state.number)
    slices = store.slices(prefix, after(prefix), _ROWS_A_SLICE)
    rows = chain.from_iterable(zip(*each, strict=True) for each in slices)
    wholes = _lists_of if state.kind == Kind.LIST.value else _maps_of
    return wholes(rows, state, entries_max)


def _lists_of(
    rows: Iterable[tuple[bytes, bytes]], state: RocksDBState, parts_max: int | None
) -> Iterator[tuple[bytes, list[bytes]]]:
    del state
    for owner, parts in groupby(rows, lambda row: list_name(row[0])):
        pieces = [piece for _, piece in islice(parts, parts_max)]
        if len(pieces) > 1:
            alike = [(form, list(each)) for form, each in groupby(pieces, _FORM)]
            pieces = [form[:1] + join_lists([p[1:] for p in each]) for form, each in alike]
        yield owner, pieces


def _maps_of(
    rows: Iterable[tuple[bytes, bytes]], state: RocksDBState, entries_max: int | None
) -> Iterator[tuple[bytes, list[bytes]]]:
    keys = serializer_of(map_type_of(state).key_type)
    split = ((*split_name(name), piece) for name, piece in rows)
    for owner, parts in groupby(split, itemgetter(0)):
        forms: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for _, key, piece in islice(parts, entries_max):
            forms.setdefault(piece[:2], []).append((key, piece[1:]))
        yield owner, [form[:1] + join_map(each, keys) for form, each in forms.items()]


def together(values: Sequence[Any]) -> Any:
    """The dict or list made of all pieces of one map or list."""
    if len(values) == 1:
        return values[0]
    if isinstance(values[0], list):
        return list(chain.from_iterable(values))
    return dict(chain.from_iterable(each.items() for each in values))


def name_of(state: RocksDBState, name: bytes) -> bytes:
    """The table's name for the owner of an entry."""
    if not state.by_entry:
        return name
    return list_name(name) if state.kind == Kind.LIST.value else split_name(name)[0]


def list_name(name: bytes) -> bytes:
    """The table's name for a list, from a part's name."""
    return name[: -NUMBER.size]


def map_type_of(state: RocksDBState) -> MapTypeInfo:
    """Type of maps that are stored by entry; keys have one type in all versions."""
    type_info = SerializerSnapshot.from_bytes(state.versions[-1].serializer).type_info
    assert isinstance(type_info, MapTypeInfo), "nothing else is stored by entry"
    return type_info


def value_snapshot(written: bytes) -> SerializerSnapshot:
    """Snapshot of the serializer of a map's values."""
    maps = SerializerSnapshot.from_bytes(written)
    assert isinstance(maps.type_info, MapTypeInfo), "nothing else is stored by entry"
    return replace(maps, type_info=maps.type_info.value_type)


def split_name(name: bytes) -> tuple[bytes, bytes]:
    """The table's name for a map, and the encoded map key."""
    start = PREFIX_BYTES + _SIZE.size
    end = start + _SIZE.unpack_from(name, PREFIX_BYTES)[0]
    return name[:PREFIX_BYTES] + name[start:end], name[end:]


def beginning(owner: bytes) -> bytes:
    """Prefix of the names of all entries of a map."""
    size = _SIZE.pack(len(owner) - PREFIX_BYTES)
    return owner[:PREFIX_BYTES] + size + owner[PREFIX_BYTES:]
