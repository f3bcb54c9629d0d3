"""The slot-side half of a Kafka source: one consumer for all partitions of a subtask.

The consumer is told what to read (``assign``) and never joins its group: a rebalance would move
partitions behind the back of the checkpoints. librdkafka fetches on threads of its own, so the loop
takes what is there; only where no more is there does a call wait for it, on a thread beside.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tidegate.api.dead_letters import DeadLetter
from tidegate.api.output_tag import OutputTag
from tidegate.api.rows.batches import raised
from tidegate.connectors.kafka.cluster import refused_properties
from tidegate.errors import BadRecord, ConfigError, StorageFailed
from tidegate.model.elements import MIN_TIMESTAMP_MS, RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Message

    from tidegate.api.source import ReaderContext
    from tidegate.connectors.kafka.offsets import KafkaSplit, KafkaTopicPartition, Subscription
    from tidegate.connectors.schemas.messages import DeserializationSchema
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId

_LOG: Final = logging.getLogger(__name__)
_OF_ONE_BROKER: Final = (
    KafkaError._TRANSPORT,  # pyright: ignore[reportPrivateUsage]
    KafkaError._RESOLVE,  # pyright: ignore[reportPrivateUsage]
    KafkaError._TIMED_OUT,  # pyright: ignore[reportPrivateUsage]
)
"""Troubles of one connection, which mean nothing while others are there."""

_WAIT_S: Final = 0.1
"""How long a call waits for a record; between two of them partitions can be assigned."""

_TAKEN_MAX: Final = 32
"""Checkpoints under way whose offsets are kept for the group."""


class Troubles:
    """Tells each kind of trouble of a client once, until records come again. Any thread may call.

    The client recovers from all but fatal errors by itself, and the job waits meanwhile.
    """

    def __init__(self, where: str) -> None:
        self.fatal: KafkaError | None = None
        self._where = where
        self._told: set[int] = set()

    def heard(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = error
        elif error.code() not in (*_OF_ONE_BROKER, *self._told):
            self._told.add(error.code())
            _LOG.warning("%s: %s; the client tries again", self._where, error.str())

    def clear(self) -> None:
        if self._told:
            self._told.clear()
            _LOG.info("%s: records come again", self._where)


class GroupOffsets:
    """Commits one checkpoint's offsets at a time, and the newest next.

    Commits to a group that does not answer would else take the thread that waits for records.
    commit: blocks. read_ahead: of the reader's context.
    """

    def __init__(
        self,
        commit: Callable[[Mapping[KafkaTopicPartition, int]], None],
        read_ahead: Callable[[Callable[[], object], Callable[[object], None]], None],
    ) -> None:
        self._commit = commit
        self._read_ahead = read_ahead
        self._under_way = False
        self._next: Mapping[KafkaTopicPartition, int] | None = None

    def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        self._next = offsets
        self._begin()

    def _begin(self) -> None:
        if self._under_way or self._next is None:
            return
        offsets, self._next, self._under_way = self._next, None, True
        self._read_ahead(lambda: self._commit(offsets), self._ended)

    def _ended(self, _: object) -> None:
        self._under_way = False
        self._begin()


class KafkaReader:
    """Reads its partitions side by side; one after another where its order has to be repeatable.

    commits: offsets are committed to the group once their checkpoint is complete. stops: whether
    partitions have an end; else those of a bounded job that ended at it are read on.
    """

    def __init__(
        self,
        context: ReaderContext,
        properties: Mapping[str, str],
        schema: DeserializationSchema,
        subscription: Subscription,
        *,
        commits: bool,
        stops: bool,
    ) -> None:
        self._context = context
        self._schema = schema
        self._subscription = subscription
        self._commits = commits
        self._stops = stops
        self._splits: dict[tuple[str, int], KafkaSplit] = {}
        self._taken: dict[CheckpointId, dict[KafkaTopicPartition, int]] = {}
        self._held: list[Message] = []
        self._waiting = False
        self._assigned = True
        self._no_more = False
        self._where = f"KafkaSource, bootstrap.servers '{properties['bootstrap.servers']}'"
        self._troubles = Troubles(self._where)
        try:
            self._consumer = Consumer({**properties, "error_cb": self._troubles.heard})
        except KafkaException as error:
            raise refused_properties(error, self._where) from error
        self._offsets = GroupOffsets(self._commit, context.read_ahead)

    def add_splits(self, splits: Sequence[KafkaSplit]) -> None:
        for split in splits:
            place = (split.place.topic, split.place.partition)
            if self._subscription.leaves_out(split.place.topic):
                continue  # restored from a time when patterns took such topics
            if not split.is_new_stop:
                self._splits[place] = split if self._stops else replace(split, stop=None)
            elif place in self._splits:  # all readers are told of it
                self._splits[place] = replace(self._splits[place], stop=split.stop)
        self._assign()

    def _assign(self) -> None:
        self._assigned = not self._waiting
        if self._waiting:
            return  # what that call comes back with may be from before or after
        self._held.clear()
        left = [split for split in self._splits.values() if not split.ended]
        if self._context.repeatable:
            left = sorted(left, key=lambda split: split.place)[:1]
        self._consumer.assign(
            [TopicPartition(each.place.topic, each.place.partition, each.offset) for each in left]
        )

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Batch | None:
        if self._waiting or self._all_ended:
            return None
        self._check_client(self._troubles.fatal)
        messages, self._held = self._held, []
        left = self._context.rows - len(messages)
        if left > 0:
            messages += self._consumer.consume(left, 0)
        batch = self._take(messages)
        # Where fewer came than were asked for, another look would find nothing: wait at once.
        if (len(messages) < self._context.rows or not len(batch)) and not self._all_ended:
            self._waiting = True
            self._context.read_ahead(lambda: self._consumer.poll(_WAIT_S), self._arrived)
        return batch if len(batch) else None

    def _arrived(self, result: object) -> None:
        self._waiting = False
        if not self._assigned:
            self._assign()
        elif result is not None:
            self._held.append(cast("Message", result))

    @property
    def _all_ended(self) -> bool:
        return all(split.ended for split in self._splits.values())

    @property
    def finished(self) -> bool:
        return self._no_more and not self._waiting and self._all_ended

    @property
    def wants_splits(self) -> bool:
        return False

    def pending_records(self) -> Mapping[str, int]:
        """Records that the broker has and that are not read, by partition, as last heard of."""
        found: dict[str, int] = {}
        for split in list(self._splits.values()):
            place = split.place
            partition = TopicPartition(place.topic, place.partition)
            _, end = self._consumer.get_watermark_offsets(partition, cached=True)
            if end >= 0:
                found[f"{place.topic}-{place.partition}"] = max(0, end - split.offset)
        return found

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[KafkaSplit]:
        """Partitions with the offsets of their next records, including ended ones."""
        if self._commits:
            self._taken[checkpoint] = {s.place: s.offset for s in self._splits.values()}
            if len(self._taken) > _TAKEN_MAX:  # where one checkpoint after another fails
                del self._taken[min(self._taken)]
        return tuple(self._splits.values())

    def on_complete(self, checkpoint: CheckpointId) -> None:
        taken = self._taken.pop(checkpoint, {})
        for earlier in [each for each in self._taken if each < checkpoint]:
            del self._taken[earlier]
        if taken:
            self._offsets.commit(taken)

    def _commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        places = [TopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failed:
            # Positions are restored from checkpoints; the group's offsets are for others to see,
            # and the next checkpoint's commit covers this one.
            self._troubles.heard(failed.args[0])

    def close(self) -> None:
        self._consumer.close()

    def _take(self, messages: Sequence[Message]) -> RowBatch:
        values: list[object] = []
        times: list[int] = []
        reached: dict[tuple[str, int], int] = {}
        timed = False
        for message in messages:
            place = cast("tuple[str, int]", (message.topic(), message.partition()))
            error = message.error()
            split = self._splits.get(place)
            if split is None:
                self._check_client(error)
                continue
            offset = cast("int", message.offset())
            if error is not None:
                self._check_partition(split, reached.get(place, split.offset), error)
                # Transaction markers have offsets too; skip those after the last record.
                reached[place] = offset
                continue
            if split.stop is not None and offset >= split.stop:
                reached[place] = split.stop
                continue
            reached[place] = offset + 1
            value = self._value(split, offset, message.value())
            if value is not None:
                kind, ms = message.timestamp()
                has_time = kind != TIMESTAMP_NOT_AVAILABLE
                timed |= has_time
                values.append(value)
                times.append(ms if has_time else MIN_TIMESTAMP_MS)
        if values:
            self._troubles.clear()
        for place, offset in reached.items():
            self._splits[place] = replace(self._splits[place], offset=offset)
        if any(self._splits[place].ended for place in reached):
            self._assign()
        return RowBatch(values, times if timed else None)

    def _value(self, split: KafkaSplit, offset: int, data: bytes | None) -> object:
        if data is None:
            return None
        try:
            return self._schema.parse(data)
        except Exception as error:
            what = f"The value of record {offset} of partition {split.place} cannot be read"
            why, malformed = raised(error), self._schema.malformed
            if malformed == "fail":
                raise BadRecord(
                    f"{what}: {why}",
                    where=f"{self._where}, {type(self._schema).__name__}",
                    remedy="Use the schema that fits the topic; or skip and count such records, or "
                    "send them to a side output, with .on_malformed(…) of the schema.",
                ) from error
            if isinstance(malformed, OutputTag):
                where = f"partition {split.place}, record {offset}"
                self._context.dead_letters(malformed, [DeadLetter(where, why, data)])
            else:
                self._context.skipped(1)
            return None

    def _check_client(self, error: KafkaError | None) -> None:
        # The client recovers from all but fatal errors by itself.
        if error is not None and error.fatal():
            raise StorageFailed(
                f"Kafka's client has failed: {error.str()}",
                where=self._where,
                remedy="Check the security properties, and what this user may read.",
            )

    def _check_partition(self, split: KafkaSplit, offset: int, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # pyright: ignore[reportPrivateUsage]
            raise ConfigError(
                f"The next record of partition {split.place} is number {offset}, which is "
                f"not there: {error.str()}. Kafka has deleted it, or the topic was created again",
                where=self._where,
                remedy="To go on with what there is, and do without the rest, set the property "
                "'auto.offset.reset' to 'earliest' or 'latest'.",
            )
        raise StorageFailed(
            f"Partition {split.place} cannot be read: {error.str()}",
            where=self._where,
            remedy="Check that the topic is there, and that this user may read it.",
        )
