"""Tables on the command line: as wide as what is in them, so that they can be searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def show(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; None and '' as '-', numbers to the right. Nothing without rows."""
    lines = [list(row) for row in rows]
    if not lines:
        return
    columns = [_column(*column) for column in zip(head, *lines, strict=True)]
    for cells in zip(*columns, strict=True):
        click.echo("  ".join(cells).rstrip())


def counted(number: int, thing: str) -> str:
    """A number of things, such as '1 file' and '2,000 files'. thing: its name, in the singular."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _column(head: str, *values: object) -> list[str]:
    cells = [head, *map(_cell, values)]
    width = max(map(cell_len, cells))
    known = [value for value in values if value is not None]
    numeric = bool(known) and all(isinstance(value, int | float) for value in known)
    padding = [" " * (width - cell_len(cell)) for cell in cells]
    pairs = zip(cells, padding, strict=True)
    return [pad + cell if numeric else cell + pad for cell, pad in pairs]


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
            return str(value)
