"""The bytes of keyed and operator state.

Offsets and fields: docs/formats/keyed-state.md and docs/formats/operator-state.md. Both streams
open with a header that says whose state it is and how it was encoded; what follows is reached by
the offsets in the state handle alone. Nothing is trusted: a length that points beyond the end is a
FormatError.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tidegate.errors import FormatError, TidegateError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

KEYED_MAGIC: Final = b"TGKS"
OPERATOR_MAGIC: Final = b"TGOS"
VERSION: Final = 1

PRESENT: Final = 1
MISSING: Final = 2
COLUMNS: Final = 3

_START: Final = struct.Struct("<4sHxxI")
_SECTION: Final = struct.Struct("<IQ")
_BLOCK: Final = struct.Struct("<BxHIQQ")
_ELEMENT: Final = struct.Struct("<Q")

H = TypeVar("H", bound=msgspec.Struct)


class StateHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named state. kind: of `kinds.Kind`. serializer: snapshot of the entries' serializer.

    namespace: snapshot of the namespaces' serializer, where an entry's key is the pair of a key and
    a namespace. ttl: whether values are stored with their times, as `state.ttl` says.
    """

    name: str
    kind: str
    serializer: bytes
    namespace: bytes | None = None
    ttl: bool = False


class ColumnsHeader(msgspec.Struct, frozen=True):
    """Columnar state. schema: Arrow's, the keys first. defaults: by column, as NumPy bytes.

    panes: whether the number of a row's pane comes second.
    """

    schema: bytes
    defaults: dict[str, bytes]
    panes: bool = False


class KeyedHeader(msgspec.Struct, frozen=True):
    """Keyed state of one subtask. key: snapshot of the keys' serializer; None without row state."""

    operator: bytes
    checkpoint: int
    max_parallelism: int
    key: bytes | None
    states: list[StateHeader]
    columns: ColumnsHeader | None


class OperatorHeader(msgspec.Struct, frozen=True):
    """Operator state of one subtask."""

    operator: bytes
    checkpoint: int
    states: list[StateHeader]


@dataclass(frozen=True, slots=True)
class Block:
    """A run of entries of one state in one key group.

    kind: PRESENT, MISSING (no values) or COLUMNS (values only). state: index into the header.
    """

    kind: int
    state: int
    rows: int
    keys: bytes | memoryview
    values: bytes | memoryview


def header_bytes(header: KeyedHeader | OperatorHeader) -> bytes:
    """The start of a stream."""
    body = msgspec.msgpack.encode(header)
    magic = KEYED_MAGIC if isinstance(header, KeyedHeader) else OPERATOR_MAGIC
    return _START.pack(magic, VERSION, len(body)) + body


def keyed_header(data: memoryview, where: str) -> KeyedHeader:
    """The header of a stream of keyed state; raises FormatError."""
    return _header(data, KEYED_MAGIC, KeyedHeader, where)


def operator_header(data: memoryview, where: str) -> OperatorHeader:
    """The header of a stream of operator state; raises FormatError."""
    return _header(data, OPERATOR_MAGIC, OperatorHeader, where)


def section_bytes(group: int, blocks: Sequence[Block]) -> Iterator[bytes | memoryview]:
    """The section of a key group, in pieces to be written one after the other."""
    size = sum(_BLOCK.size + len(block.keys) + len(block.values) for block in blocks)
    yield _SECTION.pack(group, size)
    for block in blocks:
        sizes = len(block.keys), len(block.values)
        yield _BLOCK.pack(block.kind, block.state, block.rows, *sizes)
        yield block.keys
        yield block.values


def section(data: memoryview, offset: int, group: int, where: str) -> Iterator[Block]:
    """The blocks of a key group's section; raises FormatError."""
    cursor = _Cursor(data, offset, where)
    found, size = cursor.unpack(_SECTION)
    if found != group:
        raise FormatError(
            "A section of keyed state is not that of its key group",
            where=where,
            offset=offset,
            expected=f"key group {group}",
            found=f"key group {found}",
        )
    end = cursor.position + size
    while cursor.position < end:
        kind, state, rows, keys_size, values_size = cursor.unpack(_BLOCK)
        yield Block(kind, state, rows, cursor.take(keys_size), cursor.take(values_size))


def element_bytes(encoded: bytes) -> bytes:
    """An element of operator state."""
    return _ELEMENT.pack(len(encoded)) + encoded


def element(data: memoryview, offset: int, where: str) -> memoryview:
    """The element at an offset; raises FormatError."""
    cursor = _Cursor(data, offset, where)
    return cursor.take(cursor.unpack(_ELEMENT)[0])


@contextmanager
def reading(where: str) -> Generator[None, None, None]:
    """Values are read in it: whatever goes wrong is a FormatError, or already one of ours.

    Damaged bytes may look like any value, and unpickling runs code of the values' classes.
    """
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        raise FormatError(
            f"The values of a state can't be read: {error}",
            where=where,
            remedy="Restore from another checkpoint; this one is damaged, or a class of the values"
            " can't read its old form.",
        ) from error


def _header(data: memoryview, magic: bytes, kind: type[H], where: str) -> H:
    cursor = _Cursor(data, 0, where)
    found, version, size = cursor.unpack(_START)
    if found != magic or version != VERSION:
        raise FormatError(
            "A file of state is of another kind or version",
            where=where,
            remedy="Read it with the release of Tidegate that wrote it.",
            offset=0,
            expected=f"{magic!r} version {VERSION}",
            found=f"{found!r} version {version}",
        )
    try:
        return msgspec.msgpack.decode(cursor.take(size), type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise FormatError(
            f"The header of a file of state can't be read: {error}", where=where, offset=_START.size
        ) from error


class _Cursor:
    def __init__(self, data: memoryview, position: int, where: str) -> None:
        self._data = data
        self._where = where
        self.position = position

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self._data) or self.position < 0:
            raise FormatError(
                "A file of state ends too early",
                where=self._where,
                remedy="Restore from another checkpoint; this one is damaged.",
                offset=self.position,
                expected=f"{size} bytes",
                found=f"{max(0, len(self._data) - self.position)}",
            )
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def unpack(self, shape: struct.Struct) -> tuple[Any, ...]:
        return shape.unpack(self.take(shape.size))
