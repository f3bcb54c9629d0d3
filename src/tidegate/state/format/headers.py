"""The headers of our streams of state, and how a length that may lie is read.

Offsets and fields: docs/formats/keyed-state.md and docs/formats/operator-state.md. A header says
whose state a stream holds and how it was encoded. Nothing is trusted: a length that points beyond
the end is a FormatError.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tidegate.errors import FormatError, TidegateError
from tidegate.typeinfo.decoders import msgpack_decoder

if TYPE_CHECKING:
    from collections.abc import Generator

KEYED_MAGIC: Final = b"TGKS"
OPERATOR_MAGIC: Final = b"TGOS"
ROCKSDB_MAGIC: Final = b"TGRD"
SECTIONS_MAGIC: Final = b"TGKI"
VERSION: Final = 1
"""Of the formats of streams."""

ROCKSDB_VERSION: Final = 3
"""Of key spaces; in version 1 each map is one entry, and up to version 2 each list."""

_START: Final = struct.Struct("<4sHxxI")
START_BYTES: Final = _START.size

H = TypeVar("H", bound=msgspec.Struct)


class StateHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named state. kind: of `kinds.Kind`. serializer: snapshot of the entries' serializer.

    namespace: snapshot of the namespaces' serializer, where an entry's key is the pair of a key and
    a namespace. ttl: whether values are stored with their times, as `user.ttl` says.
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


class Version(msgspec.Struct, frozen=True):
    """Encoding of a state's entries: serializer and ttl as in `StateHeader`."""

    serializer: bytes
    ttl: bool


class RocksDBState(msgspec.Struct, frozen=True):
    """A named state in a key space.

    number: in the keys. versions: by the entries' first byte. by_entry: whether each entry of a
    map, or part of a list, is one of the key space; else a map or list is one as a whole. parts:
    the numbers of the parts of lists are below.
    """

    name: str
    kind: str
    number: int
    namespace: bytes | None
    versions: list[Version]
    by_entry: bool = False
    parts: int = 0


class RocksDBHeader(msgspec.Struct, frozen=True):
    """Content of an operator's key space. key: as in `KeyedHeader`."""

    operator: bytes
    checkpoint: int
    max_parallelism: int
    key: bytes | None
    states: list[RocksDBState]

    def in_blocks(self) -> list[StateHeader]:
        """States as blocks name them: one for each way in which entries were written."""
        return [
            StateHeader(
                state.name, state.kind, version.serializer, state.namespace, ttl=version.ttl
            )
            for state in self.states
            for version in state.versions
        ]


class SectionsHeader(msgspec.Struct, frozen=True):
    """Keyed state in several streams. files: by name, the key groups it has, with their offsets."""

    operator: bytes
    checkpoint: int
    max_parallelism: int
    files: dict[str, list[tuple[int, int]]]


def header_bytes(
    header: KeyedHeader | OperatorHeader | RocksDBHeader | SectionsHeader,
) -> bytes:
    """Start of a stream, up to its sections."""
    body = msgspec.msgpack.encode(header)
    magic = _MAGIC[type(header)]
    return _START.pack(magic, _version(magic), len(body)) + body


def keyed_header(data: memoryview, where: str) -> KeyedHeader:
    """Header of a stream of keyed state. Raises FormatError."""
    return _header(data, KEYED_MAGIC, KeyedHeader, where)


def operator_header(data: memoryview, where: str) -> OperatorHeader:
    """Header of a stream of operator state. Raises FormatError."""
    return _header(data, OPERATOR_MAGIC, OperatorHeader, where)


def rocksdb_header(data: memoryview, where: str) -> RocksDBHeader:
    """Description of a key space. Raises FormatError."""
    return _header(data, ROCKSDB_MAGIC, RocksDBHeader, where)


def sections_header(data: memoryview, where: str) -> SectionsHeader:
    """Streams that hold each key group. Raises FormatError."""
    return _header(data, SECTIONS_MAGIC, SectionsHeader, where)


def header_size(start: bytes, where: str) -> int:
    """Size of a stream's header, from its first `START_BYTES`. Raises FormatError."""
    _, _, size = Cursor(memoryview(start), 0, where).unpack(_START)
    return _START.size + size


_MAGIC: Final[dict[type, bytes]] = {
    KeyedHeader: KEYED_MAGIC,
    OperatorHeader: OPERATOR_MAGIC,
    RocksDBHeader: ROCKSDB_MAGIC,
    SectionsHeader: SECTIONS_MAGIC,
}


def _version(magic: bytes) -> int:
    return ROCKSDB_VERSION if magic == ROCKSDB_MAGIC else VERSION


@contextmanager
def reading(where: str) -> Generator[None, None, None]:
    """Values are read in it: whatever goes wrong is a FormatError, or already one of ours.

    Damaged bytes may look like any value, and unpickling runs code of the values' classes.
    """
    try:
        yield
    except TidegateError as error:
        error.where = error.where or where
        raise
    except Exception as error:
        raise FormatError(
            f"The values of a state can't be read: {error}",
            where=where,
            remedy="Restore from another checkpoint; this one is damaged, or a class of the values"
            " can't read its old form.",
        ) from error


def _header(data: memoryview, magic: bytes, kind: type[H], where: str) -> H:
    cursor = Cursor(data, 0, where)
    found, version, size = cursor.unpack(_START)
    newest = _version(magic)
    if found != magic or not VERSION <= version <= newest:
        raise FormatError(
            "A file of state is of another kind or version",
            where=where,
            remedy="Read it with the release of Tidegate that wrote it.",
            offset=0,
            expected=f"{magic!r} version {newest}",
            found=f"{found!r} version {version}",
        )
    try:
        return msgpack_decoder(kind).decode(cursor.take(size))
    except (msgspec.DecodeError, ValueError) as error:
        raise FormatError(
            f"The header of a file of state can't be read: {error}", where=where, offset=_START.size
        ) from error


class Cursor:
    """Takes bytes in order. Raises FormatError if there are too few."""

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
