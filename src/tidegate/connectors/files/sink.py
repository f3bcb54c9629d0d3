"""``FileSink``: records into part files that appear when their checkpoint is complete."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.connectors.files.encoders import CsvEncoding, ParquetEncoding
from tidegate.connectors.files.parts import PartCommitter, PartNames
from tidegate.connectors.files.writers import JsonPartWriter, PartRolling, TablePartWriter
from tidegate.errors import ConfigError, StorageFailed
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tidegate.api.sink import SinkWriter, WriterContext


@dataclass(frozen=True, slots=True)
class FileSink:
    """Part files in a folder, exactly-once. Made by ``parquet``, ``csv`` and ``json``.

    A part is hidden (``.….inprogress``) until the checkpoint that covers it is complete. Parts end
    with each checkpoint, and at about ``part_bytes``. Without a schema the columns' types are found
    in the rows; where they change, a new part begins.
    """

    folder: str
    encoding: ParquetEncoding | CsvEncoding | None
    schema: bytes | None = None
    prefix: str = "part"
    part_bytes: int = 128 << 20

    @staticmethod
    def parquet(
        path: str,
        schema: pa.Schema | None = None,
        *,
        prefix: str = "part",
        compression: str = "zstd",
    ) -> FileSink:
        """Parquet. Rows are dicts, named rows or Arrow batches."""
        return _made(path, ParquetEncoding(compression), schema, prefix)

    @staticmethod
    def csv(
        path: str,
        schema: pa.Schema | None = None,
        *,
        prefix: str = "part",
        delimiter: str = ",",
        header: bool = True,
    ) -> FileSink:
        """CSV. Rows are dicts, named rows or Arrow batches."""
        return _made(path, CsvEncoding(delimiter, header), schema, prefix)

    @staticmethod
    def json(path: str, *, prefix: str = "part") -> FileSink:
        """A JSON value a line, for any row that has a JSON form."""
        return _made(path, None, None, prefix)

    @staticmethod
    def json_lines(path: str, *, prefix: str = "part") -> FileSink:
        """The same as ``json``."""
        return FileSink.json(path, prefix=prefix)

    def check(self) -> None:
        """Raises ConfigError for a folder that cannot be written."""
        try:
            Stores().open(self.folder).make_folder("")
        except StorageFailed as error:
            raise ConfigError(error.what, where=error.where, remedy=error.remedy) from error

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        """Writes one subtask's parts."""
        suffix = ".jsonl" if self.encoding is None else self.encoding.suffix
        names = PartNames(self.prefix, context.job, context.attempt_name, suffix)
        rolling = PartRolling(context, Stores().open(self.folder), names, self.part_bytes)
        if self.encoding is None:
            return JsonPartWriter(rolling)
        return TablePartWriter(rolling, self.encoding, self.schema)

    def committer(self) -> PartCommitter:
        """Makes parts visible."""
        return PartCommitter()


def _made(
    path: str, encoding: ParquetEncoding | CsvEncoding | None, schema: pa.Schema | None, prefix: str
) -> FileSink:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", prefix):
        raise ConfigError(
            f"The prefix is {prefix!r}, which readers may take for hidden or a path",
            where="FileSink",
            remedy="Begin with a letter or digit; go on with these, '.', '-' and '_'.",
        )
    data = None if schema is None else schema.serialize().to_pybytes()
    return FileSink(paths.absolute(str(path)), encoding, data, prefix)
