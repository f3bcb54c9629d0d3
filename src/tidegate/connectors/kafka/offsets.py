"""Start and end of reading: partitions, offsets, and how they are found."""

from __future__ import annotations

import re
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OF_KAFKA: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics; a source that commits to one which it reads would feed itself for ever."""


@frozen(order=True)
class KafkaTopicPartition:
    """A partition of a topic, by its number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """Start of reading in a partition without an offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@frozen
class KafkaOffsetsInitializer:
    """Finds the offset of each partition without a checkpoint.

    Made by the static methods. reset: for partitions without an offset of that kind.
    """

    kind: Literal["earliest", "latest", "committed", "timestamp", "given"]
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST
    timestamp_ms: int = 0
    given: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Starts at the first record that still exists."""
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Starts after the last record."""
        return KafkaOffsetsInitializer("latest", KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Starts at the group's commits; a partition without one is refused, or reset as given."""
        return KafkaOffsetsInitializer("committed", offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Starts at the first record at or after a time, ms since 1970; else after the last.

        Raises ConfigError for a negative one.
        """
        if timestamp < 0:
            raise ConfigError(
                f"The timestamp is {timestamp}",
                where="KafkaOffsetsInitializer.timestamp",
                remedy="Give milliseconds since 1970.",
            )
        reset = KafkaOffsetResetStrategy.LATEST
        return KafkaOffsetsInitializer("timestamp", reset, timestamp_ms=timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Starts at these offsets; other partitions are reset as given.

        Raises ConfigError for a negative one.
        """
        negative = {str(place): offset for place, offset in offsets.items() if offset < 0}
        if negative:
            raise ConfigError(
                f"Offsets are negative: {negative}",
                where="KafkaOffsetsInitializer.offsets",
                remedy="Give the number of the next record of each partition, from 0 on.",
            )
        return KafkaOffsetsInitializer("given", offset_reset_strategy, given=dict(offsets))


@frozen
class Subscription:
    """Says which partitions are read: exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[KafkaTopicPartition] = frozenset()

    def includes(self, topic: str) -> bool:
        if self.pattern is not None:
            return not self.leaves_out(topic) and re.fullmatch(self.pattern, topic) is not None
        return topic in self.named

    def leaves_out(self, topic: str) -> bool:
        """True for a topic of Kafka itself that no pattern takes, though a snapshot may have it."""
        return self.pattern is not None and topic in _OF_KAFKA

    def includes_partition(self, place: KafkaTopicPartition) -> bool:
        return self.includes(place.topic) and place in self.chosen([place])

    @property
    def named(self) -> set[str]:
        return {*self.topics, *(place.topic for place in self.partitions)}

    def chosen(self, there: Iterable[KafkaTopicPartition]) -> set[KafkaTopicPartition]:
        """Keeps the partitions that are read, of those of its topics that are there."""
        return set(there) & self.partitions if self.partitions else set(there)


@frozen
class KafkaSplit:
    """A partition to read.

    offset: of the next record; negative where whoever reads the partition is told a new stop alone.
    stop: the first offset that is not read; None for no end.
    """

    place: KafkaTopicPartition
    offset: int
    stop: int | None = None

    @staticmethod
    def new_stop(place: KafkaTopicPartition, stop: int) -> KafkaSplit:
        """A new stop of a partition that some reader has."""
        return KafkaSplit(place, -1, stop)

    @property
    def is_new_stop(self) -> bool:
        return self.offset < 0

    @property
    def ended(self) -> bool:
        return self.stop is not None and self.offset >= self.stop
