"""Conversion of values to bytes of a message, and back."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.api.dead_letters import checked_policy
from tidegate.errors import ConfigError
from tidegate.typeinfo.types import RowTypeInfo, Types

if TYPE_CHECKING:
    from typing import Self

    from tidegate.api.dead_letters import Malformed
    from tidegate.typeinfo.types import TypeInformation


class SerializationSchema(ABC):
    """Converts a value to bytes; shipped to the slots, so it must be picklable."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes | None:
        """The value as bytes; None for a missing one."""


class DeserializationSchema(ABC):
    """Converts bytes to a value; shipped to the slots, so it must be picklable."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Any:
        """The value; None skips the message. An exception marks the message as bad."""

    malformed: Malformed = "fail"
    """What becomes of a bad message, where the source does not say it."""

    def on_malformed(self, policy: Malformed) -> Self:
        """A copy with a policy for bad messages: they fail the job, are skipped, or are emitted.

        policy: "fail", "skip", or the tag of a side output of the source's stream, which gets a
        ``DeadLetter`` for each.

        >>> BAD = OutputTag("bad")
        >>> JsonSchema().on_malformed(BAD)
        """
        made = copy.copy(self)
        made.malformed = checked_policy(policy, type(self).__name__)
        return made

    def parse(self, data: bytes) -> Any:
        """Works as ``deserialize``, but raises for bad input even if that skips it."""
        return self.deserialize(data)

    @property
    def produced_type(self) -> TypeInformation | None:
        """Type of the values, if known."""
        return None


def row_type_of(type_info: TypeInformation | None, where: str) -> RowTypeInfo:
    """The type, if it is one of rows. Raises ConfigError for any other."""
    if isinstance(type_info, RowTypeInfo):
        return type_info
    raise ConfigError(
        f"The type of the rows is {type_info}",
        where=where,
        remedy='Give one with named fields: Types.ROW_NAMED(["id"], [Types.LONG()]).',
    )


def one_char(char: str, call: str, where: str) -> str:
    """The character, if it is one. call: the method that it was given to."""
    if len(char) != 1:
        raise ConfigError(
            f"{call} takes one character, not {char!r}", where=where, remedy="Give one."
        )
    return char


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a charset, both ways. Raises ConfigError for an unknown charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        try:
            "".encode(charset)
        except LookupError:
            raise ConfigError(
                f"The charset is {charset!r}, which Python does not know",
                where="SimpleStringSchema",
                remedy="Write one such as 'UTF-8' or 'latin-1'.",
            ) from None
        self._charset = charset

    def serialize(self, value: Any) -> bytes | None:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is not text; map it to text, or use another schema")
        return value.encode(self._charset)

    def deserialize(self, data: bytes) -> Any:
        return data.decode(self._charset)

    @property
    def produced_type(self) -> TypeInformation | None:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes without conversion, both ways."""

    def serialize(self, value: Any) -> bytes | None:
        if not isinstance(value, bytes):
            raise TypeError(f"{value!r} is not bytes; use the schema that fits the value")
        return value

    def deserialize(self, data: bytes) -> Any:
        return data

    @property
    def produced_type(self) -> TypeInformation | None:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class JsonSchema(SerializationSchema, DeserializationSchema):
    """Any JSON value as Python has it, both ways: dicts, lists, texts, numbers, truth values.

    JSON has no NaN and no infinity: they are written as null.
    """

    def serialize(self, value: Any) -> bytes | None:
        return msgspec.json.encode(value)

    def deserialize(self, data: bytes) -> Any:
        return msgspec.json.decode(data)
