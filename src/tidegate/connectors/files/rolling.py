"""PyFlink's settings of file sinks: how records are written, into which folder, how large."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from tidegate.connectors.files.encoders import CsvEncoding, ParquetEncoding
from tidegate.errors import ConfigError
from tidegate.typeinfo.arrow import schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.config.spans import Span
    from tidegate.connectors.files.formats import CsvSchema
    from tidegate.typeinfo.types import RowTypeInfo

_PATTERN: Final = re.compile(r"'([^']*)'|([A-Za-z])\2*|.", re.DOTALL)
_FIELDS: Final = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


class Encoder(ABC):
    """Turns a record into bytes of a file; records follow each other without a gap."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Bytes of a record, with a line end if one is wanted."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """An encoder for ``str(value)`` and a line end.

        Raises ConfigError for an unknown charset.
        """
        try:
            "".encode(charset_name)
        except LookupError as error:
            raise ConfigError(
                f"There is no charset {charset_name!r}",
                where="Encoder.simple_string_encoder",
                remedy="Name one that Python knows, such as UTF-8.",
            ) from error
        return _SimpleStringEncoder(charset_name)


@frozen
class _SimpleStringEncoder(Encoder):
    charset: str

    def encode(self, value: Any) -> bytes:
        return f"{value}\n".encode(self.charset)


@frozen
class BulkWriterFactory:
    """Layout of blocks of columns. schema: of the columns."""

    encoding: ParquetEncoding | CsvEncoding
    schema: pa.Schema


class ParquetBulkWriters:
    """Makes writers of Parquet files."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo, hadoop_config: object = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """A writer of rows of a type as Parquet.

        hadoop_config, utc_timestamp: without effect, since nothing is written through Hadoop and a
        SQL_TIMESTAMP has no zone.
        """
        return BulkWriterFactory(ParquetEncoding(), schema_of(row_type))


class CsvBulkWriters:
    """Makes writers of CSV files."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """A writer of rows of a schema's type as CSV.

        Values are quoted by ``"`` where they need it, and missing ones are empty. Raises
        ConfigError for a schema that says otherwise.
        """
        others = {
            "other quotes": schema.quote_char != '"',
            "an escape character": schema.escape_char is not None,
            "a text for missing values": bool(schema.null_value),
        }
        if unfit := [name for name, is_other in others.items() if is_other]:
            raise ConfigError(
                f"CSV files are not written with {', '.join(unfit)}",
                where="CsvBulkWriters.for_schema",
                remedy="Give a schema without; or write lines of text with an Encoder of your own.",
            )
        encoding = CsvEncoding(schema.separator, schema.use_header, arrays=schema.separators)
        return BulkWriterFactory(encoding, schema_of(schema.row_type))


@frozen
class BucketAssigner:
    """Chooses a folder below the sink's by the time at which a record is written.

    pattern: of ``strftime``; empty for none. zone: name of a time zone; None for this machine's.
    """

    pattern: str = ""
    zone: str | None = None

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """An assigner without folders."""
        return BucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """An assigner with a folder for each hour, or for each value of Java's date pattern.

        timezone_id: such as ``Europe/Amsterdam``; None for that of the machine. Raises ConfigError
        for letters beside ``yyyy yy MM dd HH mm ss`` and text in quotes, and for an unknown zone.
        """
        try:
            if timezone_id is not None:
                zoneinfo.ZoneInfo(timezone_id)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigError(
                f"There is no time zone {timezone_id!r}",
                where="BucketAssigner.date_time_bucket_assigner",
                remedy="Name one such as 'UTC' or 'Europe/Amsterdam'.",
            ) from error
        return BucketAssigner(_strftime(format_str), timezone_id)

    def bucket(self, now_ms: int) -> str:
        """Folder at a time, without a slash at its end; empty for the sink's own folder."""
        if not self.pattern:
            return ""
        moment = datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC)
        zone = None if self.zone is None else zoneinfo.ZoneInfo(self.zone)
        return moment.astimezone(zone).strftime(self.pattern)


def _strftime(pattern: str) -> str:
    parts: list[str] = []
    for found in _PATTERN.finditer(pattern):
        text, letter = found.group(), found.group(2)
        if letter is None:
            literal = found.group(1) if found.group(1) is not None else text
            parts.append(literal.replace("%", "%%"))
        elif text in _FIELDS:
            parts.append(_FIELDS[text])
        else:
            raise ConfigError(
                f"{text!r} in the date pattern {pattern!r} is not known",
                where="BucketAssigner.date_time_bucket_assigner",
                remedy=f"Write {', '.join(_FIELDS)}, and other letters in quotes.",
            )
    return "".join(parts)


@frozen
class RollingPolicy:
    """Decides when a part ends, apart from checkpoints, which always end it. part_bytes: limit."""

    part_bytes: int

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20,
        rollover_interval: Span = 60_000,
        inactivity_interval: Span = 60_000,
    ) -> RollingPolicy:
        """A policy that ends parts at a size in bytes.

        The intervals, milliseconds, have no effect: a part that is old or quiet ends with the next
        checkpoint, and nobody sees it before that.
        """
        return RollingPolicy(part_size)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """A policy that ends parts at checkpoints alone."""
        return RollingPolicy(2**63 - 1)


@frozen
class OutputFileConfig:
    """Prefix and suffix of the names of parts."""

    part_prefix: str = "part"
    part_suffix: str = ""

    def get_part_prefix(self) -> str:
        """Prefix of the names of parts."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Suffix of the names of parts."""
        return self.part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """A builder of this configuration.

        >>> OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".txt").build()
        """
        return OutputFileConfig.OutputFileConfigBuilder()

    @dataclass(slots=True)
    class OutputFileConfigBuilder:
        """Builds an ``OutputFileConfig``; each call returns the builder."""

        _prefix: str = "part"
        _suffix: str = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Sets the prefix of names; ``part`` unless set."""
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Sets the suffix of names, such as ``.txt``."""
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Makes the configuration."""
            return OutputFileConfig(self._prefix, self._suffix)
