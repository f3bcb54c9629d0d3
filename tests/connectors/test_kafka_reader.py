"""A reader of Kafka's source asks for no more than it may, and commits what is complete."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

from tidegate.connectors import KafkaTopicPartition, SimpleStringSchema
from tidegate.connectors.kafka import kafka_reader
from tidegate.connectors.kafka.kafka_reader import GroupOffsets, KafkaReader
from tidegate.connectors.kafka.offsets import KafkaSplit, Subscription
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.ids import CheckpointId

NOBODY = "127.0.0.1:1"

ReadAhead = Callable[[Callable[[], object], Callable[[object], None]], None]


NUMBERS = Subscription(topics=("numbers",))


def reader_of(
    servers: str,
    read_ahead: ReadAhead = lambda call, then: then(call()),
    subscription: Subscription = NUMBERS,
) -> KafkaReader:
    """A reader whose calls on the pool are made at once, unless told otherwise."""
    context: Any = SimpleNamespace(rows=7, repeatable=False, read_ahead=read_ahead)
    properties = {"bootstrap.servers": servers, "group.id": "nobody", "log_level": "2"}
    schema = SimpleStringSchema()
    return KafkaReader(context, properties, schema, subscription, commits=True, stops=True)


def test_a_source_that_reaches_no_broker_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_of(NOBODY)
    reader.add_splits([KafkaSplit(KafkaTopicPartition("numbers", 0), 0, None)])
    until_s = time.monotonic() + 30
    while not caplog.records and time.monotonic() < until_s:
        reader.poll()
    for _ in range(10):
        reader.poll()
    [told] = caplog.messages
    assert NOBODY in told and "brokers are down" in told and "tries again" in told
    reader.close()


@pytest.mark.parametrize(
    ("subscription", "read"),
    [
        (Subscription(pattern=".*"), ["orders"]),
        (Subscription(topics=("orders", "__consumer_offsets")), ["orders", "__consumer_offsets"]),
    ],
)
def test_a_restored_reader_takes_kafkas_own_topics_only_where_they_are_named(
    subscription: Subscription, read: list[str]
) -> None:
    reader = reader_of(NOBODY, subscription=subscription)
    topics = ("orders", "__consumer_offsets")
    reader.add_splits([KafkaSplit(KafkaTopicPartition(topic, 3), 5) for topic in topics])
    assert [split.place.topic for split in reader.snapshot(CheckpointId(1))] == read
    reader.close()


def test_offsets_of_checkpoints_that_all_fail_are_not_kept_for_ever() -> None:
    asked = list[object]()
    reader = reader_of(NOBODY, lambda call, then: asked.append(call))
    reader.add_splits([KafkaSplit(KafkaTopicPartition("numbers", 0), 0, None)])
    for number in range(1, 101):
        reader.snapshot(CheckpointId(number))
    reader.on_complete(CheckpointId(1))
    assert asked == [], "its offsets were let go of"
    reader.on_complete(CheckpointId(100))
    assert len(asked) == 1
    reader.close()


def test_offsets_are_committed_one_checkpoint_at_a_time_and_the_newest_next() -> None:
    under_way, committed = list[Any](), list[int]()
    place = KafkaTopicPartition("numbers", 0)
    offsets = GroupOffsets(
        lambda given: committed.append(given[place]),
        lambda call, then: under_way.append((call, then)),
    )
    for number in (10, 20, 30):
        offsets.commit({place: number})
    assert len(under_way) == 1, "the pool is for others too"
    while under_way:
        call, then = under_way.pop()
        then(call())
    assert committed == [10, 30]


class Fetched:
    """A record of partition 0 of the topic numbers, as Kafka's client gives it."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self.offset, self.value = (lambda: offset), (lambda: value)

    topic = staticmethod(lambda: "numbers")
    partition = staticmethod(lambda: 0)
    error = staticmethod(lambda: None)

    def timestamp(self) -> tuple[int, int]:
        return (TIMESTAMP_NOT_AVAILABLE, 0) if self.value() == b"untimed" else (1, 1_000)


class Client:
    """Kafka's client with some records at hand. asked: how many were asked for, each time."""

    def __init__(self, *values: bytes | None) -> None:
        self.at_hand = [Fetched(offset, value) for offset, value in enumerate(values)]
        self.asked = list[int]()

    def __call__(self, settings: object) -> "Client":
        return self

    def consume(self, most: int, wait_s: float) -> list[Fetched]:
        self.asked.append(most)
        taken, self.at_hand = self.at_hand[:most], self.at_hand[most:]
        return taken

    def poll(self, wait_s: float) -> Fetched | None:
        return self.at_hand.pop(0) if self.at_hand else None

    def assign(self, partitions: object) -> None: ...

    def close(self) -> None: ...


class Reading:
    """A reader of a client, and the calls that it has under way."""

    def __init__(
        self, client: Client, patch: pytest.MonkeyPatch, rows: int, stop: int | None = None
    ) -> None:
        patch.setattr(kafka_reader, "Consumer", client)
        self.under_way = list[Any]()
        context: Any = SimpleNamespace(
            rows=rows,
            repeatable=False,
            read_ahead=lambda call, then: self.under_way.append((call, then)),
        )
        properties = {"bootstrap.servers": NOBODY}
        schema = SimpleStringSchema()
        self.reader = KafkaReader(context, properties, schema, NUMBERS, commits=True, stops=True)
        self.reader.add_splits([KafkaSplit(KafkaTopicPartition("numbers", 0), 0, stop)])

    def poll(self) -> list[object] | None:
        batch: Any = self.reader.poll()
        return None if batch is None else batch.values

    def wait(self) -> None:
        """What is under way comes back."""
        [(call, then)] = self.under_way
        self.under_way.clear()
        then(call())

    @property
    def offset(self) -> int:
        [split] = self.reader.snapshot(CheckpointId(1))
        return split.offset


def test_a_reader_that_gets_fewer_records_than_it_asks_for_waits_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(b"a", b"b")
    reading = Reading(client, monkeypatch, rows=7)
    assert reading.poll() == ["a", "b"]
    assert len(reading.under_way) == 1 and not reading.reader.finished
    assert reading.poll() is None and client.asked == [7], "there is nothing to look for"
    client.at_hand = [Fetched(2, b"c"), Fetched(3, b"d")]
    reading.wait()
    assert reading.offset == 2, "what was read ahead is not taken yet"
    assert reading.poll() == ["c", "d"] and reading.offset == 4
    assert client.asked == [7, 6] and len(reading.under_way) == 1


def test_a_record_without_a_timestamp_takes_none_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for values, stamps in (
        ((b"a", b"untimed", b"b"), [1_000, MIN_TIMESTAMP_MS, 1_000]),
        ((b"untimed",), None),
    ):
        reading = Reading(Client(*values), monkeypatch, rows=7)
        batch: Any = reading.reader.poll()
        assert (len(batch), batch.timestamps_ms) == (len(values), stamps)


def test_a_reader_takes_no_more_records_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    reading = Reading(client, monkeypatch, rows=1)
    assert reading.poll() is None
    client.at_hand = [Fetched(0, b"a"), Fetched(1, b"b")]
    reading.wait()
    assert reading.poll() == ["a"] and reading.offset == 1
    assert reading.under_way == [], "more may be at hand"
    assert reading.poll() == ["b"] and client.asked == [1, 1]


def test_a_reader_waits_behind_records_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(Client(None, b"b"), monkeypatch, rows=1)
    assert reading.poll() is None
    reading.wait()
    assert reading.poll() == ["b"] and reading.offset == 2


def test_a_reader_that_has_come_to_the_end_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Reading(Client(b"a", b"b"), monkeypatch, rows=7, stop=2)
    reading.reader.no_more_splits()
    assert reading.poll() == ["a", "b"]
    assert reading.under_way == [] and reading.reader.finished


class Mixed:
    """A client whose partitions have four records each, given in turn by a number that is drawn."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.draw = draw
        self.left = dict[int, list[int]]()

    def __call__(self, settings: object) -> "Mixed":
        return self

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.left = {each.partition: list(range(each.offset, 4)) for each in partitions}

    def poll(self, wait_s: float) -> Any:
        there = sorted(partition for partition, left in self.left.items() if left)
        if not there:
            return None
        partition = there[self.draw(len(there))]
        offset = self.left[partition].pop(0)
        return SimpleNamespace(
            topic=lambda: "numbers",
            partition=lambda: partition,
            offset=lambda: offset,
            error=lambda: None,
            value=lambda: f"{partition}-{offset}".encode(),
            timestamp=lambda: (TIMESTAMP_NOT_AVAILABLE, 0),
        )

    def consume(self, most: int, wait_s: float) -> list[Any]:
        return [each for each in (self.poll(0) for _ in range(most)) if each is not None]

    def close(self) -> None: ...


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("draw", [lambda count: 0, lambda count: count - 1])
def test_records_of_several_partitions_come_in_one_order_where_it_has_to_be_repeatable(
    monkeypatch: pytest.MonkeyPatch, rows: int, draw: Callable[[int], int]
) -> None:
    monkeypatch.setattr(kafka_reader, "Consumer", Mixed(draw))
    context: Any = SimpleNamespace(
        rows=rows, repeatable=True, read_ahead=lambda call, then: then(call())
    )
    properties = {"bootstrap.servers": NOBODY}
    schema = SimpleStringSchema()
    reader = KafkaReader(context, properties, schema, NUMBERS, commits=False, stops=True)
    reader.add_splits([KafkaSplit(KafkaTopicPartition("numbers", at), 0, 4) for at in (2, 0, 1)])
    reader.no_more_splits()
    found = list[object]()
    for _ in range(50):
        batch: Any = reader.poll()
        found += [] if batch is None else batch.values
    assert found == [f"{partition}-{offset}" for partition in range(3) for offset in range(4)]
    assert reader.finished
