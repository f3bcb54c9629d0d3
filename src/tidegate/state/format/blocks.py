"""The bytes of streams of state: a header, then key groups in sections, or elements.

Offsets and fields: docs/formats/keyed-state.md and docs/formats/operator-state.md. A header says
whose state a stream holds and how it was encoded; only the offsets in the state handle lead to what
follows it. Nothing is trusted: a length that points beyond the end is a FormatError.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from flinkformat.frozen import frozen
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

_START: Final = struct.Struct("<4sHxxI")
START_BYTES: Final = _START.size

PRESENT: Final = 1
MISSING: Final = 2
COLUMNS: Final = 3
COMPRESSED: Final = 4

COLUMNS_NAME: Final = "columns"
"""Names all columnar state of an operator together, where states are told by name."""

_SECTION: Final = struct.Struct("<IQ")
_BLOCK: Final = struct.Struct("<BxHIQQ")
_ELEMENT: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<Q")
_PART_BYTES: Final = 8 << 20
_IS_COMPRESSED: Final = 1 << 63

SECTION_BYTES: Final = _SECTION.size
ELEMENT_BYTES: Final = _ELEMENT.size

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
    the numbers of the parts of lists are below. timed_ms: time of values that are stored without
    one in a state that has a time to live by now, in milliseconds since 1970; 0 if there are none.
    """

    name: str
    kind: str
    number: int
    namespace: bytes | None
    versions: list[Version]
    by_entry: bool = False
    parts: int = 0
    timed_ms: int = 0


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


@frozen
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
        return _BLOCK.size + len(self.keys) + len(self.values)


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

    write: takes the bytes, many of them at a time. compress: as of `section_bytes`. held: bytes by
    state of each key group that was written, before they were compressed.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        header: KeyedHeader,
        key_groups: KeyGroupRange,
        compress: Compress | None = None,
    ) -> None:
        self._write = write
        self._compress = compress
        self._names = [state.name for state in header.states]
        self._offsets = dict.fromkeys(key_groups, 0)
        self.held: dict[int, dict[str, int]] = {}
        opening = header_bytes(header)
        self._position = len(opening)
        write(opening)

    def add(self, group: int, blocks: Sequence[Block]) -> None:
        """Writes the section of a key group; nothing without blocks."""
        if not blocks:
            return
        self._offsets[group] = self._position
        self.held[group] = self._sizes(blocks)
        for part in _parts(section_bytes(group, blocks, self._compress)):
            self._write(part)
            self._position += len(part)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Start of each key group's section; 0 for groups without one."""
        return tuple(self._offsets.values())

    def _sizes(self, blocks: Sequence[Block]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for block in blocks:
            name = COLUMNS_NAME if block.kind == COLUMNS else self._names[block.state]
            sizes[name] = sizes.get(name, 0) + len(block.keys) + len(block.values)
        return sizes


def _parts(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The bytes in few pieces, since the writing thread waits some 5 ms for each."""
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


def section_frame(start: bytes, where: str) -> tuple[int, int]:
    """The key group of a section and its bytes, told from its first `SECTION_BYTES`.

    Raises FormatError.
    """
    group, size = Cursor(memoryview(start), 0, where).unpack(_SECTION)
    return group, _SECTION.size + size


def element_size(start: bytes, where: str) -> int:
    """Size of an element, from its first `ELEMENT_BYTES`. Raises FormatError."""
    [size] = Cursor(memoryview(start), 0, where).unpack(_ELEMENT)
    return _ELEMENT.size + (size & ~_IS_COMPRESSED)


def _block_pieces(block: Block) -> Iterator[bytes | memoryview]:
    sizes = len(block.keys), len(block.values)
    yield _BLOCK.pack(block.kind, block.state, block.rows, *sizes)
    yield block.keys
    yield block.values


def section(data: memoryview, offset: int, group: int, where: str) -> Iterator[Block]:
    """Blocks of a key group's section. Raises FormatError."""
    cursor = Cursor(data, offset, where)
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
            plain = decompressed(block.keys, block.values, where)
            yield from _blocks(Cursor(plain, 0, where), len(plain))
        else:
            yield block


def _blocks(cursor: Cursor, end: int) -> Iterator[Block]:
    while cursor.position < end:
        kind, state, rows, keys_size, values_size = cursor.unpack(_BLOCK)
        yield Block(kind, state, rows, cursor.take(keys_size), cursor.take(values_size))


def compressor() -> Compress:
    """Makes data one zstd frame, which may be longer; releases the interpreter meanwhile.

    zstd at its lowest level makes records of texts a seventh of their size at 300 MB a second, lz4
    and Flink's snappy a quarter at twice that (benchmarks/state_bench.py); pairs of numbers become
    three quarters with it and stay as they are with the others.
    """
    # PyArrow takes long to import, and only compressed state pays for it.
    import pyarrow as pa

    return partial(pa.Codec("zstd", compression_level=1).compress, asbytes=True)


def decompressed(size: bytes | memoryview, data: bytes | memoryview, where: str) -> memoryview:
    """Decompresses to exactly the size that is stated. Raises FormatError for any other bytes."""
    import pyarrow as pa

    [plain] = Cursor(memoryview(size), 0, where).unpack(_SIZE)
    try:
        codec = pa.Codec("zstd", compression_level=1)
        return memoryview(codec.decompress(data, decompressed_size=plain, asbytes=True))
    except (pa.ArrowException, OSError, OverflowError, MemoryError, ValueError) as error:
        raise FormatError(
            f"A compressed part of state can't be read: {error}",
            where=where,
            remedy="Restore from another checkpoint; this one is damaged.",
            expected=f"a zstd frame of {plain} bytes",
            found=f"{len(data)} bytes",
        ) from error


def all_sections(data: memoryview, where: str) -> Iterator[tuple[int, Iterator[Block]]]:
    """Each key group of a stream, with its blocks. Raises FormatError."""
    for group, offset in section_offsets(data, where):
        yield group, section(data, offset, group, where)


def section_offsets(data: memoryview, where: str) -> list[tuple[int, int]]:
    """Each key group of a stream, with the start of its section. Raises FormatError."""
    cursor = Cursor(data, 0, where)
    cursor.take(header_size(bytes(data[:START_BYTES]), where))
    found: list[tuple[int, int]] = []
    while cursor.position < len(data):
        offset = cursor.position
        group, size = cursor.unpack(_SECTION)
        cursor.take(size)
        found.append((group, offset))
    return found


def element_bytes(encoded: bytes, compress: Compress | None = None) -> bytes:
    """Encodes an element of operator state; compressed if that is smaller."""
    if compress is not None:
        packed = _SIZE.pack(len(encoded)) + compress(encoded)
        if len(packed) < len(encoded):
            return _ELEMENT.pack(len(packed) | _IS_COMPRESSED) + packed
    return _ELEMENT.pack(len(encoded)) + encoded


def element(data: memoryview, offset: int, where: str) -> memoryview:
    """Decodes the element at an offset. Raises FormatError."""
    cursor = Cursor(data, offset, where)
    [size] = cursor.unpack(_ELEMENT)
    stored = cursor.take(size & ~_IS_COMPRESSED)
    if not size & _IS_COMPRESSED:
        return stored
    return decompressed(stored[: _SIZE.size], stored[_SIZE.size :], where)
