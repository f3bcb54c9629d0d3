"""Reading Parquet: parts are row groups, positions are rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from flinkformat.frozen import frozen
from tidegate.connectors.files.splits import Block
from tidegate.errors import BadRecord, ConfigError
from tidegate.storage.store import open_stream, shortened

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tidegate.connectors.files.splits import FileSplit
    from tidegate.storage.stores import Stores


@frozen
class ParquetFormat:
    """Parquet files. columns: those to read, in this order; None for all.

    block_rows: read at once.
    """

    columns: tuple[str, ...] | None = None
    block_rows: int = 65_536

    def check(self, stores: Stores, path: str) -> None:
        with _opened(stores, path) as file:
            self._check_columns(file, path, ConfigError)

    def schema_of(self, stores: Stores, path: str) -> None:
        return

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        with _opened(stores, path) as file:
            metadata = file.metadata
            sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
        return runs(sizes, target * sum(sizes) / max(1, size))

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        done = (split.offset or 0) + split.rows
        with _opened(stores, split.path) as file:
            self._check_columns(file, split.path, BadRecord)
            groups, row = _groups_left(file, split, done)
            columns = None if self.columns is None else list(self.columns)
            for batch in file.iter_batches(self.block_rows, row_groups=groups, columns=columns):
                start, row = row, row + batch.num_rows
                if row > done:
                    kept = batch.slice(max(0, done - start))
                    ordered = kept if columns is None else kept.select(columns)
                    yield Block(max(start, done), row, ordered)

    def _check_columns(
        self, file: pq.ParquetFile, path: str, error: type[ConfigError | BadRecord]
    ) -> None:
        found = file.schema_arrow.names
        if missing := [name for name in self.columns or () if name not in found]:
            raise error(
                f"There are no columns {', '.join(missing)}",
                where=path,
                remedy=f"The file has {', '.join(found)}.",
            )


def runs(sizes: list[int], target: float) -> list[tuple[int, int]]:
    """Joins neighbours until they are about as large as the target."""
    parts: list[tuple[int, int]] = []
    first, size = 0, 0
    for index, one in enumerate(sizes):
        if size and size + one / 2 > target:
            parts.append((first, index))
            first, size = index, 0
        size += one
    if first < len(sizes):
        parts.append((first, len(sizes)))
    return parts


def _groups_left(file: pq.ParquetFile, split: FileSplit, done: int) -> tuple[list[int], int]:
    """Unfinished row groups, and the row of the part at which the first one begins."""
    row = 0
    if split.end <= file.metadata.num_row_groups:
        for group in range(split.start, split.end):
            rows = file.metadata.row_group(group).num_rows
            if row + rows > done:
                return list(range(group, split.end)), row
            row += rows
        if row == done:
            return [], row
    raise shortened(
        "The file has fewer rows than when it was found, or than what has been read of it",
        where=split.path,
    )


@contextmanager
def _opened(stores: Stores, path: str) -> Generator[pq.ParquetFile]:
    store, name = stores.locate(path)
    with open_stream(store, name) as stream:
        try:
            with pq.ParquetFile(stream) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise BadRecord(
                f"The file cannot be read as Parquet: {error}",
                where=path,
                remedy="Write the file again, or remove it from the folder.",
            ) from error
