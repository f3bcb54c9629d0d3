"""Java's primitives: big-endian numbers, modified UTF-8, and lengths that must be checked.

Whatever the bytes say, a `Reader` raises nothing but FormatError, never reads past its end, makes
no list longer than the bytes that are left, and nests no deeper than `DEPTH_MAX`.
Offsets and notation: docs/formats/metadata.md.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from flinkformat.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

DEPTH_MAX: Final = 16
UTF_BYTES_MAX: Final = 0xFFFF

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_U16: Final = struct.Struct(">H")

_T = TypeVar("_T")


class Reader:
    """A cursor over the bytes of one file.

    where: what is being read, as a phrase; whoever walks on to the next part sets it, and every
    error carries it.
    """

    def __init__(
        self, data: bytes, where: str = "", *, start: int = 0, end: int | None = None
    ) -> None:
        self._data = data
        self._end = len(data) if end is None else end
        self._depth = 0
        self.offset = start
        self.where = where

    @property
    def remaining(self) -> int:
        return self._end - self.offset

    def fail(
        self, what: str, *, expected: str, found: str, offset: int, remedy: str = ""
    ) -> FormatError:
        return FormatError(
            what, where=self.where, remedy=remedy, offset=offset, expected=expected, found=found
        )

    def end(self, what: str, *, expected: str) -> None:
        """Raises FormatError, whose text begins with `what`, if bytes are left."""
        if self.remaining:
            found = f"{self.remaining} bytes"
            raise self.fail(what, expected=expected, found=found, offset=self.offset)

    def raw(self, size: int, what: str) -> bytes:
        start = self.offset
        if size < 0:
            raise self.fail(
                f"the length of {what} is negative",
                expected="0 or more bytes",
                found=str(size),
                offset=start,
            )
        if size > self.remaining:
            raise self.fail(
                f"the bytes end within {what}",
                expected=f"{size} bytes",
                found=f"{self.remaining} bytes",
                offset=start,
            )
        self.offset = start + size
        return self._data[start : self.offset]

    def u8(self, what: str) -> int:
        return self.raw(1, what)[0]

    def u16(self, what: str) -> int:
        return int(_U16.unpack(self.raw(2, what))[0])

    def i32(self, what: str) -> int:
        return int(_I32.unpack(self.raw(4, what))[0])

    def i64(self, what: str) -> int:
        return int(_I64.unpack(self.raw(8, what))[0])

    def boolean(self, what: str) -> bool:
        return self.u8(what) != 0

    def bounded(self, what: str, low: int, high: int) -> int:
        start = self.offset
        value = self.i32(what)
        if not low <= value <= high:
            raise self.fail(
                f"{what} is out of bounds",
                expected=f"{low} to {high}",
                found=str(value),
                offset=start,
            )
        return value

    def count(self, what: str, *, element_size_min: int = 1) -> int:
        """Reads an i32 number of elements; never more than the bytes left can hold."""
        start = self.offset
        value = self.i32(f"the number of {what}")
        if not 0 <= value <= self.remaining // element_size_min:
            raise self.fail(
                f"invalid number of {what}: {value}",
                expected=f"0 to {self.remaining // element_size_min}, which the file has room for",
                found=str(value),
                offset=start,
            )
        return value

    def many(self, what: str, read: Callable[[], _T]) -> tuple[_T, ...]:
        """Reads a counted list, each element of one byte or more."""
        return tuple([read() for _ in range(self.count(what))])

    def offsets(self, count: int, what: str) -> tuple[int, ...]:
        if count < 0:
            raise self.fail(
                f"invalid number of {what}: {count}",
                expected="0 or more",
                found=str(count),
                offset=self.offset,
            )
        return struct.unpack(f">{count}q", self.raw(8 * count, what))

    def blob(self, what: str) -> bytes:
        return self.raw(self.i32(f"the length of {what}"), what)

    def utf(self, what: str) -> str:
        size = self.u16(f"the length of {what}")
        start = self.offset
        data = self.raw(size, what)
        if data.isascii():
            return data.decode("ascii")
        try:
            return _decode_utf(data)
        except ValueError as error:
            raise self.fail(
                f"{what} is not modified UTF-8",
                expected="modified UTF-8",
                found=data[:40].hex(),
                offset=start,
            ) from error

    def since(self, start: int) -> bytes:
        return self._data[start : self.offset]

    def part(self, size: int, what: str) -> Reader:
        """A reader of the next `size` bytes alone, which this one skips."""
        start = self.offset
        self.raw(size, what)
        return Reader(self._data, self.where, start=start, end=start + size)

    @contextmanager
    def nested(self, what: str = "handles") -> Generator[None]:
        """Counts nesting within this block, for elements that may contain their own kind."""
        if self._depth == DEPTH_MAX:
            raise self.fail(
                f"{what} are nested too deep",
                expected=f"at most {DEPTH_MAX} levels",
                found="one more",
                offset=self.offset,
            )
        self._depth += 1
        yield
        self._depth -= 1


class Writer:
    """Gathers bytes; the counterpart of `Reader`, name for name."""

    def __init__(self) -> None:
        self._data = bytearray()

    def raw(self, data: bytes) -> None:
        self._data += data

    def u8(self, value: int) -> None:
        self._data.append(value)

    def u16(self, value: int) -> None:
        self._data += _U16.pack(value)

    def i32(self, value: int) -> None:
        self._data += _I32.pack(value)

    def i64(self, value: int) -> None:
        self._data += _I64.pack(value)

    def boolean(self, value: bool) -> None:
        self._data.append(1 if value else 0)

    def many(self, items: Iterable[_T], write: Callable[[_T], None]) -> None:
        items = tuple(items)
        self.i32(len(items))
        for item in items:
            write(item)

    def offsets(self, values: tuple[int, ...]) -> None:
        self._data += struct.pack(f">{len(values)}q", *values)

    def blob(self, data: bytes) -> None:
        self.i32(len(data))
        self._data += data

    def utf(self, text: str) -> None:
        """Writes length and modified UTF-8. Raises FormatError above 65535 bytes."""
        data = text.encode("ascii") if _is_plain(text) else _encode_utf(text)
        if len(data) > UTF_BYTES_MAX:
            raise FormatError(
                "a text is too long for Flink's format",
                where=f"the text that begins with {text[:60]!r}",
                remedy="Give a shorter name.",
                expected=f"at most {UTF_BYTES_MAX} bytes",
                found=f"{len(data)} bytes",
            )
        self.u16(len(data))
        self._data += data

    def finished(self) -> bytes:
        return bytes(self._data)


def _is_plain(text: str) -> bool:
    return text.isascii() and "\0" not in text


def _encode_utf(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    encoded = bytearray()
    for (unit,) in _U16.iter_unpack(units):
        if 0 < unit < 0x80:
            encoded.append(unit)
        elif unit < 0x800:
            encoded += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            encoded += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(encoded)


def _decode_utf(data: bytes) -> str:
    units = bytearray()
    position = 0
    while position < len(data):
        first = data[position]
        size = 1 if first < 0x80 else 2 if first >> 5 == 0b110 else 3 if first >> 4 == 0b1110 else 0
        rest = data[position + 1 : position + size]
        if not size or len(rest) != size - 1 or any(byte >> 6 != 0b10 for byte in rest):
            raise ValueError(f"no character at byte {position}")
        unit = first if size == 1 else first & (0x1F if size == 2 else 0x0F)
        for byte in rest:
            unit = unit << 6 | byte & 0x3F
        units += _U16.pack(unit)
        position += size
    return units.decode("utf-16-be", "surrogatepass")
