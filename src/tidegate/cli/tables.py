"""Tables on the command line: as wide as what is in them, so that they can be searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WIDE: Final = 100_000
"""Characters: nothing is cut off, and nothing is folded but by the terminal."""


def show(head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
    """Print a table; numbers stand to the right. Nothing where there are no rows."""
    lines = [list(row) for row in rows]
    if not lines:
        return
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column, name in enumerate(head):
        numeric = all(isinstance(line[column], int | float) for line in lines)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for line in lines:
        table.add_row(*(_cell(value) for value in line))
    Console(width=_WIDE, highlight=False, markup=False, soft_wrap=True).print(table)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
