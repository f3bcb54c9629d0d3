"""PyFlink's ``CsvSchema``: the columns of CSV files, for reading and for writing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.errors import ConfigError
from tidegate.typeinfo.types import RowTypeInfo, Types

if TYPE_CHECKING:
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
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
    if len(char) != 1:
        raise ConfigError(
            f"{call} takes one character, not {char!r}", where="CsvSchema", remedy="Give one."
        )
    return char
