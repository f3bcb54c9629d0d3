"""PyFlink's formats of file sources: rows of a declared type, and the columns of CSV files.

The readers are the same as those of ``FileSource.text``, ``csv`` and ``parquet``; records of
columns are ``Row`` here, of a declared type.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from flinkformat.frozen import frozen
from flinkformat.row import Row
from tidegate.api.rows.batches import as_rows
from tidegate.api.rows.column_rows import ColumnRows, RowForm
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.text import CsvFormat, TextFormat
from tidegate.connectors.schemas.messages import one_char
from tidegate.errors import BadRecord, ConfigError
from tidegate.model.elements import ArrowBatch
from tidegate.typeinfo.arrow import schema_of
from tidegate.typeinfo.types import RowTypeInfo, Types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.connectors.files.splits import Block, FileSplit
    from tidegate.storage.stores import Stores
    from tidegate.typeinfo.types import TypeInformation


@frozen
class CsvSchema:
    """The columns of CSV files, and their syntax. Made by ``builder``.

    null_value: the text of a missing value, empty text where it is None. use_header: whether a file
    begins with the names of the columns. separators: of the elements of columns that are arrays.
    """

    names: tuple[str, ...]
    types: tuple[TypeInformation, ...]
    separator: str = ","
    quote_char: str | None = '"'
    escape_char: str | None = None
    null_value: str | None = None
    use_header: bool = False
    strict_headers: bool = False
    allow_comments: bool = False
    skip_first_data_row: bool = False
    separators: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """A builder of a schema.

        >>> CsvSchema.builder().add_string_column("name").add_number_column("age").build()
        """
        return CsvSchemaBuilder()

    @property
    def row_type(self) -> RowTypeInfo:
        """Row type of the schema."""
        return RowTypeInfo(list(self.types), list(self.names))


@dataclass(slots=True)
class CsvSchemaBuilder:
    """Builds a ``CsvSchema``, columns in the order of the calls; each returns the builder."""

    _columns: dict[str, TypeInformation] = field(default_factory=dict["str", "TypeInformation"])
    _made: CsvSchema = field(default_factory=lambda: CsvSchema((), ()))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Adds a column of text."""
        return self._add(name, Types.STRING())

    def add_number_column(
        self, name: str, number_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Adds a column of numbers; LONG unless ``number_type`` says otherwise."""
        return self._add(name, number_type or Types.LONG())

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Adds a column of truth values."""
        return self._add(name, Types.BOOLEAN())

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Adds a column of lists, with all elements in one value; STRING unless said otherwise."""
        self._add(name, Types.LIST(element_type or Types.STRING()))
        pair = name, _one_char(separator, "add_array_column")
        self._made = replace(self._made, separators=(*self._made.separators, pair))
        return self

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Adds the columns of another schema."""
        for name, type_info in zip(schema.names, schema.types, strict=True):
            self._add(name, type_info)
        separators = (*self._made.separators, *schema.separators)
        self._made = replace(self._made, separators=separators)
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Sets the separator of columns; a comma by default."""
        self._made = replace(self._made, separator=_one_char(char, "set_column_separator"))
        return self

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Sets the quotes around values with a separator; a double quote by default."""
        self._made = replace(self._made, quote_char=_one_char(char, "set_quote_char"))
        return self

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Lets no value be quoted."""
        self._made = replace(self._made, quote_char=None)
        return self

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Sets the character that escapes the next one; none by default."""
        self._made = replace(self._made, escape_char=_one_char(char, "set_escape_char"))
        return self

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Sets the text of a missing value."""
        self._made = replace(self._made, null_value=null_value)
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Says if files begin with the names of the columns."""
        self._made = replace(self._made, use_header=use)
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Requires the header to name these columns in this order; else they are found by name."""
        self._made = replace(self._made, strict_headers=strict)
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Lets readers skip lines that begin with ``#``."""
        self._made = replace(self._made, allow_comments=allow)
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Lets readers skip the first line of values."""
        self._made = replace(self._made, skip_first_data_row=skip)
        return self

    def build(self) -> CsvSchema:
        """Makes the schema. Raises ConfigError if it has no columns."""
        if not self._columns:
            raise ConfigError(
                "A CSV schema has no columns", where="CsvSchema", remedy="Add one or more."
            )
        return replace(self._made, names=tuple(self._columns), types=tuple(self._columns.values()))

    def _add(self, name: str, type_info: TypeInformation) -> CsvSchemaBuilder:
        if name in self._columns:
            raise ConfigError(
                f"The column '{name}' is added twice",
                where="CsvSchema",
                remedy="Give each column a name of its own.",
            )
        self._columns[name] = type_info
        return self


def _one_char(char: str, call: str) -> str:
    return one_char(char, call, "CsvSchema")


@frozen
class RowFormat:
    """A format of columns whose records are rows of a type. columns: reader of its columns."""

    columns: ParquetFormat | CsvFormat
    row_type: RowTypeInfo

    def check(self, stores: Stores, path: str) -> None:
        self.columns.check(stores, path)

    def schema_of(self, stores: Stores, path: str) -> pa.Schema | None:
        return self.columns.schema_of(stores, path)

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        return self.columns.cut(stores, path, size, target)

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        """Blocks of rows. Raises BadRecord for columns that can't have the declared type."""
        schema, names = schema_of(self.row_type), tuple(self.row_type.field_names)
        for block in self.columns.blocks(stores, split):
            assert isinstance(block.rows, pa.RecordBatch), "a format of columns gives columns"
            columns = _cast(block.rows, schema, split.path)
            made = as_rows(ArrowBatch(columns))
            if isinstance(made, ColumnRows):
                yield replace(block, rows=made.formed(RowForm(names=names, record=Row)))
                continue
            rows = zip(*[column.to_pylist() for column in columns.columns], strict=True)
            yield replace(block, rows=[Row.named(names, list(row)) for row in rows])


def _cast(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError, ValueError) as error:
        found = ", ".join(map(str, batch.schema))
        raise BadRecord(
            f"The columns cannot be converted to the declared type: {error}",
            where=path,
            remedy=f"Declare them as they are: {found}.".replace("\n", " "),
        ) from error


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
    def for_schema(schema: CsvSchema, *, newlines_in_values: bool = False) -> CsvReaderFormat:
        """The format of files of these columns.

        newlines_in_values: quoted values may hold line ends; each file is read as one part then.

        >>> FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "in/").build()
        """
        columns = CsvFormat(
            schema=schema_of(schema.row_type).serialize().to_pybytes(),
            delimiter=schema.separator,
            header=schema.use_header,
            newlines=newlines_in_values,
            quote_char=schema.quote_char,
            escape_char=schema.escape_char,
            null_value=schema.null_value,
            strict=schema.strict_headers,
            comments=schema.allow_comments,
            skip_first=schema.skip_first_data_row,
            arrays=schema.separators,
        )
        return CsvReaderFormat(RowFormat(columns, schema.row_type))
