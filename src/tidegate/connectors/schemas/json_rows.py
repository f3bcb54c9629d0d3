"""Rows of a declared type as JSON objects, under PyFlink's names; row types from JSON schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import msgspec

from tidegate.connectors.schemas.json_values import decoder_of, reader_of, writer_of
from tidegate.connectors.schemas.messages import (
    DeserializationSchema,
    SerializationSchema,
    row_type_of,
)
from tidegate.errors import ConfigError
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import (
    RowTypeInfo,
    TypeInformation,
    Types,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class JsonRowDeserializationSchema(DeserializationSchema):
    """JSON objects as rows of a type; made by ``builder``.

    Fields that the type does not name are passed over, missing ones are None. Dates and times are
    texts in ISO form, with or without a Z; an instant needs its zone. Bytes are base64. A decimal
    has all digits of its number.
    """

    Builder: ClassVar[type[JsonRowDeserializationSchemaBuilder]]

    def __init__(
        self, row_type: RowTypeInfo, *, fail_on_missing: bool, ignore_errors: bool
    ) -> None:
        self._type = row_type
        self._fail_on_missing = fail_on_missing
        self.malformed = "skip" if ignore_errors else "fail"
        self._reads: Callable[[bytes], Any] | None = None

    @staticmethod
    def builder() -> JsonRowDeserializationSchemaBuilder:
        """A builder of a schema."""
        return JsonRowDeserializationSchemaBuilder()

    def deserialize(self, data: bytes) -> Any:
        try:
            return self.parse(data)
        except (ValueError, RecursionError):
            if self.malformed == "fail":
                raise
            return None

    def parse(self, data: bytes) -> Any:
        if self._reads is None:
            decode = decoder_of(self._type)
            read = reader_of(self._type, fail_on_missing=self._fail_on_missing)
            self._reads = lambda data: read(decode(data))
            self._converter = Converter(self._type)
        try:
            return self._converter.batch([self._reads(data)])[0]
        except Misfit as misfit:
            raise ValueError(str(misfit)) from None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_reads": None, "_converter": None}

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type


class JsonRowDeserializationSchemaBuilder:
    """Builds a schema; each call returns the builder."""

    def __init__(self) -> None:
        self._type: TypeInformation | None = None
        self._fail_on_missing = False
        self._ignore_errors = False

    def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchemaBuilder:
        """Sets the type of the rows: ``Types.ROW_NAMED``."""
        self._type = type_info
        return self

    def json_schema(self, json_schema: str) -> JsonRowDeserializationSchemaBuilder:
        """Sets the type of the rows by a JSON schema. Raises ConfigError for an invalid one."""
        return self.type_info(type_of_json_schema(json_schema))

    def fail_on_missing_field(self) -> JsonRowDeserializationSchemaBuilder:
        """Treats an object without one of the fields as bad; otherwise the field is None."""
        self._fail_on_missing = True
        return self

    def ignore_parse_errors(self) -> JsonRowDeserializationSchemaBuilder:
        """Skips invalid objects; otherwise they fail the job."""
        self._ignore_errors = True
        return self

    def build(self) -> JsonRowDeserializationSchema:
        """Makes the schema. Raises ConfigError for a type without named fields."""
        row_type = row_type_of(self._type, "JsonRowDeserializationSchema")
        return JsonRowDeserializationSchema(
            row_type, fail_on_missing=self._fail_on_missing, ignore_errors=self._ignore_errors
        )


class JsonRowSerializationSchema(SerializationSchema):
    """Rows as JSON objects, fields in the order of the type; made by ``builder``.

    A value that is not of its type is refused. Decimals are numbers, dates and times texts in ISO
    form, bytes base64; NaN and infinite floats become null.
    """

    Builder: ClassVar[type[JsonRowSerializationSchemaBuilder]]

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._type = row_type
        self._write: Callable[[Any], bytes] | None = None

    @staticmethod
    def builder() -> JsonRowSerializationSchemaBuilder:
        """A builder of a schema."""
        return JsonRowSerializationSchemaBuilder()

    def serialize(self, value: Any) -> bytes | None:
        if self._write is None:
            encode = msgspec.json.Encoder(decimal_format="number").encode
            write = writer_of(self._type)
            self._write = lambda value: encode(write(value))
        try:
            return self._write(value)
        except Misfit as misfit:
            raise ValueError(str(misfit)) from None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_write": None}


class JsonRowSerializationSchemaBuilder:
    """Builds a schema; each call returns the builder."""

    def __init__(self) -> None:
        self._type: TypeInformation | None = None

    def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchemaBuilder:
        """Sets the type of the rows: ``Types.ROW_NAMED``."""
        self._type = type_info
        return self

    def build(self) -> JsonRowSerializationSchema:
        """Makes the schema. Raises ConfigError for a type without named fields."""
        return JsonRowSerializationSchema(row_type_of(self._type, "JsonRowSerializationSchema"))


JsonRowDeserializationSchema.Builder = JsonRowDeserializationSchemaBuilder
JsonRowSerializationSchema.Builder = JsonRowSerializationSchemaBuilder


_FORMATS: Final = {
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "date-time": Types.SQL_TIMESTAMP(),
}
_PLAIN: Final = {
    "boolean": Types.BOOLEAN(),
    "integer": Types.BIG_INT(),
    "number": Types.BIG_DEC(),
}


def type_of_json_schema(text: str) -> TypeInformation:
    """Type of a JSON schema: objects are named rows, numbers decimals, integers without bound.

    Raises ConfigError for what is no schema, with the place in it.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise _refused(f"it is not JSON: {error}", "#") from error
    except RecursionError as error:
        raise _refused("it is nested too deeply", "#") from error
    try:
        return _Reading(schema).type_at(schema, "#")
    except RecursionError as error:
        raise _refused("it is nested too deeply", "#") from error


class _Reading:
    """Reading of one schema. following: the references that lead to the current place."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._following: list[str] = []

    def type_at(self, schema: Any, place: str) -> TypeInformation:
        """Type of a part of the schema."""
        if not isinstance(schema, dict):
            raise _refused("it is not an object", place)
        fields = cast("dict[str, Any]", schema)
        if "$ref" in fields:
            return self._referred(str(fields["$ref"]), place)
        for key in ("oneOf", "anyOf"):
            if key in fields:
                return self._one(fields[key], f"{place}/{key}")
        kind = fields.get("type")
        match kind:
            case list():
                return self._one([{**fields, "type": each} for each in kind], place)
            case "object":
                return self._row(fields, place)
            case "array":
                return Types.LIST(self.type_at(fields.get("items"), f"{place}/items"))
            case "string" if fields.get("contentEncoding") == "base64":
                return Types.PRIMITIVE_ARRAY(Types.BYTE())
            case "string":
                return _FORMATS.get(str(fields.get("format")), Types.STRING())
            case str() if kind in _PLAIN:
                return _PLAIN[kind]
            case _:
                raise _refused(f"its type is {kind!r}", place)

    def _row(self, fields: dict[str, Any], place: str) -> TypeInformation:
        found = fields.get("properties")
        properties = cast("dict[str, Any]", found if isinstance(found, dict) else {})
        if not properties:
            raise _refused("the object has no properties", place)
        types = [self.type_at(each, f"{place}/properties/{n}") for n, each in properties.items()]
        return Types.ROW_NAMED(list(properties), types)

    def _one(self, choices: Any, place: str) -> TypeInformation:
        """The only alternative of a choice apart from null."""
        listed = cast("list[Any]", choices if isinstance(choices, list) else [])
        real = [each for each in listed if not _is_null(each)]
        if len(real) != 1:
            raise _refused(f"there are {len(real)} types to choose from", place)
        return self.type_at(real[0], place)

    def _referred(self, reference: str, place: str) -> TypeInformation:
        found: Any = self._root if reference.startswith("#/") else None
        for part in reference[2:].split("/"):
            found = cast("Any", found).get(part) if isinstance(found, dict) else None
        if found is None or reference in self._following:
            raise _refused(f"'$ref' to {reference!r} leads nowhere, or back to itself", place)
        self._following.append(reference)
        referred = self.type_at(found, reference)
        self._following.pop()
        return referred


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "null"


def _refused(what: str, place: str) -> ConfigError:
    return ConfigError(
        f"A JSON schema gives no type of rows: {what}",
        where=f"JsonRowDeserializationSchema, {place}",
        remedy="Describe an object with typed properties, or use type_info(Types.ROW_NAMED(…)).",
    )
