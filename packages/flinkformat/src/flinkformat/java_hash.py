"""Java's hash codes in plain Python, and Flink's way from a hash code to a key group.

These are the package's rules for every type of key that Flink hashes by value: they say in which
key group a snapshot holds a key. Not all of them are used within the package. Every function works
on plain numbers and gives a signed 32-bit result that wraps around as Java's does.
Source: the Java library's documentation of each hashCode; golden values in
tests/fixtures/golden-rules.jsonl.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MASK: Final = 0xFFFFFFFF
_INT_MIN: Final = -0x80000000
_CANONICAL_DOUBLE_NAN: Final = 0x7FF8000000000000
_CANONICAL_FLOAT_NAN: Final = 0x7FC00000


def int32(number: int) -> int:
    return ((number + 0x80000000) & _MASK) - 0x80000000


def hash_string(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, so an emoji counts as two."""
    units = text.encode("utf-16-le", "surrogatepass")
    code = 0
    for unit in memoryview(units).cast("H"):
        code = (31 * code + unit) & _MASK
    return int32(code)


def hash_long(number: int) -> int:
    """`Long.hashCode` of a number within 64 signed bits."""
    return int32(number ^ (number >> 32))


def hash_boolean(value: bool) -> int:
    return 1231 if value else 1237


def hash_double(number: float) -> int:
    """`Double.hashCode`: every NaN alike, the two zeros apart."""
    if number != number:
        return hash_long(_CANONICAL_DOUBLE_NAN)
    return hash_long(struct.unpack("<q", struct.pack("<d", number))[0])


def hash_float(number: float) -> int:
    """`Float.hashCode` of the number rounded to single precision."""
    if number != number:
        return _CANONICAL_FLOAT_NAN
    return struct.unpack("<i", struct.pack("<f", number))[0]


def hash_bytes(data: bytes) -> int:
    code = 1
    for byte in memoryview(data).cast("b"):
        code = (31 * code + byte) & _MASK
    return int32(code)


def hash_big_integer(number: int) -> int:
    """`BigInteger.hashCode`: over the 32-bit words of the magnitude, times the sign."""
    magnitude = abs(number)
    words = magnitude.to_bytes((magnitude.bit_length() + 31) // 32 * 4, "big")
    code = 0
    for start in range(0, len(words), 4):
        code = (31 * code + int.from_bytes(words[start : start + 4], "big")) & _MASK
    return int32(code if number >= 0 else -code)


def hash_big_decimal(unscaled: int, scale: int) -> int:
    """`BigDecimal.hashCode` of unscaled · 10^-scale; 1.1 and 1.10 differ."""
    if -(2**63) < unscaled < 2**63:
        magnitude = abs(unscaled)
        code = int32((magnitude >> 32) * 31 + (magnitude & _MASK))
        code = -code if unscaled < 0 else code
    else:
        code = hash_big_integer(unscaled)
    return int32(31 * code + scale)


def hash_local_date(year: int, month: int, day: int) -> int:
    return int32((year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day))


def hash_local_time(nano_of_day: int) -> int:
    return hash_long(nano_of_day)


def hash_instant(seconds: int, nanos: int) -> int:
    """`Instant.hashCode`; seconds since 1970, 0 <= nanos < 10^9."""
    return int32(hash_long(seconds) + 51 * nanos)


def hash_uuid(bits: int) -> int:
    folded = (bits >> 64) ^ (bits & 0xFFFFFFFFFFFFFFFF)
    return int32((folded >> 32) ^ folded)


def hash_list(hashes: Iterable[int]) -> int:
    """`List.hashCode` from the hashes of its elements, 0 for null."""
    code = 1
    for each in hashes:
        code = (31 * code + each) & _MASK
    return int32(code)


def hash_tuple(hashes: Iterable[int]) -> int:
    """Hash of Flink's Tuple1 to Tuple25 from those of its fields, 0 for null: no leading one."""
    code = 0
    for each in hashes:
        code = (31 * code + each) & _MASK
    return int32(code)


def hash_row(hashes: Iterable[int | None], *, kind: int = 0) -> int:
    """Hash of Flink's positional Row from those of its fields, None for null.

    The fields must not be lists, maps or rows of objects, which Flink hashes in depth.
    kind: RowKind's number, 0 for INSERT.
    """
    deep = hash_list(0 if each is None else 31 + each for each in hashes)
    return int32(31 * kind + deep)


def mix(code: int) -> int:
    """Flink's murmur of a hash code: 31 bits, never negative.

    Source: Flink, MathUtils.murmurHash: MurmurHash3 x86_32 of the four bytes, made absolute.
    """
    code = (code * 0xCC9E2D51) & _MASK
    code = (code << 15 | code >> 17) & _MASK
    code = (code * 0x1B873593) & _MASK
    code = (code << 13 | code >> 19) & _MASK
    code = (code * 5 + 0xE6546B64) & _MASK
    mixed = int32(bit_mix(code ^ 4))
    return 0 if mixed == _INT_MIN else abs(mixed)


def bit_mix(code: int) -> int:
    """MurmurHash3's finaliser over 32 bits; also the order of entries in Flink's heap tables."""
    code &= _MASK
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & _MASK
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & _MASK
    return int32(code ^ code >> 16)


def key_group_of_hash(code: int, max_parallelism: int) -> int:
    return mix(code) % max_parallelism
