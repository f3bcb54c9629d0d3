"""``KafkaRecordSerializationSchema``: how an element becomes a record of a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.connectors.schemas.messages import SerializationSchema


class KafkaTopicSelector(ABC):
    """Chooses the topic of each element; a plain function does as well."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Chooses the topic of an element."""


TopicSelector = Callable[[Any], str] | KafkaTopicSelector


class KafkaRecord(NamedTuple):
    """Record to send to a topic."""

    topic: str
    key: bytes | None
    value: bytes | None


@frozen
class KafkaRecordSerializationSchema:
    """Converts elements to records; made by ``builder``. topic: of all; None with a selector."""

    topic: str | None
    selector: Callable[[Any], str] | None
    key_schema: SerializationSchema | None
    value_schema: SerializationSchema

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """A builder of a schema."""
        return KafkaRecordSerializationSchemaBuilder()

    def serialize(self, element: object) -> KafkaRecord:
        """Converts an element. Errors of selector and schemas pass, with a note on their origin."""
        part = "topic selector"
        try:
            topic = self.topic if self.selector is None else self.selector(element)
            if not isinstance(topic, str):
                raise TypeError(f"the topic is {topic!r}, which is not text")
            part = "key schema"
            key = None if self.key_schema is None else self.key_schema.serialize(element)
            part = "value schema"
            return KafkaRecord(topic, key, self.value_schema.serialize(element))
        except Exception as error:
            error.add_note(f"in the {part}")
            raise


class KafkaRecordSerializationSchemaBuilder:
    """Builds a schema; each call returns the builder."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key_schema: SerializationSchema | None = None
        self._value_schema: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Sends all elements to this topic."""
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: TopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Sets a function that chooses the topic of each element."""
        selects = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if selects else topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Sets the conversion of elements to keys; without one, records have no key."""
        self._key_schema = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Sets the conversion of elements to values."""
        self._value_schema = value_serialization_schema
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Makes the schema. Raises ConfigError for missing or repeated settings."""
        where = "KafkaRecordSerializationSchema"
        if (self._topic is None) == (self._selector is None):
            raise ConfigError(
                "No topic for the records is set"
                if self._topic is None
                else "Both a topic and a topic selector are given",
                where=where,
                remedy="Call exactly one of set_topic and set_topic_selector.",
            )
        if self._value_schema is None:
            raise ConfigError(
                "Nothing says how values become bytes",
                where=where,
                remedy="Say it: set_value_serialization_schema(SimpleStringSchema()).",
            )
        return KafkaRecordSerializationSchema(
            self._topic, self._selector, self._key_schema, self._value_schema
        )
