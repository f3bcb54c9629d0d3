"""PyFlink's formats of file sources.

The readers are the same as those of ``FileSource.text``, ``csv`` and ``parquet``; records of
columns are ``Row`` here, of a declared type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.rows import RowFormat
from tidegate.connectors.files.text import CsvFormat, TextFormat
from tidegate.errors import ConfigError
from tidegate.typeinfo.arrow import schema_of

if TYPE_CHECKING:
    from tidegate.connectors.files.csv_schema import CsvSchema
    from tidegate.typeinfo.types import RowTypeInfo


class StreamFormat:
    """A format that is read record by record. file_format: its reader."""

    def __init__(self, file_format: TextFormat | RowFormat) -> None:
        self.file_format = file_format

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Text as a str for each line, without its end. Raises ConfigError for unfit charsets.

        >>> FileSource.for_record_stream_format(StreamFormat.text_line_format(), "logs/").build()
        """
        try:
            ends_alike = "\n".encode(charset_name) == b"\n"
        except LookupError:
            ends_alike = False
        if not ends_alike:
            raise ConfigError(
                f"Lines of the charset {charset_name!r} cannot be separated",
                where="StreamFormat.text_line_format",
                remedy=(
                    "Name a charset that Python knows and whose line end is one byte, such as "
                    "UTF-8."
                ),
            )
        return StreamFormat(TextFormat(charset=charset_name))


class BulkFormat:
    """A format that is read in blocks of columns. file_format: its reader."""

    def __init__(self, file_format: RowFormat) -> None:
        self.file_format = file_format


class ParquetColumnarRowInputFormat(BulkFormat):
    """Parquet as rows of a type, which names the columns to read.

    batch_size: rows that are read in one go. Columns are found by their exact names. hadoop_config,
    is_utc_timestamp: without effect, since nothing is read through Hadoop and a SQL_TIMESTAMP has
    no zone. Raises ConfigError for ``is_case_sensitive=False``.
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: object = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        if not is_case_sensitive:
            raise ConfigError(
                "Columns of Parquet are found by their exact names only",
                where="ParquetColumnarRowInputFormat",
                remedy="Name the columns as the files do, and leave is_case_sensitive at True.",
            )
        columns = ParquetFormat(tuple(row_type.field_names), batch_size)
        super().__init__(RowFormat(columns, row_type))


class CsvReaderFormat(StreamFormat):
    """CSV as rows of a schema's type."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """The format of files of these columns.

        >>> FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "in/").build()
        """
        columns = CsvFormat(
            schema=schema_of(schema.row_type).serialize().to_pybytes(),
            delimiter=schema.separator,
            header=schema.use_header,
            quote_char=schema.quote_char,
            escape_char=schema.escape_char,
            null_value=schema.null_value,
            strict=schema.strict_headers,
            comments=schema.allow_comments,
            skip_first=schema.skip_first_data_row,
            arrays=schema.separators,
        )
        return CsvReaderFormat(RowFormat(columns, schema.row_type))
