"""Changes bytes as damage, chance and malice do. Pure: the same random gives the same bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

BYTES_MAX: Final = 1 << 18
"""No input is longer, or than its seed where that is longer."""

_MORE_CHANGES: Final = 0.4
_PIECE_MAX: Final = 64
_NESTED_MAX: Final = 20_000

_EXTREMES: Final = (0, 1, 0x7F, 0x80, 0xFF, 1 << 15, (1 << 16) - 1, 1 << 31, 1 << 32, 1 << 62)
_WIDTHS: Final = ("B", "H", "I", "Q")
_TEXTS: Final = (
    b"1e999999999",
    b"-" + b"9" * 5_000,
    b"NaN",
    b"-0",
    b"null",
    b'"',
    b"\\ud800",
    b"\\u0000",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "²".encode(),
    "\u2028".encode(),
    b"9999-12-31T23:59:60Z",
    b"\r\n",
    b"\0",
    b"&a *a",
    b"!!python/object:os.system",
)
_NESTS: Final = ((b"[", b"]"), (b'{"a":', b"}"), (b"- ", b""), (b"{", b"}"), (b"a: [", b"]"))


def mutated(seeds: Sequence[bytes], index: int, random: Random, *, text: bool = False) -> bytes:
    """The seed of that index with one change or a few. text: changes of texts are among them."""
    kinds = _OF_TEXTS if text else _OF_BYTES
    data = bytearray(seeds[index])
    limit = max(BYTES_MAX, len(data))
    while True:
        random.choice(kinds)(data, random, seeds)
        del data[limit:]
        if random.random() >= _MORE_CHANGES:
            return bytes(data)


def _flip(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] = random.randrange(256)


def _extreme(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    """A number at a limit, or beside one, in any width and order of bytes."""
    shape = random.choice("<>") + random.choice(_WIDTHS)
    size = struct.calcsize(shape)
    number = random.choice(_EXTREMES) + random.randint(-1, 1)
    at = random.randrange(len(data) + 1)
    data[at : at + size] = struct.pack(shape, number % (1 << 8 * size))


def _cut(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    del data[random.randrange(len(data) + 1) :]


def _leave_out(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.randint(1, _PIECE_MAX)]


def _insert(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.randint(1, _PIECE_MAX))


def _duplicate(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    piece = data[at : at + random.randint(1, _PIECE_MAX)]
    data[at:at] = piece * random.choice((1, 1, 1, 100))


def _zero(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    piece = data[at : at + random.randint(1, _PIECE_MAX)]
    data[at : at + len(piece)] = bytes(len(piece))


def _splice(data: bytearray, random: Random, seeds: Sequence[bytes]) -> None:
    """The beginning of one and the end of another."""
    other = random.choice(seeds)
    at = random.randrange(len(data) + 1)
    data[at:] = other[random.randrange(len(other) + 1) :]


def _nest(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    opens, closes = random.choice(_NESTS)
    depth = random.choice((3, 200, 1_100, _NESTED_MAX))
    at = random.randrange(len(data) + 1)
    data[at:at] = opens * depth + (closes * depth if random.random() < 0.5 else b"")


def _odd_text(data: bytearray, random: Random, _: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    data[at : at + random.choice((0, 1, 4))] = random.choice(_TEXTS)


_OF_BYTES: Final[tuple[Callable[[bytearray, Random, Sequence[bytes]], None], ...]] = (
    _flip,
    _flip,
    _set,
    _extreme,
    _extreme,
    _cut,
    _leave_out,
    _insert,
    _duplicate,
    _zero,
    _splice,
)
_OF_TEXTS: Final = (*_OF_BYTES, _nest, _odd_text, _odd_text)
