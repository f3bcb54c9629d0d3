"""Java's hash codes and Flink's key groups of whole columns, in NumPy.

The same numbers as `flinkformat.java_hash` gives one by one, as arrays of uint32 that wrap around.
Texts and bytes need no loop: with P[i] the sum of unit[k] · 31^-k for k < i (31 has an inverse
modulo 2^32), the hash of the units from a to b is (P[b] - P[a]) · 31^(b-1).
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flinkformat.java_hash import key_group_of_hash

Codes = NDArray[np.uint32]
"""Hash codes: 32-bit two's complement in unsigned clothes, so that NumPy wraps in silence."""

SMALL_BATCH: Final = 12
"""Up to so many keys, plain Python is faster than a dozen calls of NumPy."""

_SMALL_CODES: Final = 1 << 16
_MANY: Final = 256
"""For fewer codes a look-up does not pay."""

_UNITS_MAX: Final = 1 << 16
_INVERSE_OF_31: Final = pow(31, -1, 1 << 32)
_CANONICAL_DOUBLE_NAN: Final = np.uint64(0x7FF8000000000000)
_CANONICAL_FLOAT_NAN: Final = np.uint32(0x7FC00000)


def _powers(base: int) -> Codes:
    factors = np.full(_UNITS_MAX + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS: Final = _powers(31)
_INVERSES: Final = _powers(_INVERSE_OF_31)


def key_groups_of_codes(codes: Codes, max_parallelism: int) -> NDArray[np.int16]:
    """Key groups of keys with these hash codes, as `flinkformat.java_hash.mix` gives for each."""
    if len(codes) <= SMALL_BATCH:
        groups = [key_group_of_hash(code, max_parallelism) for code in codes.tolist()]
        return np.array(groups, np.int16)
    if codes.max() < _SMALL_CODES and len(codes) >= _MANY:
        return _groups_of_small_codes(max_parallelism).take(codes)
    return _mixed(codes, max_parallelism)


@cache
def _groups_of_small_codes(max_parallelism: int) -> NDArray[np.int16]:
    """Key groups of the codes from 0 on, to look up those of small numbers."""
    return _mixed(np.arange(_SMALL_CODES, dtype=np.uint32), max_parallelism)


def _mixed(codes: Codes, max_parallelism: int) -> NDArray[np.int16]:
    mixed = codes * 0xCC9E2D51
    high = mixed >> 17
    mixed <<= 15
    mixed |= high
    mixed *= 0x1B873593
    np.right_shift(mixed, 19, out=high)
    mixed <<= 13
    mixed |= high
    mixed *= 5
    mixed += 0xE6546B64
    mixed ^= 4
    mixed ^= mixed >> 16
    mixed *= 0x85EBCA6B
    mixed ^= mixed >> 13
    mixed *= 0xC2B2AE35
    mixed ^= mixed >> 16
    signed = mixed.view(np.int32)
    np.abs(signed, out=signed)
    # abs leaves the least number as it is; without its top bit it is the 0 that Flink makes of it.
    mixed &= 0x7FFFFFFF
    if max_parallelism & (max_parallelism - 1) == 0:
        mixed &= max_parallelism - 1
    else:
        mixed %= max_parallelism
    return mixed.astype(np.int16)


def codes_of_longs(numbers: NDArray[np.int64]) -> Codes:
    halves = np.ascontiguousarray(numbers).view(np.uint32).reshape(-1, 2)
    return halves[:, 0] ^ halves[:, 1]


def codes_of_ints(numbers: NDArray[np.int64]) -> Codes:
    """`Integer.hashCode` of each, also of a Short or a Byte; the numbers fit 32 bits."""
    return numbers.astype(np.int32).view(np.uint32)


def codes_of_booleans(values: NDArray[np.bool_]) -> Codes:
    return np.where(values, np.uint32(1231), np.uint32(1237))


def codes_of_doubles(numbers: NDArray[np.float64]) -> Codes:
    bits = np.where(np.isnan(numbers), _CANONICAL_DOUBLE_NAN, numbers.view(np.uint64))
    return codes_of_longs(bits.view(np.int64))


def codes_of_numbers(numbers: NDArray[np.float64]) -> Codes:
    """Hash of each number by value: `Long.hashCode` of whole numbers within 64 bits."""
    # 2^63 is a float, and the first one that is too great.
    whole = (np.trunc(numbers) == numbers) & (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    longs = np.where(whole, numbers, 0).astype(np.int64)
    return np.where(whole, codes_of_longs(longs), codes_of_doubles(numbers))


def codes_of_floats(numbers: NDArray[np.float32]) -> Codes:
    return np.where(np.isnan(numbers), _CANONICAL_FLOAT_NAN, numbers.view(np.uint32))


def codes_of_strings(texts: list[str]) -> Codes:
    # A NUL between the texts adds nothing to the sums, and finding it is faster than asking each
    # text for its length (which counts code points anyway, not UTF-16 units).
    joined = "\0".join(texts)
    if joined.isascii():
        units = np.frombuffer(joined.encode(), np.uint8)
    else:
        units = np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), np.uint16)
    gaps = np.flatnonzero(units == 0)
    if len(gaps) == len(texts) - 1:
        ends = np.append(gaps, len(units))
    else:
        lengths = (len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts)
        ends = np.cumsum(np.fromiter(lengths, np.int64, len(texts)) + 1) - 1
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    return codes_of_units(units, starts, ends)


def codes_of_bytes(values: list[bytes]) -> Codes:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(lengths)
    return codes_of_signed_bytes(np.frombuffer(b"".join(values), np.int8), ends - lengths, ends)


def codes_of_signed_bytes(
    units: NDArray[np.int8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> Codes:
    """`Arrays.hashCode(byte[])` of each stretch of bytes."""
    sums = codes_of_units(units, starts, ends)
    # Java starts from 1, which the length carries up by as many powers of 31.
    lengths = ends - starts
    if lengths.max(initial=0) <= _UNITS_MAX:
        return sums + _POWERS[lengths]
    return sums + np.array([pow(31, int(n), 1 << 32) for n in lengths], np.uint32)


def codes_of_units(
    units: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Codes:
    """Polynomial to base 31 of each stretch units[start:end]; starts and ends ascend."""
    if len(ends) == 0 or ends[-1] - starts[0] <= _UNITS_MAX:
        return _codes_of_stretch(units, starts, ends)
    parts: list[Codes] = []
    row = 0
    while row < len(ends):
        stop = int(np.searchsorted(ends, starts[row] + _UNITS_MAX, side="right"))
        if stop > row:
            parts.append(_codes_of_stretch(units, starts[row:stop], ends[row:stop]))
        else:
            stop = row + 1
            parts.append(_code_of_long_text(units[starts[row] : ends[row]]))
        row = stop
    return np.concatenate(parts)


def _codes_of_stretch(
    units: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Codes:
    if len(ends) == 0:
        return np.empty(0, np.uint32)
    first, last = starts[0], ends[-1]
    sums = np.empty(last - first + 1, np.uint32)
    sums[0] = 0
    weighted = units[first:last].astype(np.uint32)
    weighted *= _INVERSES[: last - first]
    np.cumsum(weighted, dtype=np.uint32, out=sums[1:])
    # An empty text at the very start looks up the power at -1; its sum is 0 all the same.
    return (sums[ends - first] - sums[starts - first]) * _POWERS[ends - first - 1]


def _code_of_long_text(
    units: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int8],
) -> Codes:
    code = 0
    for start in range(0, len(units), _UNITS_MAX):
        stop = min(start + _UNITS_MAX, len(units))
        part = _codes_of_stretch(units, np.array([start]), np.array([stop]))
        code = (code * pow(31, stop - start, 1 << 32) + int(part[0])) & 0xFFFFFFFF
    return np.array([code], np.uint32)


def codes_of_days(days: NDArray[np.int64]) -> Codes:
    """`LocalDate.hashCode` of each day since 1970-01-01."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = months.astype("datetime64[Y]")
    day = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    month = (months - years.astype("datetime64[M]")).astype(np.int64) + 1
    year = years.astype(np.int64) + 1970
    codes = (year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)
    return (codes & 0xFFFFFFFF).astype(np.uint32)


def codes_of_local_instants(days: NDArray[np.int64], nanos: NDArray[np.int64]) -> Codes:
    """`LocalDateTime.hashCode` of each day since 1970-01-01 with its nanosecond of the day."""
    return codes_of_days(days) ^ codes_of_longs(nanos)


def codes_of_instants(seconds: NDArray[np.int64], nanos: NDArray[np.int64]) -> Codes:
    """`Instant.hashCode` of each second since 1970 with its nanosecond."""
    return codes_of_longs(seconds) + nanos.astype(np.uint32) * 51


def codes_of_tuples(fields: list[Codes]) -> Codes:
    """Hash of Flink's Tuple1 to Tuple25 for each row of fields."""
    codes = fields[0].copy()
    for each in fields[1:]:
        codes *= 31
        codes += each
    return codes


def codes_of_rows(fields: list[Codes], rows: int) -> Codes:
    """Hash of Flink's positional INSERT Row for each row of fields; none of them is null."""
    codes = np.ones(rows, np.uint32)
    for each in fields:
        codes *= 31
        codes += each
        codes += 31
    return codes
