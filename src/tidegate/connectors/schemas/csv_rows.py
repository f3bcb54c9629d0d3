"""Rows of a declared type as lines of CSV, under PyFlink's names."""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from flinkformat.row import Row, values_of_row
from tidegate.connectors.schemas.messages import (
    DeserializationSchema,
    SerializationSchema,
    one_char,
    row_type_of,
)
from tidegate.errors import ConfigError
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    ListTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.typeinfo.types import TypeInformation

_LINE_ENDS: Final = ("\n", "\r", "\r\n", "")


@frozen
class _Form:
    """Syntax of a line. quote: None if nothing is quoted. null: text of a missing value."""

    delimiter: str = ","
    between_elements: str = ";"
    quote: str | None = '"'
    escape: str | None = None
    null: str | None = None
    line_end: str = "\n"

    @property
    def dialect(self) -> dict[str, Any]:
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "quoting": csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            "escapechar": self.escape,
            # Fields that hold a part of it are quoted, so it has to hold each character that ends
            # lines, whatever ends this one.
            "lineterminator": "\r\n",
            "strict": True,
        }


class CsvRowDeserializationSchema(DeserializationSchema):
    """A line of CSV as a row of a type; made by ``CsvRowDeserializationSchema.Builder``.

    Fields are taken by their place, and all have to be there. Dates and times are texts in ISO
    form, bytes are base64. An empty text is None in fields of another type than text. A field may
    have 131072 characters.
    """

    def __init__(
        self, row_type: RowTypeInfo, form: _Form, *, comments: bool, ignore_errors: bool
    ) -> None:
        self._type = row_type
        self._form = form
        self._comments = comments
        self.malformed = "skip" if ignore_errors else "fail"
        self._converter: Converter | None = None

    def deserialize(self, data: bytes) -> Any:
        try:
            return self.parse(data)
        except ValueError:
            if self.malformed == "fail":
                raise
            return None

    def parse(self, data: bytes) -> Any:
        text = data.decode()
        if self._comments and text.startswith("#"):
            return None
        return self._row(self._fields(text))

    def _fields(self, text: str) -> list[str]:
        try:
            lines = list(csv.reader(io.StringIO(text, newline=""), **self._form.dialect))
        except csv.Error as error:
            raise ValueError(f"{text!r} is not a line of CSV: {error}") from None
        if len(lines) > 1:
            raise ValueError(f"{text!r} is {len(lines)} lines of CSV, but must be one")
        fields = lines[0] if lines and lines[0] else [""]
        count = len(self._type.field_names)
        if len(fields) != count:
            raise ValueError(f"{text!r} has {len(fields)} fields, but must have {count}")
        return fields

    def _row(self, fields: list[str]) -> object:
        named = zip(self._type.field_names, self._type.field_types, fields, strict=True)
        values = [self._value(name, of, text) for name, of, text in named]
        if self._converter is None:
            self._converter = Converter(self._type)
        try:
            return self._converter.batch([Row.named(self._type.field_names, values)])[0]
        except Misfit as misfit:
            raise ValueError(str(misfit)) from None

    def _value(self, name: str, of: TypeInformation, text: str) -> object:
        if text == self._form.null:
            return None
        try:
            element = _element(of)
            if element is None:
                return _READS[of](text) if text or of == STRING else None
            parts = text.split(self._form.between_elements) if text else []
            return [None if part == self._form.null else _READS[element](part) for part in parts]
        except (ValueError, LookupError, ArithmeticError):
            raise ValueError(f"field '{name}': {text!r} is not of type {of}") from None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_converter": None}

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    class Builder:
        """Builds a schema; each call returns the builder.

        type_info: of the rows, ``Types.ROW_NAMED``. Raises ConfigError for a type that a line
        cannot hold.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = _checked(type_info, "CsvRowDeserializationSchema")
            self._form = _Form()
            self._comments = False
            self._ignore_errors = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Sets the separator of fields; a comma by default."""
            self._form = replace(self._form, delimiter=_one(delimiter, "set_field_delimiter"))
            return self

        def set_array_element_delimiter(
            self, delimiter: str
        ) -> CsvRowDeserializationSchema.Builder:
            """Sets the separator of list elements; a semicolon by default."""
            self._form = replace(self._form, between_elements=_some(delimiter))
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Sets the quotes around fields with a delimiter; a double quote by default."""
            self._form = replace(self._form, quote=_one(c, "set_quote_character"))
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Sets the character that escapes the next one; none by default."""
            self._form = replace(self._form, escape=_one(c, "set_escape_character"))
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Sets the text of a missing value."""
            self._form = replace(self._form, null=null_literal)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Lets the reader skip lines that begin with ``#``."""
            self._comments = allow_comments
            return self

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> CsvRowDeserializationSchema.Builder:
            """Lets the reader skip invalid lines; otherwise they fail the job."""
            self._ignore_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(
                self._type, self._form, comments=self._comments, ignore_errors=self._ignore_errors
            )


class CsvRowSerializationSchema(SerializationSchema):
    """Rows as lines of CSV, fields in the order of the type.

    Made by ``CsvRowSerializationSchema.Builder``. Only fields that need it are quoted.
    """

    def __init__(self, row_type: RowTypeInfo, form: _Form) -> None:
        self._type = row_type
        self._form = form
        self._converter: Converter | None = None

    def serialize(self, value: Any) -> bytes | None:
        if self._converter is None:
            self._converter = Converter(self._type)
        try:
            [row] = self._converter.batch([value])
        except Misfit as misfit:
            raise ValueError(str(misfit)) from None
        if row is None:
            return None
        fields = zip(self._type.field_types, values_of_row(row), strict=True)
        line = io.StringIO(newline="")
        try:
            csv.writer(line, **self._form.dialect).writerow([self._text(*each) for each in fields])
        except csv.Error as error:
            raise ValueError(f"{row} cannot become a line of CSV: {error}") from None
        return (line.getvalue().removesuffix("\r\n") + self._form.line_end).encode()

    def _text(self, of: TypeInformation, value: Any) -> str:
        if value is None:
            return self._form.null or ""
        element = _element(of)
        if element is None:
            return _written(value)
        missing = self._form.null or ""
        return self._form.between_elements.join(
            missing if each is None else _written(each) for each in value
        )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_converter": None}

    class Builder:
        """Builds a schema; each call returns the builder.

        type_info: of the rows, ``Types.ROW_NAMED``. Raises ConfigError for a type that a line
        cannot hold.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            self._type = _checked(type_info, "CsvRowSerializationSchema")
            self._form = _Form()

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Sets the separator of fields; a comma by default."""
            self._form = replace(self._form, delimiter=_one(c, "set_field_delimiter"))
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            r"""Sets the line end: ``\n`` by default, ``\r``, ``\r\n``, or nothing."""
            if delimiter not in _LINE_ENDS:
                raise ConfigError(
                    f"set_line_delimiter was given {delimiter!r}",
                    where="CsvRowSerializationSchema",
                    remedy=f"Give one of {_LINE_ENDS}.",
                )
            self._form = replace(self._form, line_end=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Sets the separator of list elements; a semicolon by default."""
            self._form = replace(self._form, between_elements=_some(delimiter))
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Quotes nothing; fields with a delimiter then need an escape character."""
            self._form = replace(self._form, quote=None)
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Sets the quotes around fields with a delimiter; a double quote by default."""
            self._form = replace(self._form, quote=_one(c, "set_quote_character"))
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Sets the character that escapes the next one; none by default."""
            self._form = replace(self._form, escape=_one(c, "set_escape_character"))
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Sets the text of a missing value; empty by default."""
            self._form = replace(self._form, null=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._type, self._form)


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


_READS: Final[dict[TypeInformation, Callable[[str], object]]] = {
    STRING: str,
    CHAR: str,
    BOOLEAN: _truth,
    **dict.fromkeys((BYTE, SHORT, INT, LONG, BIG_INT), int),
    **dict.fromkeys((FLOAT, DOUBLE), float),
    BIG_DEC: lambda text: decimal.Decimal(text.strip()),
    BYTES: lambda text: base64.b64decode(text, validate=True),
    SQL_DATE: datetime.date.fromisoformat,
    SQL_TIME: datetime.time.fromisoformat,
    SQL_TIMESTAMP: datetime.datetime.fromisoformat,
}


def _element(of: TypeInformation) -> TypeInformation | None:
    """Type of a list's elements; None for a type of single values."""
    if of == BYTES or not isinstance(of, ListTypeInfo | PrimitiveArrayTypeInfo):
        return None
    return of.element_type


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _checked(type_info: TypeInformation, where: str) -> RowTypeInfo:
    row_type = row_type_of(type_info, where)
    fields = zip(row_type.field_names, row_type.field_types, strict=True)
    if unfit := [f"'{name}' ({of})" for name, of in fields if (_element(of) or of) not in _READS]:
        raise ConfigError(
            f"A line of CSV cannot hold the fields {', '.join(unfit)}",
            where=where,
            remedy="Declare single values or lists of them, or write JSON.",
        )
    return row_type


def _one(char: str, call: str) -> str:
    return one_char(char, call, "CSV rows")


def _some(delimiter: str) -> str:
    if not delimiter:
        raise ConfigError(
            "Nothing would stand between two elements of a list",
            where="CSV rows, set_array_element_delimiter",
            remedy="Give a character or more.",
        )
    return delimiter
