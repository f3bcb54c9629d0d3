"""Blocks of entries in sections of key groups, and elements of operator state, as bytes.

Offsets and fields: docs/formats/keyed-state.md and docs/formats/operator-state.md. Only the offsets
in the state handle lead to what follows a stream's header. Nothing is trusted: a length that points
beyond the end is a FormatError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.errors import FormatError
from tidegate.state.format.headers import START_BYTES, Cursor, header_bytes, header_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.format.headers import KeyedHeader

    Compress = Callable[[bytes], bytes]

PRESENT: Final = 1
MISSING: Final = 2
COLUMNS: Final = 3
COMPRESSED: Final = 4

_SECTION: Final = struct.Struct("<IQ")
_BLOCK: Final = struct.Struct("<BxHIQQ")
_ELEMENT: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<Q")
_PART_BYTES: Final = 8 << 20
_IS_COMPRESSED: Final = 1 << 63

SECTION_BYTES: Final = _SECTION.size
ELEMENT_BYTES: Final = _ELEMENT.size


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
        """Writes the section of a key group; nothing without blocks."""
        if not blocks:
            return
        self._offsets[group] = self._position
        for part in _parts(section_bytes(group, blocks, self._compress)):
            self._write(part)
            self._position += len(part)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Start of each key group's section; 0 for groups without one."""
        return tuple(self._offsets.values())


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
            plain = _decompressed(block.keys, block.values, where)
            yield from _blocks(Cursor(plain, 0, where), len(plain))
        else:
            yield block


def _blocks(cursor: Cursor, end: int) -> Iterator[Block]:
    while cursor.position < end:
        kind, state, rows, keys_size, values_size = cursor.unpack(_BLOCK)
        yield Block(kind, state, rows, cursor.take(keys_size), cursor.take(values_size))


def _decompressed(size: bytes | memoryview, data: bytes | memoryview, where: str) -> memoryview:
    # Only who has compressed state pays for the import.
    from tidegate.state.format.compression import decompressed

    [plain] = Cursor(memoryview(size), 0, where).unpack(_SIZE)
    return decompressed(memoryview(data), plain, where)


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
    return _decompressed(stored[: _SIZE.size], stored[_SIZE.size :], where)
