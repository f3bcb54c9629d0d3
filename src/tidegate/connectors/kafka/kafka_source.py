"""``KafkaSource``: topics of Kafka as a source, bounded or not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from flinkformat.frozen import frozen
from tidegate.api.dead_letters import checked_policy
from tidegate.connectors.kafka.cluster import (
    check_topics,
    checked_properties,
    int_property,
    require_clients,
)
from tidegate.connectors.kafka.offsets import (
    KafkaOffsetsInitializer,
    KafkaSplit,
    KafkaTopicPartition,
    Subscription,
)
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.api.dead_letters import Malformed
    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.connectors.kafka.enumerator.dealing import KafkaEnumerator
    from tidegate.connectors.kafka.kafka_reader import KafkaReader
    from tidegate.connectors.schemas.messages import DeserializationSchema
    from tidegate.typeinfo.types import TypeInformation

WHERE: Final = "KafkaSource"
DISCOVERY_MS: Final = 300_000

_DISCOVERY: Final = "partition.discovery.interval.ms"
_COMMIT: Final = "commit.offsets.on.checkpoint"
_OURS: Final = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}
_DEFAULTS: Final = {
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "error",
    # A job that was held back reads on at once; librdkafka's own is a second.
    "fetch.queue.backoff.ms": "20",
}


@frozen
class KafkaSource:
    """Topics of Kafka as a source; made by ``builder``.

    Positions are part of each checkpoint, and a restored job begins at them, whatever the group has
    committed. When a checkpoint is complete its positions are committed to the group, where there
    is one, for others to see. Records have the timestamps that Kafka has for them.

    properties: of librdkafka. discovery_ms: time between two looks for new partitions; 0 for never.
    ends: whether it is bounded, which a source with a ``stop`` need not be.
    """

    subscription: Subscription
    schema: DeserializationSchema
    properties: Mapping[str, str]
    start: KafkaOffsetsInitializer
    stop: KafkaOffsetsInitializer | None
    ends: bool
    discovery_ms: int
    commits: bool

    split_type: ClassVar = KafkaSplit

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A builder of a source."""
        return KafkaSourceBuilder()

    # Source

    @property
    def bounded(self) -> bool:
        return self.ends

    @property
    def produced_type(self) -> TypeInformation | None:
        return self.schema.produced_type

    def check(self) -> None:
        """Raises ConfigError for a missing client, topic or partition, and without an answer."""
        require_clients(WHERE)
        found = check_topics(self.subscription.named, self.properties, WHERE)
        missing = sorted(
            str(place)
            for place in self.subscription.partitions
            if place.partition not in found[place.topic].partitions
        )
        if missing:
            raise ConfigError(
                f"There is no partition {', '.join(missing)}",
                where=WHERE,
                remedy="Partitions are counted from 0; check what was given to set_partitions.",
            )

    def enumerator(
        self, context: EnumeratorContext[KafkaSplit], restored: bytes | None
    ) -> KafkaEnumerator:
        require_clients(WHERE)
        from tidegate.connectors.kafka.enumerator.dealing import KafkaEnumerator
        from tidegate.connectors.kafka.enumerator.partition_finder import PartitionFinder

        finder = PartitionFinder(self.subscription, self.properties, self.start, self.stop)
        return KafkaEnumerator(context, finder, self.discovery_ms, restored)

    def reader(self, context: ReaderContext) -> KafkaReader:
        require_clients(WHERE)
        from tidegate.connectors.kafka.kafka_reader import KafkaReader

        return KafkaReader(
            context,
            self.properties,
            self.schema,
            self.subscription,
            commits=self.commits,
            stops=self.stop is not None,
        )


class KafkaSourceBuilder:
    """Builds a source; each call returns the builder."""

    def __init__(self) -> None:
        self._servers: str | None = None
        self._properties: dict[str, str] = {}
        self._subscriptions: list[Subscription] = []
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._ends = False
        self._schema: DeserializationSchema | None = None
        self._malformed: Malformed | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Sets the first servers, ``host:port`` separated by commas."""
        self._servers = bootstrap_servers
        return self

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Sets the group for commits of offsets, and for starting at committed ones."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Reads all partitions of these topics."""
        self._subscriptions.append(Subscription(topics=topics))
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Reads all topics whose whole name matches a regular expression, including future ones.

        Kafka's own topics, such as ``__consumer_offsets``, are left out.
        """
        self._subscriptions.append(Subscription(pattern=topic_pattern))
        return self

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Reads these partitions and no others."""
        self._subscriptions.append(Subscription(partitions=frozenset(partitions)))
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Sets the start without a checkpoint; earliest by default.

        A partition that appears later is always read from its beginning.
        """
        self._start = starting_offsets_initializer
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Ends before these offsets; the job can end then, and does not look for new partitions.

        A job that goes on from a checkpoint or savepoint finds offsets and partitions anew.
        """
        self._stop, self._ends = stopping_offsets_initializer, True
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Ends before these offsets, but counts as a source without an end."""
        self._stop, self._ends = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Sets the conversion of a record's value; records without a value are skipped."""
        self._schema = deserialization_schema
        return self

    def on_malformed(self, policy: Malformed) -> KafkaSourceBuilder:
        """Sets the policy for unreadable records, whatever the schema says of them.

        policy: "fail" (the job), "skip" (and count it), or the tag of a side output, which gets a
        ``DeadLetter`` with its bytes.
        """
        self._malformed = checked_policy(policy, WHERE)
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Sets the prefix of the client's name at the servers."""
        return self.set_property("client.id", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Sets a property of librdkafka, or one of the two options of this source.

        These are ``partition.discovery.interval.ms`` (default 300000; 0 or less never looks again)
        and ``commit.offsets.on.checkpoint`` (default true).
        """
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Sets several properties of librdkafka."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """Makes the source. Raises ConfigError for missing or contradicting settings."""
        require_clients(WHERE)
        given = dict(self._properties)
        discovery_ms = int_property(given, _DISCOVERY, WHERE, default=DISCOVERY_MS)
        given.pop(_DISCOVERY, None)
        commits = _truth(given.pop(_COMMIT, "true"))
        grouped = "group.id" in given
        for verb, offsets in (("begins", self._start), ("ends", self._stop)):
            if offsets is not None and offsets.kind == "committed" and not grouped:
                raise ConfigError(
                    f"Reading {verb} at committed offsets, but of no group",
                    where=WHERE,
                    remedy="Name it: set_group_id('…').",
                )
        # librdkafka has no consumer without a group; nothing is ever committed to this one.
        given.setdefault("group.id", "tidegate")
        properties = checked_properties(self._servers, {**_DEFAULTS, **given}, _OURS, WHERE)
        return KafkaSource(
            subscription=self._subscription(),
            schema=self._checked_schema(),
            properties=properties,
            start=self._start,
            stop=self._stop,
            ends=self._ends,
            discovery_ms=0 if self._ends else max(0, discovery_ms),
            commits=commits and grouped,
        )

    def _subscription(self) -> Subscription:
        if len(self._subscriptions) != 1:
            raise ConfigError(
                "No topics or partitions to read are set"
                if not self._subscriptions
                else "Topics or partitions to read are set more than once",
                where=WHERE,
                remedy="Call exactly one of set_topics, set_topic_pattern, set_partitions.",
            )
        found = self._subscriptions[0]
        if not (found.topics or found.pattern or found.partitions):
            raise ConfigError(
                "There is no topic among those to be read", where=WHERE, remedy="Name one."
            )
        try:
            re.compile(found.pattern or "")
        except re.error as error:
            raise ConfigError(
                f"The topic pattern {found.pattern!r} is not a regular expression: {error}",
                where=WHERE,
                remedy="It is Python's, and has to match whole names: 'orders-.*'.",
            ) from error
        return found

    def _checked_schema(self) -> DeserializationSchema:
        if self._schema is None:
            raise ConfigError(
                "Nothing says how values are made of bytes",
                where=WHERE,
                remedy="Say it: set_value_only_deserializer(SimpleStringSchema()).",
            )
        if self._malformed is None:
            return self._schema
        return self._schema.on_malformed(self._malformed)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(
            f"The property '{_COMMIT}' is {text!r}",
            where=WHERE,
            remedy="Write 'true' or 'false'.",
        )
    return text.lower() == "true"
