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
from tidegate.typeinfo.decoders import msgpack_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from flinkformat.key_groups import KeyGroupRange

    Compress = Callable[[bytes], bytes]

KEYED_MAGIC: Final = b"TGKS"
OPERATOR_MAGIC: Final = b"TGOS"
ROCKSDB_MAGIC: Final = b"TGRD"
SECTIONS_MAGIC: Final = b"TGKI"
VERSION: Final = 1
"""Of the formats of streams."""

ROCKSDB_VERSION: Final = 3
"""Of key spaces; in version 1 each map is one entry, and up to version 2 each list."""

PRESENT: Final = 1
MISSING: Final = 2
COLUMNS: Final = 3
COMPRESSED: Final = 4

_START: Final = struct.Struct("<4sHxxI")
_SECTION: Final = struct.Struct("<IQ")
_BLOCK: Final = struct.Struct("<BxHIQQ")
_ELEMENT: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<Q")
_PART_BYTES: Final = 8 << 20
_IS_COMPRESSED: Final = 1 << 63

START_BYTES: Final = _START.size
SECTION_BYTES: Final = _SECTION.size
ELEMENT_BYTES: Final = _ELEMENT.size

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


class Version(msgspec.Struct, frozen=True):
    """How entries of a state were written: serializer and ttl as in `StateHeader`."""

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
    """What the key space of one operator holds. key: as in `KeyedHeader`."""

    operator: bytes
    checkpoint: int
    max_parallelism: int
    key: bytes | None
    states: list[RocksDBState]

    def in_blocks(self) -> list[StateHeader]:
        """The states as blocks name them: one for each way in which entries were written."""
        return [
            StateHeader(
                state.name, state.kind, version.serializer, state.namespace, ttl=version.ttl
            )
            for state in self.states
            for version in state.versions
        ]


class SectionsHeader(msgspec.Struct, frozen=True):
    """Keyed state in several streams. files: by name, each key group it counts for, and where."""

    operator: bytes
    checkpoint: int
    max_parallelism: int
    files: dict[str, list[tuple[int, int]]]


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

    @property
    def size(self) -> int:
        """Bytes of it in a section."""
        return _BLOCK.size + len(self.keys) + len(self.values)


def header_bytes(
    header: KeyedHeader | OperatorHeader | RocksDBHeader | SectionsHeader,
) -> bytes:
    """The start of a stream."""
    body = msgspec.msgpack.encode(header)
    magic = _MAGIC[type(header)]
    return _START.pack(magic, _version(magic), len(body)) + body


def keyed_header(data: memoryview, where: str) -> KeyedHeader:
    """The header of a stream of keyed state; raises FormatError."""
    return _header(data, KEYED_MAGIC, KeyedHeader, where)


def operator_header(data: memoryview, where: str) -> OperatorHeader:
    """The header of a stream of operator state; raises FormatError."""
    return _header(data, OPERATOR_MAGIC, OperatorHeader, where)


def rocksdb_header(data: memoryview, where: str) -> RocksDBHeader:
    """The description of a key space; raises FormatError."""
    return _header(data, ROCKSDB_MAGIC, RocksDBHeader, where)


def sections_header(data: memoryview, where: str) -> SectionsHeader:
    """Which streams hold which key groups; raises FormatError."""
    return _header(data, SECTIONS_MAGIC, SectionsHeader, where)


def section_bytes(
    group: int, blocks: Sequence[Block], compress: Compress | None = None
) -> Iterator[bytes | memoryview]:
    """The section of a key group, in pieces to be written one after the other.

    compress: makes of all blocks one that holds them, where that is smaller.
    """
    if compress is not None:
        plain = b"".join(piece for block in blocks for piece in _block_pieces(block))
        packed = Block(COMPRESSED, 0, 0, _SIZE.pack(len(plain)), compress(plain))
        if packed.size < len(plain):
            blocks = [packed]
    yield _SECTION.pack(group, sum(block.size for block in blocks))
    for block in blocks:
        yield from _block_pieces(block)


class KeyedStreamWriter:
    """Writes a stream of keyed state: its header, then one section a key group, in their order.

    write: takes the bytes, many of them at a time. compress: as of `section_bytes`.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        header: KeyedHeader,
        key_groups: KeyGroupRange,
        compress: Compress | None = None,
    ) -> None:
        self._write = write
        self._compress = compress
        self._offsets = dict.fromkeys(key_groups, 0)
        opening = header_bytes(header)
        self._position = len(opening)
        write(opening)

    def add(self, group: int, blocks: Sequence[Block]) -> None:
        """Write the section of a key group; nothing where there are no blocks."""
        if not blocks:
            return
        self._offsets[group] = self._position
        for part in _parts(section_bytes(group, blocks, self._compress)):
            self._write(part)
            self._position += len(part)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where the section of each key group begins; 0 for those that have none."""
        return tuple(self._offsets.values())


def _parts(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes in few pieces: who writes beside waits some 5 ms for its turn for each."""
    part: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        part.append(piece)
        size += len(piece)
        if size >= _PART_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def header_size(start: bytes, where: str) -> int:
    """Bytes of a stream's header, told from its first `START_BYTES`; raises FormatError."""
    _, _, size = _Cursor(memoryview(start), 0, where).unpack(_START)
    return _START.size + size


def section_frame(start: bytes, where: str) -> tuple[int, int]:
    """The key group of a section and its bytes, told from its first `SECTION_BYTES`.

    Raises FormatError.
    """
    group, size = _Cursor(memoryview(start), 0, where).unpack(_SECTION)
    return group, _SECTION.size + size


def element_size(start: bytes, where: str) -> int:
    """Bytes of an element, told from its first `ELEMENT_BYTES`; raises FormatError."""
    [size] = _Cursor(memoryview(start), 0, where).unpack(_ELEMENT)
    return _ELEMENT.size + (size & ~_IS_COMPRESSED)


def _block_pieces(block: Block) -> Iterator[bytes | memoryview]:
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
    for block in _blocks(cursor, cursor.position + size):
        if block.kind == COMPRESSED:
            plain = _decompressed(block.keys, block.values, where)
            yield from _blocks(_Cursor(plain, 0, where), len(plain))
        else:
            yield block


def _blocks(cursor: _Cursor, end: int) -> Iterator[Block]:
    while cursor.position < end:
        kind, state, rows, keys_size, values_size = cursor.unpack(_BLOCK)
        yield Block(kind, state, rows, cursor.take(keys_size), cursor.take(values_size))


def _decompressed(size: bytes | memoryview, data: bytes | memoryview, where: str) -> memoryview:
    # Only who has compressed state pays for the import.
    from tidegate.state.compression import decompressed

    [plain] = _Cursor(memoryview(size), 0, where).unpack(_SIZE)
    return decompressed(memoryview(data), plain, where)


def all_sections(data: memoryview, where: str) -> Iterator[tuple[int, Iterator[Block]]]:
    """Each key group that a stream of keyed state has, and its blocks; raises FormatError."""
    for group, offset in section_offsets(data, where):
        yield group, section(data, offset, group, where)


def section_offsets(data: memoryview, where: str) -> list[tuple[int, int]]:
    """Each key group that a stream of keyed state has, and where it begins; raises FormatError."""
    cursor = _Cursor(data, 0, where)
    _, _, size = cursor.unpack(_START)
    cursor.take(size)
    found: list[tuple[int, int]] = []
    while cursor.position < len(data):
        offset = cursor.position
        group, size = cursor.unpack(_SECTION)
        cursor.take(size)
        found.append((group, offset))
    return found


def element_bytes(encoded: bytes, compress: Compress | None = None) -> bytes:
    """An element of operator state; compressed where that is smaller."""
    if compress is not None:
        packed = _SIZE.pack(len(encoded)) + compress(encoded)
        if len(packed) < len(encoded):
            return _ELEMENT.pack(len(packed) | _IS_COMPRESSED) + packed
    return _ELEMENT.pack(len(encoded)) + encoded


def element(data: memoryview, offset: int, where: str) -> memoryview:
    """The element at an offset; raises FormatError."""
    cursor = _Cursor(data, offset, where)
    [size] = cursor.unpack(_ELEMENT)
    stored = cursor.take(size & ~_IS_COMPRESSED)
    if not size & _IS_COMPRESSED:
        return stored
    return _decompressed(stored[: _SIZE.size], stored[_SIZE.size :], where)


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
    cursor = _Cursor(data, 0, where)
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
