"""The driver-side half of a Kafka source: finds partitions and deals them out.

Where a partition is begun is settled when it is found, as a number, and goes into the checkpoint
with it. What was found at first begins where the user said; what appears later begins at its
beginning, for its first records were written while the job ran.
"""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

from tidegate.api import ship
from tidegate.connectors.kafka.cluster import ANSWER_S, admin, fault, topics_of
from tidegate.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSplit,
    KafkaTopicPartition,
)
from tidegate.errors import ConfigError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from confluent_kafka.admin import AdminClient

    from tidegate.api.source import EnumeratorContext
    from tidegate.connectors.kafka.kafka_source import KafkaSource
    from tidegate.model.ids import CheckpointId

Offsets = dict[KafkaTopicPartition, int]

_TRIES: Final = 20
_PAUSE_S: Final = 0.1


@dataclass(slots=True)
class EnumeratorState:
    """What the enumerator keeps in a checkpoint.

    known: partitions that were found. waiting: those of them that no reader was given. begun: the
    first look has been taken.
    """

    known: set[KafkaTopicPartition] = field(default_factory=lambda: set[KafkaTopicPartition]())
    waiting: list[KafkaSplit] = field(default_factory=lambda: list[KafkaSplit]())
    begun: bool = False


class KafkaEnumerator:
    """Looks for partitions once, or again and again; each is always given to the same reader."""

    def __init__(
        self, context: EnumeratorContext[KafkaSplit], source: KafkaSource, restored: bytes | None
    ) -> None:
        self._context = context
        self._source = source
        self._finder = PartitionFinder(source)
        self._ready: set[int] = set()
        self._state = EnumeratorState()
        if restored is not None:
            self._state = ship.restored(EnumeratorState, restored, name="a Kafka source")

    def start(self) -> None:
        """Look for partitions, unless that is done."""
        if self._looks:
            self._look()

    def split_requested(self, subtask: int) -> None:
        """Readers do not ask: they are given what there is."""

    def add_back(self, subtask: int, splits: Sequence[KafkaSplit]) -> None:
        """They wait for the reader to come back."""
        self._ready.discard(subtask)
        self._state.waiting.extend(splits)

    def reader_ready(self, subtask: int) -> None:
        """Give the reader what waits for it."""
        self._ready.add(subtask)
        self._serve([subtask])

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        """What was found, and what of it nobody was given."""
        return ship.dumps(self._state, name="kafka enumerator")

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to free."""

    @property
    def _looks(self) -> bool:
        return not self._state.begun or self._source.discovery_ms > 0

    def _look(self) -> None:
        known = frozenset(self._state.known)
        if self._state.begun:
            self._context.run_blocking(lambda: self._find_more(known), self._found)
        else:
            self._context.run_blocking(lambda: self._finder.find(known, first=True), self._found)

    def _find_more(self, known: frozenset[KafkaTopicPartition]) -> object:
        try:
            return self._finder.find(known, first=False)
        except StorageFailed:
            return []  # what is known is read meanwhile, and the next look may be answered

    def _found(self, result: object) -> None:
        splits = cast("list[KafkaSplit]", result)
        self._state.begun = True
        self._state.known.update(split.place for split in splits)
        self._state.waiting.extend(splits)
        self._serve(sorted(self._ready))
        if self._looks:
            self._context.call_later(self._source.discovery_ms, self._look)

    def _serve(self, readers: Sequence[int]) -> None:
        for subtask in readers:
            own = [split for split in self._state.waiting if self._owner(split.place) == subtask]
            self._state.waiting = [split for split in self._state.waiting if split not in own]
            self._context.assign(subtask, own)
            if not self._looks:
                self._context.no_more_splits(subtask)

    def _owner(self, place: KafkaTopicPartition) -> int:
        # The partitions of a topic go to readers in turn; topics begin at different ones.
        return (zlib.crc32(place.topic.encode()) + place.partition) % self._context.parallelism


class PartitionFinder:
    """Asks the cluster for partitions and offsets. Blocking; called on a pool, one at a time."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._client: AdminClient | None = None
        self._pause = threading.Event()

    def find(self, known: Collection[KafkaTopicPartition], *, first: bool) -> list[KafkaSplit]:
        """Partitions that are not known, with where to begin and to end.

        first: they begin where the user said, else at their beginning. Raises StorageFailed where
        the cluster does not answer, ConfigError for a known partition that is gone.
        """
        there = self._there()
        if gone := sorted(map(str, set(known) - there)):
            raise ConfigError(
                f"The partitions {', '.join(gone)} are gone: their topic was deleted, or this user "
                "may not see it any more",
                where=self._where,
                remedy="Positions in it mean nothing now. Start without this source's state: give "
                "it another uid and allow state that is not restored.",
            )
        new = sorted(there - set(known))
        start = self._source.start if first else KafkaOffsetsInitializer.earliest()
        starts = self._patiently(lambda: self._offsets(new, start))
        stop, stops = self._source.stop, Offsets()
        if stop is not None:
            stops = self._patiently(lambda: self._offsets(new, stop))
        return [KafkaSplit(place, starts[place], stops.get(place)) for place in new]

    def _patiently(self, ask: Callable[[], Offsets]) -> Offsets:
        """What is asked for, asked again: a topic that was just made may not have its leader."""
        for left in reversed(range(_TRIES)):
            try:
                return ask()
            except KafkaException as error:
                slow = fault(error).code() == KafkaError._TIMED_OUT  # pyright: ignore[reportPrivateUsage]
                if slow or not left:
                    raise StorageFailed(
                        f"The offsets of partitions were not told: {fault(error).str()}",
                        where=self._where,
                        remedy="Check that the servers answer, and that this user may describe the "
                        "topics and the group.",
                    ) from error
            self._pause.wait(_PAUSE_S)
        raise AssertionError("the last try ends it")

    def _there(self) -> set[KafkaTopicPartition]:
        subscription, servers = self._source.subscription, self._servers
        topics = topics_of(self._admin, servers, "KafkaSource")
        if missing := sorted(subscription.named - topics.keys()):
            raise ConfigError(
                f"There is no topic {', '.join(map(repr, missing))}",
                where=self._where,
                remedy="Create it, or check its name and that this user may describe it.",
            )
        return subscription.chosen(
            KafkaTopicPartition(name, partition)
            for name, topic in topics.items()
            if subscription.includes(name)
            for partition in topic.partitions
        )

    def _offsets(
        self, places: Sequence[KafkaTopicPartition], how: KafkaOffsetsInitializer
    ) -> Offsets:
        """The offset of each partition; those that have none of the kind are reset as said."""
        found = self._plain_offsets(places, how)
        missing = [place for place in places if place not in found]
        if missing and how.reset is KafkaOffsetResetStrategy.NONE:
            raise ConfigError(
                f"There is no {how.kind} offset for {', '.join(map(str, missing))}",
                where=f"{self._where}, group '{self._source.properties['group.id']}'",
                remedy="Commit some, or say where to begin without: "
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
        committed = self._source.properties["isolation.level"] == "read_committed"
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
        group = self._source.properties["group.id"]
        asked = [TopicPartition(place.topic, place.partition) for place in places]
        answers = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, asked)], request_timeout=ANSWER_S
        )
        found = answers[group].result().topic_partitions or []
        return {place_of(each): each.offset for each in found if each.offset >= 0}

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            wanted = ("bootstrap.", "security.", "ssl.", "sasl.", "client.id", "log_level")
            properties = {
                key: value
                for key, value in self._source.properties.items()
                if key.startswith(wanted)
            }
            self._client = admin(properties, "KafkaSource")
        return self._client

    @property
    def _servers(self) -> str:
        return self._source.properties["bootstrap.servers"]

    @property
    def _where(self) -> str:
        return f"KafkaSource, bootstrap.servers '{self._servers}'"


def place_of(partition: TopicPartition) -> KafkaTopicPartition:
    """A partition as the client names it, in our terms."""
    return KafkaTopicPartition(partition.topic, partition.partition)
