"""``KafkaRecordSerializationSchema``: how an element becomes a record of a topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.connectors.schemas.messages import SerializationSchema


class KafkaTopicSelector(ABC):
    """Chooses the topic of each element; a plain function does as well."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic."""


TopicSelector = Callable[[Any], str] | KafkaTopicSelector


class KafkaRecord(NamedTuple):
    """What is sent."""

    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class KafkaRecordSerializationSchema:
    """An element as a record; made by ``builder``. topic: where all go; None where one selects."""

    topic: str | None
    selector: Callable[[Any], str] | None
    key_schema: SerializationSchema | None
    value_schema: SerializationSchema

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Begin."""
        return KafkaRecordSerializationSchemaBuilder()

    def serialize(self, element: object) -> KafkaRecord:
        """The record. Raises what selector and schemas raise, with a note on which of them did."""
        part = "topic selector"
        try:
            topic = self.topic if self.selector is None else self.selector(element)
            if not isinstance(topic, str):
                raise TypeError(f"the topic is {topic!r}, which is no text")
            part = "key schema"
            key = None if self.key_schema is None else self.key_schema.serialize(element)
            part = "value schema"
            return KafkaRecord(topic, key, self.value_schema.serialize(element))
        except Exception as error:
            error.add_note(f"in the {part}")
            raise


class KafkaRecordSerializationSchemaBuilder:
    """Says where elements go and what they become; the methods give the builder back."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key_schema: SerializationSchema | None = None
        self._value_schema: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """All go to this topic."""
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: TopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Each element goes where a function of it says."""
        selects = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if selects else topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """How the key is made of the element; without one, records have no key."""
        self._key_schema = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """How the value is made of the element."""
        self._value_schema = value_serialization_schema
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Make the schema. Raises ConfigError for what is missing or said twice."""
        where = "KafkaRecordSerializationSchema"
        if (self._topic is None) == (self._selector is None):
            raise ConfigError(
                "Nothing says which topic records go to"
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
