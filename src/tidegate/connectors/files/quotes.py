"""Quoted values of CSV, found as PyArrow finds them."""

from __future__ import annotations

import re


class Quotes:
    """Quotes around values of CSV files. escape: character that takes the next one as it is.

    A quote begins a value at the start of a field only, elsewhere it is a character like others;
    two within a quoted value stand for one. Data begin where a row does.
    """

    def __init__(self, quote: str = '"', delimiter: str = ",", escape: str | None = None) -> None:
        mark, field_end = re.escape(quote.encode()), re.escape(delimiter.encode())
        self._values = re.compile(
            rb"%b(?<![^%b\r\n]%b)[^%b]*+(?:%b%b[^%b]*+)*+(?:(%b)|\Z)"
            % (mark, field_end, mark, mark, mark, mark, mark, mark)
        )
        self._escapes = (
            None if escape is None else re.compile(re.escape(escape.encode()) + b"(?s:.)")
        )

    def blanked(self, data: bytes) -> bytes:
        """The data with dots in place of quoted values: each line end that is left ends a row."""
        return self._values.sub(lambda found: b"." * len(found[0]), self._unescaped(data))

    def is_open(self, data: bytes) -> bool:
        """True if a quoted value does not end."""
        return any(found[1] is None for found in self._values.finditer(self._unescaped(data)))

    def spans_lines(self, data: bytes) -> bool:
        """True if a quoted value holds a line end, or does not end."""
        found = self._values.finditer(self._unescaped(data))
        return any(value[1] is None or b"\n" in value[0] for value in found)

    def _unescaped(self, data: bytes) -> bytes:
        return data if self._escapes is None else self._escapes.sub(b"..", data)
