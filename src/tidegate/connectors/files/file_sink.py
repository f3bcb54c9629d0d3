"""``FileSink``: records into part files that appear when their checkpoint is complete."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.connectors.files.encoders import CsvEncoding, LinesEncoding, ParquetEncoding
from tidegate.connectors.files.parts import PartCommitter, PartNames, hidden_parts
from tidegate.connectors.files.rolling import BucketAssigner, OutputFileConfig, RollingPolicy
from tidegate.connectors.files.writers import Columns, Lines, PartRolling, PartWriter
from tidegate.connectors.schemas.messages import one_char
from tidegate.errors import ConfigError, StorageFailed
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from tidegate.api.sink import SinkWriter, WriterContext
    from tidegate.config.spans import Span
    from tidegate.connectors.files.rolling import (
        BulkWriterFactory,
        Encoder,
    )
    from tidegate.model.ids import JobId
    from tidegate.typeinfo.types import TypeInformation

_COMPRESSIONS: Final = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


@frozen
class FileSink:
    """Part files in a folder, exactly-once. Made by ``parquet``, ``csv`` and ``json``, or builders.

    A part is hidden (``.….inprogress``) until the checkpoint that covers it is complete. Parts end
    with each checkpoint, and at about ``part_bytes``. Without a schema the columns' types are found
    in the rows; where they change, a new part begins if the types go together. suffix: how the
    names of parts end; None for that of the encoding. buckets: the folders below ``folder`` that
    parts go to.
    """

    folder: str
    encoding: ParquetEncoding | CsvEncoding | LinesEncoding
    schema: bytes | None = None
    prefix: str = "part"
    part_bytes: int = 128 << 20
    suffix: str | None = None
    buckets: BucketAssigner = field(default_factory=BucketAssigner)

    @staticmethod
    def parquet(
        path: str,
        schema: pa.Schema | TypeInformation | None = None,
        *,
        prefix: str = "part",
        compression: str = "zstd",
    ) -> FileSink:
        """A sink of Parquet files. Rows are dicts, named rows or Arrow batches.

        compression: none, snappy, gzip, brotli, lz4 or zstd. Raises ConfigError for others.
        """
        if str(compression).lower() not in _COMPRESSIONS:
            raise ConfigError(
                f"The compression is {compression!r}, which Parquet has not",
                where="FileSink.parquet",
                remedy=f"Write one of {', '.join(_COMPRESSIONS)}.",
            )
        return _made(path, ParquetEncoding(compression), schema, prefix)

    @staticmethod
    def csv(
        path: str,
        schema: pa.Schema | TypeInformation | None = None,
        *,
        prefix: str = "part",
        delimiter: str = ",",
        header: bool = True,
    ) -> FileSink:
        """A sink of CSV files. Rows are dicts, named rows or Arrow batches.

        Raises ConfigError for a delimiter that is not one character.
        """
        separator = one_char(delimiter, "delimiter", "FileSink.csv")
        return _made(path, CsvEncoding(separator, header), schema, prefix)

    @staticmethod
    def json(path: str, *, prefix: str = "part") -> FileSink:
        """A sink of JSON lines, for any row that has a JSON form."""
        return _made(path, LinesEncoding(), None, prefix)

    @staticmethod
    def json_lines(path: str, *, prefix: str = "part") -> FileSink:
        """Another name of ``json``."""
        return FileSink.json(path, prefix=prefix)

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSinkBuilder:
        """A builder for sinks of records, encoded one by one.

        >>> FileSink.for_row_format("out/", Encoder.simple_string_encoder()).build()
        """
        return _builder(base_path, LinesEncoding(encoder.encode, suffix=""), None)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory) -> FileSinkBuilder:
        """A builder for sinks of blocks of columns.

        >>> FileSink.for_bulk_format("out/", ParquetBulkWriters.for_row_type(row_type)).build()
        """
        return _builder(base_path, writer_factory.encoding, writer_factory.schema)

    def check(self) -> None:
        """Raises ConfigError for a folder that cannot be written."""
        try:
            Stores().open(self.folder).make_folder("")
        except StorageFailed as error:
            raise ConfigError(error.what, where=error.where, remedy=error.remedy) from error

    def clean_up(self, jobs: Collection[JobId]) -> None:
        """Deletes all hidden parts of jobs that are over. Raises StorageFailed."""
        store = Stores().open(self.folder)
        names = [info.path for info in store.list()]
        store.delete(list(hidden_parts(names, self.prefix, jobs)))

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        suffix = self.encoding.suffix if self.suffix is None else self.suffix
        names = PartNames(self.prefix, context.job, context.attempt_name, suffix)
        store, bucket_at = Stores().open(self.folder), self.buckets.bucket
        rolling = PartRolling(context, store, names, self.part_bytes, bucket_at)
        if isinstance(self.encoding, LinesEncoding):
            return PartWriter(rolling, Lines(self.encoding))
        return PartWriter(rolling, Columns(self.encoding, self.schema, rolling.place))

    def committer(self) -> PartCommitter:
        return PartCommitter()


class FileSinkBuilder:
    """Makes a ``FileSink``. Methods give itself."""

    def __init__(
        self, make: Callable[[OutputFileConfig, BucketAssigner, RollingPolicy], FileSink]
    ) -> None:
        self._make = make
        self._names = OutputFileConfig()
        self._buckets = BucketAssigner.date_time_bucket_assigner()
        self._rolling = RollingPolicy.default_rolling_policy()

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        """Which folder records go to; one for each hour unless set."""
        self._buckets = bucket_assigner
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """When parts end beside each checkpoint; at 128 MiB unless set."""
        self._rolling = rolling_policy
        return self

    def with_bucket_check_interval(self, interval: Span) -> FileSinkBuilder:
        """Without effect: folders change as records are written."""
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """How the names of parts begin and end."""
        self._names = output_file_config
        return self

    def build(self) -> FileSink:
        """The sink. Raises ConfigError for a prefix that readers may take for hidden."""
        return self._make(self._names, self._buckets, self._rolling)


def _builder(
    path: str,
    encoding: ParquetEncoding | CsvEncoding | LinesEncoding,
    schema: pa.Schema | TypeInformation | None,
) -> FileSinkBuilder:
    def make(names: OutputFileConfig, buckets: BucketAssigner, rolling: RollingPolicy) -> FileSink:
        return replace(
            _made(path, encoding, schema, names.part_prefix),
            part_bytes=rolling.part_bytes,
            suffix=names.part_suffix or None,
            buckets=buckets,
        )

    return FileSinkBuilder(make)


def _made(
    path: str,
    encoding: ParquetEncoding | CsvEncoding | LinesEncoding,
    schema: pa.Schema | TypeInformation | None,
    prefix: str,
) -> FileSink:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", prefix):
        raise ConfigError(
            f"The prefix is {prefix!r}, which readers may treat as hidden or as a path",
            where="FileSink",
            remedy="Begin with a letter or digit; go on with these, '.', '-' and '_'.",
        )
    data = None
    if schema is not None:
        from tidegate.typeinfo.arrow import schema_bytes  # lines of text do without Arrow

        data = schema_bytes(schema, "FileSink")
    return FileSink(paths.absolute(str(path)), encoding, data, prefix)
