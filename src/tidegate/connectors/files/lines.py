"""Text files as blocks of whole lines, from any byte on; compressed ones from their start."""

from __future__ import annotations

import io
import lzma
import re
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import pyarrow as pa

from tidegate.errors import BadRecord
from tidegate.storage.store import open_stream, shortened

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tidegate.storage.stores import Stores

END: Final = 2**62
"""The end of a part that goes to the end of its file."""

BLOCK_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COMPRESSIONS: Final = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".xz": "xz",
}


def compression_of(path: str) -> str | None:
    return next((kind for end, kind in _COMPRESSIONS.items() if path.endswith(end)), None)


def byte_parts(path: str, size: int, target: int) -> list[tuple[int, int]]:
    """Parts of about ``target`` bytes; a single one for a compressed file."""
    count = max(1, round(size / target))
    if compression_of(path) is not None or count == 1:
        return [(0, END)]
    bounds = [size * index // count for index in range(count)]
    return list(zip(bounds, [*bounds[1:], END], strict=True))


@contextmanager
def opened_text(stores: Stores, path: str) -> Generator[BinaryIO]:
    store, name = stores.locate(path)
    kind = compression_of(path)
    with open_stream(store, name) as stream:
        try:
            yield _decompressed(stream, kind)
        except (pa.ArrowException, OSError, EOFError, lzma.LZMAError) as error:
            raise BadRecord(
                f"The file cannot be read: {error}",
                where=path,
                remedy="Write the file again, or remove it from the folder.",
            ) from error


def _decompressed(stream: BinaryIO, kind: str | None) -> BinaryIO:
    match kind:
        case None:
            return stream
        case "xz":  # which Arrow does not know
            return cast("BinaryIO", lzma.LZMAFile(stream))
        case _:
            return cast("BinaryIO", pa.CompressedInputStream(stream, kind))


class Quotes:
    """Quotes around values of CSV, as PyArrow finds them. escape: it takes the next sign as it is.

    A quote begins a value at the start of a field only, elsewhere it is a character like others;
    two within a quoted value stand for one. Data begin where a row does. closed: a quote counts
    only where one at the end of a field closes it. comments: in a line that begins with ``#`` no
    quote counts.
    """

    def __init__(
        self,
        quote: str = '"',
        delimiter: str = ",",
        escape: str | None = None,
        *,
        closed: bool = False,
        comments: bool = False,
    ) -> None:
        mark, field_end = re.escape(quote), re.escape(delimiter)
        sign = "" if escape is None else re.escape(escape)
        pair = rf"(?:{mark}{mark}|{sign}(?s:.|\Z))" if sign else mark + mark
        last = rf"{mark}(?=[{field_end}\r\n]|\Z)" if closed else rf"(?:{mark}|(?P<open>\Z))"
        comment = r"(?<![^\r\n])#[^\r\n]*+" if comments else ""
        # A field that holds an escaped sign goes on without quotes.
        escaped = rf"{sign}(?s:.)[^{field_end}\r\n{sign}]*+" if sign else ""
        begin, text = rf"{mark}(?<![^{field_end}\r\n]{mark})", f"[^{mark}{sign}]*+"
        value = f"{begin}{text}(?:{pair}{text})*+{last}"
        self._parts = re.compile("|".join(filter(None, [comment, escaped, value])).encode())

    def blanked(self, data: bytes) -> bytes:
        """The data with dots in place of quoted values: each line end that is left ends a row."""
        return self._parts.sub(lambda found: b"." * len(found[0]), data)

    def beyond_lines(self, data: bytes) -> tuple[bool, bool]:
        """True if a quoted value holds a line end or does not end; true if one does not end."""
        spans = False
        for found in self._parts.finditer(data):
            if found.lastgroup == "open":
                return True, True
            spans = spans or b"\n" in found[0]
        return spans, False


class LineBlocks:
    """Blocks of whole lines of a part of a file.

    quotes: a line end in a quoted value does not end a line. Such files are not cut into parts.
    """

    def __init__(self, stream: BinaryIO, path: str, *, quotes: Quotes | None = None) -> None:
        self._stream = stream
        self._path = path
        self._quotes = quotes

    def line_at(self, position: int) -> tuple[bytes, int]:
        """Line that begins at a byte, without its end, and the start of the next line."""
        position, data = self._begun(position)
        while (end := self._line_end(data)) < 0:
            piece = self._stream.read(_block_bytes(len(data)) - len(data))
            if not piece:
                return data, position + len(data)
            data += piece
            self._check_length(data, position)
        return data[:end].rstrip(b"\r\n"), position + end

    def from_part(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Blocks of the lines that begin in a part, each with its start in bytes."""
        if start == 0:
            yield from self.from_line(0, end)
            return
        position = start - 1
        self._skip_to(position)
        while True:
            piece = self._stream.readline(BLOCK_BYTES)
            position += len(piece)
            if piece.endswith(b"\n") or not piece:
                break
        if position < end:
            yield from self._blocks(position, end)

    def from_line(self, position: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Blocks from the start of a line to the last line that begins before ``end``."""
        position, data = self._begun(position)
        yield from self._blocks(position, end, data)

    def _begun(self, position: int) -> tuple[int, bytes]:
        """Goes to a byte, and past the mark of UTF-8 there. Gives the byte and what was read."""
        self._skip_to(position)
        mark = b"" if position else self._stream.read(len(BYTE_ORDER_MARK))
        return (len(mark), b"") if mark == BYTE_ORDER_MARK else (position, mark)

    def _blocks(self, position: int, end: int, rest: bytes = b"") -> Iterator[tuple[int, bytes]]:
        while position < end:
            # Where a block ends depends on its start alone, not on the block before it: a reader
            # that is restored finds the same one, with the same rows and bad lines.
            piece = self._stream.read(_block_bytes(len(rest)) - len(rest))
            data = rest + piece
            if position + len(data) >= end:
                cut = data.find(b"\n", max(0, end - position - 1)) + 1
            else:
                cut = self._last_line_end(data) if piece else len(data)
            if not piece:
                cut = cut or len(data)
            if cut:
                yield position, data[:cut]
            rest, position = data[cut:], position + cut
            self._check_length(rest, position)
            if not piece:
                return

    def _line_end(self, data: bytes) -> int:
        """Position after the first line end; -1 if there is none."""
        end = self._blanked(data).find(b"\n")
        return end + 1 if end >= 0 else -1

    def _last_line_end(self, data: bytes) -> int:
        """Position after the last line end; 0 if there is none."""
        return self._blanked(data).rfind(b"\n") + 1

    def _blanked(self, data: bytes) -> bytes:
        return data if self._quotes is None else self._quotes.blanked(data)

    def _skip_to(self, position: int) -> None:
        if not position:
            return
        left = position
        if self._stream.seekable():
            left -= self._stream.seek(0, io.SEEK_END)
            self._stream.seek(position)
        else:
            while left > 0 and (piece := self._stream.read(min(left, BLOCK_BYTES))):
                left -= len(piece)
        if left > 0:
            raise shortened(
                "The file is shorter than what has been read of it",
                where=f"{self._path}, byte {position}",
            )

    def _check_length(self, line: bytes, position: int) -> None:
        if len(line) > LINE_BYTES_MAX:
            raise BadRecord(
                f"A line is longer than {LINE_BYTES_MAX} bytes",
                where=f"{self._path}, byte {position}",
                remedy="This is not a file of lines, or its line ends are not '\\n'.",
            )


def _block_bytes(held: int) -> int:
    """Bytes of a block of which so many hold no whole line: twice as many, up to a bound."""
    doubled = BLOCK_BYTES << (held // BLOCK_BYTES).bit_length()
    return min(doubled, LINE_BYTES_MAX + BLOCK_BYTES)


def lines_of(block: bytes, *, quotes: Quotes | None = None) -> list[bytes]:
    """Lines of a block, with their ends."""
    *whole, last = (block if quotes is None else quotes.blanked(block)).split(b"\n")
    if quotes is None:
        return [line + b"\n" for line in whole] + ([last] if last else [])
    ends = [*accumulate((len(line) + 1 for line in whole), initial=0)]
    return [block[start:end] for start, end in pairwise([*ends, len(block)]) if start < end]


def line_number(stores: Stores, path: str, position: int) -> int:
    """Number, from 1, of the line that begins at a byte. Reads everything before it."""
    number = 1
    with opened_text(stores, path) as stream:
        while position > 0 and (piece := stream.read(min(position, BLOCK_BYTES))):
            number += piece.count(b"\n")
            position -= len(piece)
    return number
