"""Row types from JSON schemas, by Flink's rules."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from tidegate.errors import ConfigError
from tidegate.typeinfo.types import TypeInformation, Types

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
