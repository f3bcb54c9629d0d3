"""A part of a file, and the position of its reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tidegate.api.dead_letters import DeadLetter
    from tidegate.api.rows.column_rows import ColumnRows
    from tidegate.storage.stores import Stores


@frozen
class FileSplit:
    """A part of a file.

    path: absolute, or a URL. start (inclusive), end (exclusive): row groups of Parquet, else bytes;
    a line belongs to the part that it begins in. offset: where the block begins that is being read:
    rows from the start for Parquet, else bytes from the beginning of the file; None before the
    first. rows: of that block, those read already. readers: how many share the rate. schema: of
    the file's columns, serialised, where it was found by looking at the first file.
    """

    path: str
    start: int
    end: int
    offset: int | None = None
    rows: int = 0
    readers: int = 1
    schema: bytes | None = None


@frozen
class Block:
    """Rows that were read at once.

    offset: as in ``FileSplit``. end: where the next block begins. first: rows of the block that are
    left out before these. bad: rows passed over because they cannot be read.
    """

    offset: int
    end: int
    rows: Sequence[object] | ColumnRows | pa.RecordBatch
    first: int = 0
    bad: tuple[DeadLetter, ...] = ()


class FileFormat(Protocol):
    """Reader of one kind of file. Blocking; called on a pool. A picklable value."""

    def check(self, stores: Stores, path: str) -> None:
        """Checks a file. Raises ConfigError or BadRecord if it cannot be read."""
        ...

    def schema_of(self, stores: Stores, path: str) -> pa.Schema | None:
        """Columns found by looking at a file; None if each file brings its own."""
        ...

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        """Parts of about ``target`` bytes; a single one if the file cannot be cut."""
        ...

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        """The rest of a part, from ``split.offset`` and ``split.rows`` on.

        Raises BadRecord for a file that is no such file, and for a row that cannot be read.
        """
        ...
