"""Rows of a declared type as JSON objects, under PyFlink's names; row types from JSON schemas."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import msgspec

from flinkformat.row import Row
from tidegate.connectors.schemas.messages import (
    DeserializationSchema,
    SerializationSchema,
    row_type_of,
)
from tidegate.errors import ConfigError
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import (
    BIG_DEC,
    BYTES,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class JsonRowDeserializationSchema(DeserializationSchema):
    """JSON objects as rows of a type; made by ``builder``.

    Fields that the type does not name are passed over, missing ones are None. Dates and times are
    texts in ISO form, bytes are base64.
    """

    Builder: ClassVar[type[JsonRowDeserializationSchemaBuilder]]

    def __init__(
        self, row_type: RowTypeInfo, *, fail_on_missing: bool, ignore_errors: bool
    ) -> None:
        self._type = row_type
        self._fail_on_missing = fail_on_missing
        self.malformed = "skip" if ignore_errors else "fail"
        self._reads: Callable[[Any], Any] | None = None

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
        return self._row(msgspec.json.decode(data))

    def _row(self, value: Any) -> object:
        if self._reads is None:
            self._reads = _reader(self._type, self._fail_on_missing)
            self._converter = Converter(self._type)
        try:
            return self._converter.batch([self._reads(value)])[0]
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
    """Rows as JSON objects, fields in the order of the type; made by ``builder``."""

    Builder: ClassVar[type[JsonRowSerializationSchemaBuilder]]

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._type = row_type

    @staticmethod
    def builder() -> JsonRowSerializationSchemaBuilder:
        """A builder of a schema."""
        return JsonRowSerializationSchemaBuilder()

    def serialize(self, value: Any) -> bytes | None:
        return msgspec.json.encode(_written(self._type, value))


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


def _of_text(parse: Callable[[str], object]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        return parse(value) if isinstance(value, str) else value

    return read


_READS: Final[dict[TypeInformation, Callable[[Any], Any]]] = {
    BYTES: _of_text(lambda text: base64.b64decode(text, validate=True)),
    # A truth value is an int to Python, and no number to anybody else.
    BIG_DEC: lambda value: decimal.Decimal(str(value)) if type(value) in (int, float) else value,
    SQL_DATE: _of_text(datetime.date.fromisoformat),
    SQL_TIME: _of_text(datetime.time.fromisoformat),
    SQL_TIMESTAMP: _of_text(datetime.datetime.fromisoformat),
}


def _reader(type_info: TypeInformation, fail_on_missing: bool) -> Callable[[Any], Any]:
    """Function that brings a decoded JSON value close enough to the type for its converter."""
    if isinstance(type_info, RowTypeInfo):
        return _row_reader(type_info, fail_on_missing)
    if isinstance(type_info, ListTypeInfo):
        element = _reader(type_info.element_type, fail_on_missing)
        return lambda value: list(map(element, value)) if isinstance(value, list) else value
    if isinstance(type_info, MapTypeInfo):
        of = _reader(type_info.value_type, fail_on_missing)
        return lambda value: (
            {name: of(entry) for name, entry in cast("dict[Any, Any]", value).items()}
            if isinstance(value, dict)
            else value
        )
    return _READS.get(type_info, lambda value: value)


def _row_reader(type_info: RowTypeInfo, fail_on_missing: bool) -> Callable[[Any], Any]:
    names = tuple(type_info.get_field_names())
    readers = [_reader(field, fail_on_missing) for field in type_info.get_field_types()]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        if fail_on_missing and (missing := [name for name in names if name not in fields]):
            raise ValueError(f"the fields {missing} are missing")
        values: list[object] = [
            None if fields.get(name) is None else reader(fields[name])
            for name, reader in zip(names, readers, strict=True)
        ]
        return Row.named(names, values)

    return read


def _written(type_info: TypeInformation, value: Any) -> object:
    if isinstance(type_info, RowTypeInfo) and value is not None:
        values: Any = value.as_dict() if isinstance(value, Row) and value.names else value
        names, types = type_info.get_field_names(), type_info.get_field_types()
        if not isinstance(values, dict):
            values = dict(zip(names, values, strict=True))
        return {name: _written(of, values[name]) for name, of in zip(names, types, strict=True)}
    if isinstance(type_info, ListTypeInfo) and value is not None:
        return [_written(type_info.element_type, each) for each in value]
    if isinstance(type_info, MapTypeInfo) and value is not None:
        return {name: _written(type_info.value_type, each) for name, each in value.items()}
    return value


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
