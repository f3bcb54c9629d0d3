"""Kafka's source against a real broker: partitions, positions, transactions, and refusals."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.kafka import KafkaServer
from tests.metrics.reading import by_name, number
from tests.operators.kills import check_under_kills
from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tests.properties import examples
from tidegate import DeadLetter, OutputTag
from tidegate.api import ship
from tidegate.api.operator import Polled
from tidegate.connectors import (
    JsonSchema,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
    SimpleStringSchema,
)
from tidegate.connectors.kafka.enumerator.partition_finder import PartitionFinder
from tidegate.connectors.kafka.offsets import KafkaSplit
from tidegate.errors import BadRecord, ConfigError, StorageFailed
from tidegate.model.settings import SlotSettings
from tidegate.operators.sources.source import SourceReaderOperator

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]

EARLIEST, LATEST = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()
SMALL = SlotSettings(rows=7)
LIMIT_S = 60


def source(kafka: KafkaServer, *topics: str) -> KafkaSourceBuilder:
    """Text of some topics."""
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.servers)
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_topics(*topics) if topics else builder


def bounded(kafka: KafkaServer, *topics: str) -> KafkaSourceBuilder:
    return source(kafka, *topics).set_bounded(LATEST)


def job_of(
    world: World, made: KafkaSource, parallelism: int = 1, settings: SlotSettings | None = None
) -> SourceJob:
    made.check()
    return SourceJob(
        world, lambda: SourceReaderOperator(made, None, "kafka"), parallelism, settings=settings
    )


def read(world: World, builder: KafkaSourceBuilder, parallelism: int = 1) -> list[object]:
    """All that a bounded source gives."""
    job = job_of(world, builder.build(), parallelism)
    job.run_to_end()
    close(job)
    return job.emitted


def close(job: SourceJob) -> None:
    for reader in job.readers:
        reader.operator.close()


def step_until(job: SourceJob, holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        if holds():
            return
        for index in range(len(job.readers)):
            job.step(index)
        job.world.pass_time(1)
    raise AssertionError(f"it never comes; emitted are {job.emitted}")


def positions(job: SourceJob) -> dict[int, int]:
    """Next offsets by partition, as the newest checkpoint has them."""
    assert job.latest is not None
    found = [
        ship.loads(data, name="split")
        for lists in job.latest.readers.lists
        for data in lists["SourceReaderState"]
    ]
    return {s.place.partition: s.offset for s in found if isinstance(s, KafkaSplit)}


def test_each_record_is_read_once_over_all_readers_and_partitions(
    kafka: KafkaServer, world: World
) -> None:
    one, other = kafka.topic(3), kafka.topic(1)
    kafka.write(one, range(100))
    kafka.write(other, range(100, 150))
    found = read(world, bounded(kafka, one, other), 2)
    assert sorted(map(int, map(str, found))) == list(range(150))


def test_records_of_a_partition_come_in_order_with_their_timestamps(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    kafka.write(topic, "abc", first_ms=1_000)
    job = job_of(world, bounded(kafka, topic).build())
    reader = job.readers[0]
    until_s = time.monotonic() + LIMIT_S
    while len(reader.out.values) < 3 and time.monotonic() < until_s:
        world.settle()
        job.deliver()
        reader.poll()
    assert reader.out.values == ["a", "b", "c"]
    assert reader.out.stamps == [1_000, 1_001, 1_002]
    close(job)


def test_records_that_are_not_read_yet_are_counted_by_partition(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    kafka.write(topic, range(30))
    job = job_of(world, source(kafka, topic).build(), settings=SMALL)
    registry = job.readers[0].context.registry
    step_until(job, lambda: job.emitted)
    read = len(job.emitted)
    assert 0 < read < 30
    told = by_name(registry)
    assert told["pendingRecords"] == told[f"split.{topic}-0.pendingRecords"] == 30 - read
    step_until(job, lambda: len(job.emitted) == 30)
    assert number(registry, "pendingRecords") == 0
    close(job)
    assert number(registry, "pendingRecords") == 0


def test_a_reader_that_has_come_to_the_end_is_woken_by_the_next_record(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, "abcd")
    job = job_of(world, source(kafka, topic).build(), 1, SlotSettings(rows=1))
    reader = job.readers[0]

    def turn() -> None:
        world.settle()
        job.deliver()
        if reader.context.woken:
            reader.context.woken = False
            while reader.poll() is Polled.MORE:
                pass

    def turn_until(values: str) -> None:
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            if sorted(map(str, reader.out.values)) == list(values):
                return
            turn()
        raise AssertionError(f"it was read {reader.out.values}, not {list(values)}")

    turn_until("abcd")
    for _ in range(10):
        turn()  # long enough for both marks of an end to come, each by itself
    kafka.write(topic, "e")
    turn_until("abcde")
    close(job)


def test_a_record_without_a_value_is_passed_over(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    kafka.write(topic, ["1", "null", "2"])
    builder = bounded(kafka, topic).set_value_only_deserializer(JsonSchema())
    assert read(world, builder) == [1, 2]


def test_more_readers_than_partitions_end_too(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, range(10))
    assert len(read(world, bounded(kafka, topic), 4)) == 10


def test_an_empty_topic_ends_at_once(kafka: KafkaServer, world: World) -> None:
    assert read(world, bounded(kafka, kafka.topic(3)), 2) == []


@examples(8)
@given(data=st.data())
def test_no_record_is_lost_or_doubled_whatever_is_killed(
    kafka: KafkaServer, data: st.DataObject
) -> None:
    topic = kafka.topic(3)
    count = data.draw(st.integers(0, 40), "records")
    kafka.write(topic, range(count))
    made = bounded(kafka, topic).build()
    with World() as world:
        expected: list[object] = sorted(map(str, range(count)))
        check_under_kills(world, lambda: SourceReaderOperator(made), data, expected)


@pytest.mark.feature("F213")
def test_the_group_has_committed_what_the_completed_checkpoint_holds(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, range(40))
    made = source(kafka, topic).set_group_id("watched").build()
    job = job_of(world, made, 2, SMALL)
    step_until(job, lambda: len(job.emitted) > 10)
    job.checkpoint(1)
    cut = positions(job)
    step_until(job, lambda: len(job.emitted) == 40)
    assert kafka.committed_offsets("watched", topic) == {}
    job.complete()
    world.settle()
    assert kafka.committed_offsets("watched", topic) == cut
    assert 0 < sum(cut.values()) < 40
    close(job)


def test_a_checkpoint_that_is_given_up_is_not_committed(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic(1)
    kafka.write(topic, range(30))
    job = job_of(world, source(kafka, topic).set_group_id("late").build(), 1, SMALL)
    step_until(job, lambda: len(job.emitted) > 5)
    job.checkpoint(1)
    step_until(job, lambda: len(job.emitted) > 15)
    job.checkpoint(2)
    cut = positions(job)
    step_until(job, lambda: len(job.emitted) == 30)
    job.complete()
    world.settle()
    assert kafka.committed_offsets("late", topic) == cut
    close(job)


@pytest.mark.feature("F214")
def test_a_restored_reader_begins_at_its_checkpoint_whatever_the_group_says(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, range(40))
    builder = bounded(kafka, topic).set_group_id("elsewhere")
    builder.set_starting_offsets(
        KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    )
    job = job_of(world, builder.build(), 2, SMALL)
    step_until(job, lambda: len(job.emitted) > 10)
    job.checkpoint(1)
    job.complete()
    kafka.commit_offsets("elsewhere", topic, [0, 20])
    job = job.killed(1)
    job.run_to_end()
    assert sorted(map(str, job.emitted)) == sorted(map(str, range(40)))
    close(job)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (EARLIEST, "abcd"),
        (LATEST, ""),
        (KafkaOffsetsInitializer.timestamp(1_002), "cd"),
        (KafkaOffsetsInitializer.timestamp(5_000), ""),
        (KafkaOffsetsInitializer.committed_offsets(), "d"),
    ],
)
def test_a_new_job_begins_where_it_is_told(
    kafka: KafkaServer, world: World, start: KafkaOffsetsInitializer, expected: str
) -> None:
    topic = kafka.topic()
    kafka.write(topic, "abcd", first_ms=1_000)
    kafka.commit_offsets("beginners", topic, [3])
    builder = bounded(kafka, topic).set_group_id("beginners").set_starting_offsets(start)
    assert read(world, builder) == list(expected)


def test_offsets_that_are_given_hold_for_their_partitions(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, "abc", 0)
    kafka.write(topic, "xyz", 1)
    given_offsets = {KafkaTopicPartition(topic, 0): 2}
    builder = bounded(kafka, topic)
    builder.set_starting_offsets(KafkaOffsetsInitializer.offsets(given_offsets))
    assert sorted(map(str, read(world, builder))) == ["c", "x", "y", "z"]


def test_a_source_ends_before_the_offsets_it_is_given(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, "abc", 0)
    kafka.write(topic, "xyz", 1)
    places = {KafkaTopicPartition(topic, 0): 2, KafkaTopicPartition(topic, 1): 0}
    builder = source(kafka, topic).set_bounded(KafkaOffsetsInitializer.offsets(places))
    assert read(world, builder) == ["a", "b"]


@pytest.mark.parametrize("parallelism", [(1, 1), (2, 3), (3, 1)])
def test_a_bounded_job_that_goes_on_reads_what_has_come_since(
    kafka: KafkaServer, world: World, parallelism: tuple[int, int]
) -> None:
    topic = kafka.topic(3)
    kafka.write(topic, range(10))
    made = bounded(kafka, topic).build()
    job = job_of(world, made, parallelism[0])
    job.run_to_end()
    job.checkpoint(1)
    kafka.write(topic, range(10, 30))
    kafka.add_partitions(topic, 4)
    kafka.write(topic, ["30"], 3)
    job = job.killed(parallelism[1])
    job.run_to_end()
    assert sorted(int(str(each)) for each in job.emitted) == list(range(31))
    kafka.write(topic, ["31"])
    if parallelism[1] == 1:
        job.checkpoint(2)
        job = job.killed()
        job.deliver()
        job.reset_reader(0, lambda _: False)
        job.run_to_end()
        assert sorted(int(str(each)) for each in job.emitted) == list(range(32))
    close(job)


def test_a_bounded_job_ends_that_goes_on_from_one_without_an_end(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, "abc")
    live, history = (
        SourceReaderOperator(made, None, "kafka")
        for made in (source(kafka, topic).build(), bounded(kafka, topic).build())
    )
    job = SourceJob(world, lambda: live, 1)
    step_until(job, lambda: len(job.emitted) == 3)
    checkpoint = job.checkpoint(1)
    close(job)
    kafka.write(topic, "de")
    job = SourceJob(world, lambda: history, 1, checkpoint)
    job.run_to_end()
    assert sorted(map(str, job.emitted)) == list("abcde")
    close(job)


def test_partitions_that_are_named_are_read_alone(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, "abc", 0)
    kafka.write(topic, "xyz", 1)
    builder = source(kafka).set_partitions({KafkaTopicPartition(topic, 1)}).set_bounded(LATEST)
    assert read(world, builder) == ["x", "y", "z"]


def test_committed_offsets_that_there_are_not_are_refused(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    builder = source(kafka, topic).set_group_id("nobody")
    builder.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    job = job_of(world, builder.build())
    with pytest.raises(ConfigError, match=f"no committed offset for {topic}-0"):
        job.step(0)
    close(job)


def test_partitions_and_topics_that_appear_are_read_from_their_beginning(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic(1)
    kafka.write(topic, ["before"])
    builder = source(kafka).set_topic_pattern(f"{topic}|topic-new-to-it")
    builder.set_starting_offsets(LATEST).set_property("partition.discovery.interval.ms", "5")
    job = job_of(world, builder.build(), 2)
    step_until(
        job,
        lambda: job.readers[0].operator._reader._splits or job.readers[1].operator._reader._splits,
    )
    kafka.add_partitions(topic, 2)
    kafka.write(topic, ["in a new partition"], 1)
    step_until(job, lambda: job.emitted)
    assert job.emitted == ["in a new partition"]
    close(job)


def test_what_is_not_committed_is_read_only_where_that_was_asked_for(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    kafka.write(topic, ["plain"])
    open_one = kafka.open_transaction(topic, f"open-{topic}", "open")
    committed = bounded(kafka, topic).set_property("isolation.level", "read_committed")
    assert read(world, committed) == ["plain"]
    assert read(world, bounded(kafka, topic)) == ["plain", "open"]
    open_one.commit_transaction(20)
    # The transaction's mark is the last offset, and no record: the end is behind it all the same.
    assert read(world, committed) == ["plain", "open"]


def test_an_offset_that_is_gone_is_refused_or_reset_as_said(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    kafka.write(topic, "ab")
    start = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 1_000})
    builder = source(kafka, topic).set_starting_offsets(start)
    job = job_of(world, builder.build())
    with pytest.raises(ConfigError, match=f"{topic}-0 is number 1000, which is not there"):
        step_until(job, lambda: False)
    close(job)
    job = job_of(world, builder.set_property("auto.offset.reset", "earliest").build())
    step_until(job, lambda: job.emitted == ["a", "b"])
    close(job)


def test_a_topic_that_was_deleted_is_not_taken_for_read(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    kafka.write(topic, "ab")
    job = job_of(world, source(kafka, topic).build())
    step_until(job, lambda: len(job.emitted) == 2)
    job.checkpoint(1)
    kafka.delete(topic)
    kafka.topic()
    job = job.killed()
    with pytest.raises(ConfigError, match=topic):
        step_until(job, lambda: False)
    close(job)


@pytest.mark.parametrize("named", ["topics", "partitions"])
def test_a_topic_that_is_not_read_any_more_is_not_called_deleted(
    kafka: KafkaServer, world: World, named: str
) -> None:
    kept, left_out = kafka.topic(), kafka.topic()
    for topic in (kept, left_out):
        kafka.write(topic, "a")
    made = source(kafka, kept, left_out).build()
    job = job_of(world, made)
    step_until(job, lambda: len(job.emitted) == 2)
    checkpoint = job.checkpoint(1)
    close(job)
    fewer = source(kafka, kept)
    if named == "partitions":
        fewer = source(kafka).set_partitions({KafkaTopicPartition(kept, 0)})
    less = SourceReaderOperator(fewer.build())
    job = SourceJob(world, lambda: less, 1, checkpoint)
    with pytest.raises(ConfigError, match=f"{left_out}-0 were read up to") as refused:
        step_until(job, lambda: False)
    assert "Name them again" in refused.value.remedy
    close(job)


def test_one_deleted_topic_of_a_pattern_is_called_deleted(kafka: KafkaServer, world: World) -> None:
    kept, deleted = kafka.topic(), kafka.topic()
    for topic in (kept, deleted):
        kafka.write(topic, "a")
    job = job_of(world, source(kafka).set_topic_pattern(f"{kept}|{deleted}").build())
    step_until(job, lambda: len(job.emitted) == 2)
    job.checkpoint(1)
    kafka.delete(deleted)
    job = job.killed()
    with pytest.raises(ConfigError, match=f"{deleted}-0 are gone: their topic was"):
        step_until(job, lambda: False)
    close(job)


def test_a_record_that_cannot_be_read_is_named(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    kafka.write(topic, ["1", "x"])
    job = job_of(world, bounded(kafka, topic).set_value_only_deserializer(JsonSchema()).build())
    with pytest.raises(BadRecord, match=f"record 1 of partition {topic}-0 cannot be read") as bad:
        step_until(job, lambda: False)
    assert "JsonSchema" in bad.value.where
    close(job)


def test_records_that_cannot_be_read_are_counted_or_told_with_their_place(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    kafka.write(topic, ["1", "x", "[" * 100_000, "4"])
    json = bounded(kafka, topic).set_value_only_deserializer(JsonSchema())
    assert read(world, json.on_malformed("skip")) == [1, 4]
    letters: list[DeadLetter] = []
    job = job_of(world, json.on_malformed(OutputTag[DeadLetter]("bad")).build())
    job.readers[0].out.emit_side = lambda tag, batch: letters.extend(batch.values)
    job.run_to_end()
    close(job)
    assert job.emitted == [1, 4]
    assert [letter.raw for letter in letters] == [b"x", b"[" * 100_000]
    assert letters[0].where == f"partition {topic}-0, record 1" and letters[0].why


def test_topics_and_partitions_that_are_missing_are_refused(kafka: KafkaServer) -> None:
    with pytest.raises(ConfigError, match="no topic 'nowhere'"):
        source(kafka, "nowhere").build().check()
    missing = {KafkaTopicPartition(kafka.topic(2), 2)}
    with pytest.raises(ConfigError, match=r"no partition topic-\d+-2"):
        source(kafka).set_partitions(missing).build().check()


def test_a_request_is_not_repeated_once_the_job_is_over(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = source(kafka, kafka.topic()).build()
    finder = PartitionFinder(made.subscription, made.properties, EARLIEST, None)
    finder.close()
    tries = list[int]()

    def without_leader(*_: object, **__: object) -> None:
        tries.append(1)
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    monkeypatch.setattr(AdminClient, "list_offsets", without_leader)
    with pytest.raises(StorageFailed, match="offsets of partitions could not be read"):
        finder.find((), first=True)
    assert tries == [1]
