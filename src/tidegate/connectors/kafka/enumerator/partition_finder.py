"""Finds the partitions of a subscription, and the offsets to begin and to end at."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

from tidegate.connectors.kafka.cluster import ANSWER_S, admin, fault, refuse_missing, topics_of
from tidegate.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSplit,
    KafkaTopicPartition,
)
from tidegate.errors import ConfigError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from confluent_kafka.admin import AdminClient

    from tidegate.connectors.kafka.offsets import Subscription

Offsets = dict[KafkaTopicPartition, int]

_TRIES: Final = 20
_PAUSE_S: Final = 0.1


class PartitionFinder:
    """Asks the cluster for partitions and offsets. Blocking; called on a pool, one call at a time.

    properties: of librdkafka. start, stop: where reading begins and ends in a partition.
    """

    def __init__(
        self,
        subscription: Subscription,
        properties: Mapping[str, str],
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
    ) -> None:
        self.subscription = subscription
        self._properties = properties
        self._start = start
        self._stop = stop
        self._client: AdminClient | None = None
        self._closed = threading.Event()

    def find(self, known: Collection[KafkaTopicPartition], *, first: bool) -> list[KafkaSplit]:
        """New partitions, with their starts and ends.

        first: they begin where the user said, else at their beginning. Raises StorageFailed if
        the cluster does not answer, ConfigError for a known partition that is gone, or that the
        subscription leaves out.
        """
        there = self._there()
        self._refuse_gone(set(known) - there)
        new = sorted(there - set(known))
        start = self._start if first else KafkaOffsetsInitializer.earliest()
        starts = self._patiently(lambda: self._offsets(new, start))
        stop, stops = self._stop, Offsets()
        if stop is not None:
            stops = self._patiently(lambda: self._offsets(new, stop))
        return [KafkaSplit(place, starts[place], stops.get(place)) for place in new]

    def _refuse_gone(self, gone: Collection[KafkaTopicPartition]) -> None:
        afresh = (
            "start without this source's state: give it another uid and allow state that is not "
            "restored. The other partitions go on from where its group has committed, with "
            "set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(…))."
        )
        left_out = [place for place in gone if not self.subscription.includes_partition(place)]
        if left_out:
            raise ConfigError(
                f"The partitions {', '.join(sorted(map(str, left_out)))} were read up to the "
                "checkpoint, and are not among those that are to be read any more",
                where=self._where,
                remedy=f"Name them again in set_topics, set_topic_pattern or set_partitions; or "
                f"{afresh}",
            )
        if gone:
            raise ConfigError(
                f"The partitions {', '.join(sorted(map(str, gone)))} are gone: their topic was "
                "deleted, or this user may not see it any more",
                where=self._where,
                remedy="Let this user describe the topic. If it was deleted, positions in it mean "
                f"nothing now: {afresh}",
            )

    def find_again(self, known: Collection[KafkaTopicPartition]) -> list[KafkaSplit]:
        """New partitions, and the stops of known ones by now. Raises as ``find`` does."""
        new, stop = self.find(known, first=False), self._stop
        assert stop is not None, "only a source with an end is asked for it"
        stops = self._patiently(lambda: self._offsets(sorted(known), stop))
        return [*new, *(KafkaSplit.new_stop(place, stops[place]) for place in sorted(known))]

    @property
    def bounded(self) -> bool:
        return self._stop is not None

    def close(self) -> None:
        """Has a request that is under way not repeated any more. Any thread may call it."""
        self._closed.set()

    def _patiently(self, ask: Callable[[], Offsets]) -> Offsets:
        """Repeats a request: a topic that was just made may not have its leader yet."""
        for left in reversed(range(_TRIES)):
            try:
                return ask()
            except KafkaException as error:
                slow = fault(error).code() == KafkaError._TIMED_OUT  # pyright: ignore[reportPrivateUsage]
                if slow or not left or self._closed.wait(_PAUSE_S):
                    raise StorageFailed(
                        f"The offsets of partitions could not be read: {fault(error).str()}",
                        where=self._where,
                        remedy="Check that the servers answer, and that this user may describe the "
                        "topics and the group.",
                    ) from error
        raise AssertionError("the last try ends it")

    def _there(self) -> set[KafkaTopicPartition]:
        subscription, servers = self.subscription, self._servers
        topics = topics_of(self._admin, servers, "KafkaSource")
        refuse_missing(subscription.named, topics, self._where)
        return subscription.chosen(
            KafkaTopicPartition(name, partition)
            for name, topic in topics.items()
            if subscription.includes(name)
            for partition in topic.partitions
        )

    def _offsets(
        self, places: Sequence[KafkaTopicPartition], how: KafkaOffsetsInitializer
    ) -> Offsets:
        """Offset of each partition; partitions without one are reset as configured."""
        found = self._plain_offsets(places, how)
        missing = [place for place in places if place not in found]
        if missing and how.reset is KafkaOffsetResetStrategy.NONE:
            raise ConfigError(
                f"There is no {how.kind} offset for {', '.join(map(str, missing))}",
                where=f"{self._where}, group '{self._properties['group.id']}'",
                remedy="Commit offsets, or set a start for partitions without them: "
                "KafkaOffsetResetStrategy.EARLIEST or LATEST.",
            )
        if missing:
            latest = how.reset is KafkaOffsetResetStrategy.LATEST
            found |= self._listed(missing, OffsetSpec.latest() if latest else OffsetSpec.earliest())
        return found

    def _plain_offsets(
        self, places: Sequence[KafkaTopicPartition], how: KafkaOffsetsInitializer
    ) -> Offsets:
        match how.kind:
            case "given":
                return {place: how.given[place] for place in places if place in how.given}
            case "committed":
                return self._committed(places)
            case "timestamp":
                return self._listed(places, OffsetSpec.for_timestamp(how.timestamp_ms))
            case "earliest" | "latest":
                return {}

    def _listed(self, places: Sequence[KafkaTopicPartition], spec: OffsetSpec | None) -> Offsets:
        if not places:
            return {}
        committed = self._properties["isolation.level"] == "read_committed"
        answers = self._admin.list_offsets(
            {TopicPartition(p.topic, p.partition): cast("OffsetSpec", spec) for p in places},
            isolation_level=IsolationLevel.READ_COMMITTED
            if committed
            else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_S,
        )
        found = {place_of(asked): answer.result().offset for asked, answer in answers.items()}
        return {place: offset for place, offset in found.items() if offset >= 0}

    def _committed(self, places: Sequence[KafkaTopicPartition]) -> Offsets:
        if not places:
            return {}
        group = self._properties["group.id"]
        asked = [TopicPartition(place.topic, place.partition) for place in places]
        answers = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, asked)], request_timeout=ANSWER_S
        )
        found = answers[group].result().topic_partitions or []
        return {place_of(each): each.offset for each in found if each.offset >= 0}

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = admin(self._properties, "KafkaSource")
        return self._client

    @property
    def _servers(self) -> str:
        return self._properties["bootstrap.servers"]

    @property
    def _where(self) -> str:
        return f"KafkaSource, bootstrap.servers '{self._servers}'"


def place_of(partition: TopicPartition) -> KafkaTopicPartition:
    return KafkaTopicPartition(partition.topic, partition.partition)
