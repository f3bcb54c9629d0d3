"""Tables and paragraphs on the command line.

On a terminal they fit its width; anywhere else they are as wide as what is in them, so that they
can be searched.
"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Final

import click
from rich.cells import cell_len, chop_cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP: Final = "  "

_NARROWEST: Final = 16
"""To this many cells a column of texts may be cut; what is left of a path is still a hint."""

_TEXT_WIDTH: Final = 100

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_IN_LINES: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def show(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; None and '' as '-', numbers to the right. Nothing without rows.

    On a terminal long texts are cut in the middle. A table that would still be too wide is printed
    as one line a cell, row below row.
    """
    lines = [list(row) for row in rows]
    if not lines:
        return
    columns = [_Column(*column) for column in zip(head, *lines, strict=True)]
    width = _terminal_width()
    if width is not None and not _narrowed(columns, width):
        _show_below_each_other(columns)
        return
    names, *cells = zip(*(column.aligned() for column in columns), strict=True)
    click.secho(_GAP.join(names).rstrip(), bold=True)
    for row in cells:
        click.echo(_GAP.join(row).rstrip())


def counted(number: int, thing: str) -> str:
    """A count with its noun, such as '1 file' and '2,000 files'.

    thing: the noun in the singular.
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def wrapped(text: str, *, indent: str = "") -> str:
    """A paragraph in lines that fit the terminal, each with the indent."""
    width = min(_terminal_width() or _TEXT_WIDTH, _TEXT_WIDTH)
    return click.wrap_text(text, width, initial_indent=indent, subsequent_indent=indent)


def escaped(text: str) -> str:
    """Lines with their tabs; other control characters, which terminals obey, are shown as \\x1b.

    Half a surrogate pair, which cannot be printed, is too. Texts come from snapshots and jobs.
    """
    return _CONTROL_IN_LINES.sub(_escape, text)


class _Column:
    def __init__(self, head: str, *values: object) -> None:
        self.head: Final = head
        self.cells: Final = [_cell(value) for value in values]
        known = [value for value in values if value is not None]
        self._numeric = bool(known) and all(isinstance(value, int | float) for value in known)
        self.width = max(map(cell_len, (head, *self.cells)))

    @property
    def width_min(self) -> int:
        """Width below which the column says too little; numbers are never cut."""
        return self.width if self._numeric else min(self.width, max(_NARROWEST, len(self.head)))

    def aligned(self) -> list[str]:
        """Head and cells, padded to the column's width."""
        texts = [_cut(cell, self.width) for cell in (self.head, *self.cells)]
        padding = [" " * (self.width - cell_len(text)) for text in texts]
        pairs = zip(texts, padding, strict=True)
        return [pad + text if self._numeric else text + pad for text, pad in pairs]


def _narrowed(columns: list[_Column], width: int) -> bool:
    """Narrows the widest columns until all fit. Changes nothing and returns False if that fails."""
    room = width - len(_GAP) * (len(columns) - 1)
    if sum(column.width_min for column in columns) > room:
        return False
    while sum(column.width for column in columns) > room:
        widest = max(columns, key=lambda column: (column.width > column.width_min, column.width))
        widest.width -= 1
    return True


def _show_below_each_other(columns: list[_Column]) -> None:
    indent = max(cell_len(column.head) for column in columns)
    for number, row in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if number:
            click.echo()
        for column, cell in zip(columns, row, strict=True):
            click.echo(f"{click.style(column.head.rjust(indent), bold=True)}{_GAP}{cell}")


def _cut(text: str, width: int) -> str:
    """Cuts the middle of a text: both ends of a path say more than one of them."""
    if cell_len(text) <= width:
        return text
    front = chop_cells(text, (width - 1) // 2)[0]
    back = chop_cells(text[::-1], width - 1 - cell_len(front))[0][::-1]
    return f"{front}…{back}"


def _terminal_width() -> int | None:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None where it is closed
    return shutil.get_terminal_size().columns if is_terminal else None


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _cell(value: object) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case _:
            return _CONTROL.sub(_escape, str(value))
