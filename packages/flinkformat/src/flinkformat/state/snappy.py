"""The snappy framing format, with which Flink compresses key groups and operator state.

A stream has no end of its own: whoever reads it knows when it has enough. Layout:
docs/formats/flink-state.md, section 7.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from google_crc32c import value as crc32c

from flinkformat.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC: Final = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED: Final = 0x00
_PLAIN: Final = 0x01
_STREAM: Final = 0xFF
_PADDING_MIN: Final = 0x80
_BLOCK_MAX: Final = 1 << 16
_CHECKSUM_BYTES: Final = 4
_WORTH_IT: Final = 0.85


def chunk(data: bytes) -> bytes:
    packed = pa.compress(data, codec="snappy", asbytes=True)
    kind, body = (_COMPRESSED, packed) if len(packed) <= _WORTH_IT * len(data) else (_PLAIN, data)
    size = len(body) + _CHECKSUM_BYTES
    return bytes([kind]) + size.to_bytes(3, "little") + _checksum(data) + body


def compressed(data: bytes) -> bytes:
    starts = range(0, len(data), _BLOCK_MAX)
    return MAGIC + b"".join(chunk(data[start : start + _BLOCK_MAX]) for start in starts)


def chunks(data: bytes, start: int, end: int, where: str) -> Iterator[tuple[int, bytes]]:
    position = start
    while position < end:
        head = data[position : min(position + 4, end)]
        size = int.from_bytes(head[1:4], "little")
        body = data[position + 4 : position + 4 + size]
        behind = position + 4 + size
        if len(head) < 4 or behind > end:
            raise _damaged("a chunk ends too early", where, position)
        kind = head[0]
        if kind in (_COMPRESSED, _PLAIN):
            yield position, _opened(kind, body, where, position)
        elif kind == _STREAM or kind >= _PADDING_MIN:
            yield position, b""
        else:
            raise _damaged(f"a chunk is of the kind {kind}", where, position)
        position = behind


def _opened(kind: int, body: bytes, where: str, position: int) -> bytes:
    expected, packed = body[:_CHECKSUM_BYTES], body[_CHECKSUM_BYTES:]
    plain = packed
    if kind == _COMPRESSED:
        size = _plain_size(packed)
        if not 0 <= size <= _BLOCK_MAX:
            raise _damaged("a chunk is larger than chunks may be", where, position)
        try:
            plain = pa.decompress(packed, size, codec="snappy", asbytes=True)
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(f"a chunk can't be read: {error}", where, position) from error
    if _checksum(plain) != expected:
        raise _damaged("the checksum of a chunk is that of other bytes", where, position)
    return plain


def _plain_size(packed: bytes) -> int:
    size = 0
    for place, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    return -1


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)


def _damaged(what: str, where: str, offset: int) -> FormatError:
    return FormatError(
        f"Compressed state can't be read: {what}",
        where=where,
        remedy="The file is damaged; take another snapshot.",
        offset=offset,
        expected="the snappy framing format",
        found=what,
    )
