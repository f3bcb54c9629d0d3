"""Kafka's sink against a real broker: each record once, whatever dies at whatever step."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka.cluster import ClusterMetadata
from kafka.errors import CoordinatorLoadInProgressError
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.metadata import MetadataResponse

from tests.e2e.kafka import KafkaServer
from tests.e2e.watch import until
from tests.operators.world import JOB, Hosted, Snapshot, World
from tidegate.connectors import (
    DeliveryGuarantee,
    JsonSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
)
from tidegate.connectors.kafka.transactions import (
    ONGOING,
    TransactionName,
    Transactions,
    connection_settings,
)
from tidegate.errors import CommitFailed, ConfigError, StorageFailed
from tidegate.model.elements import RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.operators.sinks.sink import SinkOperator

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]

EXACTLY_ONCE, AT_LEAST_ONCE = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE


@pytest.fixture(autouse=True)
def connections_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that is killed leaves no socket open; the one that plays it here would."""
    made: list[Transactions] = []
    make = Transactions.__init__

    def noted(self: Transactions, settings: Mapping[str, object], where: str) -> None:
        make(self, settings, where)
        made.append(self)

    monkeypatch.setattr(Transactions, "__init__", noted)
    yield
    for each in made:
        each.close()


def sink(
    kafka: KafkaServer, topic: str, guarantee: DeliveryGuarantee = EXACTLY_ONCE
) -> KafkaSinkBuilder:
    """Numbers as text, under a prefix that is the topic's."""
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(JsonSchema())
        .build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(schema)
    return builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix(f"to-{topic}")


def opened(world: World, made: KafkaSink, before: Snapshot | None = None, **options: int) -> Hosted:
    """A subtask of the sink, restored from what a subtask had in a checkpoint: its attempt 1."""
    options.setdefault("attempt", 0 if before is None else 1)
    subtask = options.get("subtask", 0)
    lists = {} if before is None else before.redistributed(options.get("parallelism", 1))[subtask]
    checkpoint = options.pop("restored", 0 if before is None else 1)
    restored = CheckpointId(checkpoint) if checkpoint else None
    step = Hosted(SinkOperator(made), world, restored=restored, lists=lists, **options)
    world.settle()
    return step


def killed(world: World) -> None:
    """The process of all that runs is gone: nothing is closed, nothing is sent any more."""
    world.forget()


def transactions(kafka: KafkaServer, made: KafkaSink) -> Transactions:
    return Transactions(connection_settings(made.properties, "test"), "test")


def id_of(topic: str, number: int, attempt: int = 0) -> str:
    """The transactional id of subtask 0."""
    return f"to-{topic}-0-{number}-{JOB[:8]}-1-{attempt}"


def state_of(kafka: KafkaServer, made: KafkaSink, transactional_id: str) -> str:
    asked = transactions(kafka, made)
    try:
        return asked.name_of(transactional_id)[1]
    finally:
        asked.close()


def test_records_come_into_sight_with_their_checkpoint(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    step = opened(world, sink(kafka, topic).build())
    step.rows(1, 2)
    step.snapshot(1)
    assert kafka.values(topic, committed=False) == ["1", "2"]
    step.rows(3)
    assert kafka.values(topic) == []
    step.complete(1)
    assert kafka.values(topic) == ["1", "2"]
    step.operator.close()


def test_keys_and_timestamps_come_along(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    builder = sink(kafka, topic)
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(JsonSchema())
        .set_value_serialization_schema(JsonSchema())
    )
    step = opened(world, builder.set_record_serializer(schema.build()).build())
    step.process(RowBatch([7], [123_456]))
    step.snapshot(1)
    step.complete(1)
    message = kafka.messages(topic)[0]
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"7", b"7", 123_456)
    step.operator.close()


def test_a_checkpoint_without_records_has_no_transaction(kafka: KafkaServer, world: World) -> None:
    step = opened(world, sink(kafka, kafka.topic()).build())
    assert step.snapshot(1).lists == [{"SinkCommittables": [], "SinkWriterState": []}]
    step.complete(1)
    step.operator.close()


def test_a_transaction_that_barriers_have_passed_is_not_begun(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    step = opened(world, made)
    step.rows(1)
    for checkpoint in (1, 2, 3):
        step.snapshot(checkpoint)
    step.rows(2)
    until(lambda: kafka.values(topic, committed=False) == ["1", "2"], "both have arrived")
    states = [state_of(kafka, made, id_of(topic, number)) for number in (2, 4)]
    assert states == ["Empty", ONGOING]
    step.operator.close()


def test_without_checkpoints_all_is_committed_at_the_end(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    step = Hosted(SinkOperator(sink(kafka, topic).build()), world, checkpointing=False)
    step.rows(1, 2)
    step.finish()
    assert kafka.values(topic) == ["1", "2"]
    step.operator.close()


def test_records_of_many_checkpoints_come_in_their_order(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    step = opened(world, sink(kafka, topic).build())
    for checkpoint in (1, 2, 7, 8):
        step.rows(*range(10 * checkpoint, 10 * checkpoint + 10))
        step.snapshot(checkpoint)
    step.complete(8)
    expected = [
        n for checkpoint in (1, 2, 7, 8) for n in range(10 * checkpoint, 10 * checkpoint + 10)
    ]
    assert list(map(int, kafka.values(topic))) == expected
    step.operator.close()


def test_a_crash_between_completion_and_commit_is_repaired_by_the_restore(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    first = opened(world, made)
    first.rows(1)
    before = first.snapshot(1)
    killed(world)
    second = opened(world, made, before)
    assert kafka.values(topic) == ["1"]
    second.operator.close()


def test_a_crash_between_commit_and_confirmation_commits_again_without_harm(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    first = opened(world, made)
    first.rows(1)
    before = first.snapshot(1)
    first.complete(1)
    first.rows(2)
    killed(world)
    for attempt in (1, 2):
        second = opened(world, made, before, attempt=attempt)
        second.rows(2)
        killed(world)
    last = opened(world, made, before, attempt=3)
    last.rows(2)
    last.snapshot(2)
    last.complete(2)
    assert kafka.values(topic) == ["1", "2"]
    last.operator.close()


@pytest.mark.feature("F286")
def test_transactions_that_no_checkpoint_has_are_aborted_at_the_start(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    first = opened(world, made)
    first.rows(1)
    before = first.snapshot(1)
    first.rows(2)
    first.snapshot(2)
    first.rows(3)
    killed(world)
    assert kafka.values(topic, committed=False) == ["1", "2", "3"]
    assert state_of(kafka, made, id_of(topic, 3)) == ONGOING
    second = opened(world, made, before)
    for number in (2, 3):
        assert state_of(kafka, made, id_of(topic, number)) != ONGOING
    # Nothing holds readers back any more: what is plain comes into sight behind it.
    kafka.write(topic, ["plain"])
    assert kafka.values(topic) == ["1", "plain"]
    second.operator.close()


@pytest.mark.feature("F286")
def test_records_behind_a_barrier_that_came_while_a_restore_committed_hold_no_reader_back(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    first = opened(world, made)
    first.rows(1)
    before = first.snapshot(1)
    killed(world)
    options = {"lists": before.lists[0], "restored": CheckpointId(1), "attempt": 1}
    second = Hosted(SinkOperator(made), world, **options)
    cut = second.cut(2)
    assert cut.durable is not None
    world.wait_for(cut.durable)
    second.rows(2)
    until(lambda: kafka.values(topic, committed=False) == ["1", "2"], "the record has arrived")
    killed(world)
    third = opened(world, made, Snapshot([cut.lists]), restored=2, attempt=2)
    kafka.write(topic, ["plain"])
    assert kafka.values(topic) == ["1", "plain"]
    third.operator.close()


@pytest.mark.feature("F286")
def test_no_checkpoint_completes_ahead_of_the_abort_of_what_it_would_hide(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    first = opened(world, made)
    first.snapshot(1)
    first.rows(2)
    until(lambda: kafka.values(topic, committed=False) == ["2"], "the record has arrived")
    killed(world)
    second = Hosted(SinkOperator(made), world, restored=CheckpointId(1), attempt=1)
    cut = second.cut(2)
    assert cut.durable is not None
    world.wait_for(cut.durable)
    assert state_of(kafka, made, id_of(topic, 2)) != ONGOING
    assert second.cut(3).durable is None
    second.operator.close()


@pytest.mark.feature("F286")
def test_a_fresh_start_aborts_what_was_left_by_more_subtasks_and_no_others(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    left = [kafka.open_transaction(topic, f"to-{topic}-{n}-9", n) for n in range(4)]
    other = kafka.open_transaction(topic, f"to-{topic}x-0-9", "other")
    steps = [opened(world, made, subtask=n, parallelism=2) for n in range(2)]
    states = [state_of(kafka, made, f"to-{topic}-{n}-9") for n in range(4)]
    assert ONGOING not in states
    assert state_of(kafka, made, f"to-{topic}x-0-9") == ONGOING
    for step in steps:
        step.operator.close()
    other.abort_transaction(20)
    del left


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 1), (2, 3)])
def test_what_was_prepared_is_committed_at_another_parallelism(
    kafka: KafkaServer, world: World, old: int, new: int
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    before = Snapshot()
    for subtask in range(old):
        step = opened(world, made, subtask=subtask, parallelism=old)
        step.rows(subtask)
        before.lists += step.snapshot(1).lists
        step.rows("behind")
    killed(world)
    steps = [opened(world, made, before, subtask=n, parallelism=new) for n in range(new)]
    assert sorted(map(int, kafka.values(topic))) == list(range(old))
    for step in steps:
        step.operator.close()


def test_an_attempt_that_is_over_cannot_write_any_more(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    zombie = opened(world, made)
    zombie.rows(1)
    before = zombie.snapshot(1)
    zombie.rows("early")
    second = opened(world, made, before)
    second.rows(2)
    zombie.rows("late")
    with pytest.raises(StorageFailed, match="fenced"):
        zombie.snapshot(2)
    world.forget()
    second.snapshot(2)
    second.complete(2)
    assert kafka.values(topic) == ["1", "2"]
    second.operator.close()


def test_an_attempt_that_is_over_takes_no_transaction_from_the_next(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    first = opened(world, made)
    first.rows(1)
    before = first.snapshot(1)
    second = opened(world, made, before, attempt=2)
    second.rows(2)
    second.snapshot(2)
    # What a pool still had to do for an attempt that is over: it looks and opens late.
    opened(world, made, before, attempt=1)
    world.forget()
    second.complete(2)
    assert kafka.values(topic) == ["1", "2"]
    second.operator.close()


def test_a_job_that_is_cancelled_holds_no_reader_back(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    step = opened(world, made)
    step.rows(1)
    until(lambda: kafka.values(topic, committed=False) == ["1"], "the record has arrived")
    step.operator.close()
    until(lambda: state_of(kafka, made, id_of(topic, 1)) != ONGOING, "it was aborted")
    assert kafka.values(topic) == []


def test_a_transaction_that_the_broker_has_ended_is_told_as_lost(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).set_property("transaction.timeout.ms", "1000").build()
    first = opened(world, made)
    first.rows(1)
    before = first.snapshot(1)
    killed(world)
    until(lambda: state_of(kafka, made, id_of(topic, 1)) != ONGOING, "the timeout")
    with pytest.raises(CommitFailed, match=f"'{id_of(topic, 1)}'.*Its records are lost") as lost:
        opened(world, made, before)
    assert "transaction.timeout.ms" in str(lost.value) and lost.value.where == "KafkaSink"
    world.forget()


def test_a_transaction_that_is_over_before_its_checkpoint_fails_that(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    step = opened(world, made)
    step.rows(1)
    until(lambda: kafka.values(topic, committed=False) == ["1"], "the record has arrived")
    thief = transactions(kafka, made)
    thief.abort_all(id_of(topic, 1), 60_000)
    thief.close()
    with pytest.raises(StorageFailed, match=f"'{id_of(topic, 1)}' is not open any more"):
        step.snapshot(1)
    world.forget()


@pytest.mark.parametrize("known", [1, 99, None])
def test_a_transaction_is_committed_wherever_its_coordinator_was_thought_to_be(
    kafka: KafkaServer, known: int | None
) -> None:
    topic = kafka.topic()
    asked = transactions(kafka, sink(kafka, topic).build())
    kafka.open_transaction(topic, f"to-{topic}-0-1", "seen")
    name, state = asked.name_of(f"to-{topic}-0-1", coordinator=known)
    assert (name.coordinator, state) == (1, ONGOING)
    for _ in range(2):
        asked.commit(replace(name, coordinator=known))
    assert kafka.values(topic) == ["seen"]
    asked.close()


def test_a_coordinator_that_came_after_the_first_look_at_the_cluster_is_found(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.open_transaction(topic, f"to-{topic}-0-1", "seen")
    update, looks = ClusterMetadata.update_metadata, list[int]()

    def seen(self: ClusterMetadata, metadata: MetadataResponse) -> object:
        looks.append(metadata.brokers[0].node_id)
        if len(looks) == 1:
            metadata.brokers[0].node_id = 7  # as if it had been another one then
        return update(self, metadata)

    monkeypatch.setattr(ClusterMetadata, "update_metadata", seen)
    asked = transactions(kafka, sink(kafka, topic).build())
    name, state = asked.name_of(f"to-{topic}-0-1")
    assert (name.coordinator, state) == (1, ONGOING) and len(looks) > 1
    asked.close()


def test_what_is_closed_does_not_repeat_a_request(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = list[int]()

    def busy(*_: object) -> None:
        tries.append(1)
        raise CoordinatorLoadInProgressError

    monkeypatch.setattr(KafkaConnectionManager, "run", busy)
    asked = transactions(kafka, sink(kafka, kafka.topic()).build())
    asked.close()
    with pytest.raises(StorageFailed, match="A request on transactions has failed"):
        asked.name_of("any")
    assert tries == [1]


class Refusing(Producer):
    """A producer whose transactions cannot be begun."""

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE))


def test_a_transaction_that_cannot_be_begun_is_a_failure_of_kafka(
    kafka: KafkaServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.connectors.kafka.writer.Producer", Refusing)
    step = opened(world, sink(kafka, kafka.topic()).build())
    with pytest.raises(StorageFailed, match="Records could not be written to Kafka") as failed:
        step.rows(1)
    assert failed.value.where == "operator 'step'" and failed.value.remedy
    world.forget()


@pytest.mark.parametrize("text", ["aborted", "does not know it"])
def test_a_commit_that_is_not_possible_says_why(kafka: KafkaServer, text: str) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic).build()
    asked = transactions(kafka, made)
    producer = kafka.open_transaction(topic, f"to-{topic}-0-1", 1)
    name, _ = asked.name_of(f"to-{topic}-0-1")
    if text == "aborted":
        producer.abort_transaction(20)
    else:
        name = TransactionName(f"never-{topic}", name.producer_id, name.epoch)
    with pytest.raises(CommitFailed, match=text):
        asked.commit(name)
    asked.close()


def test_a_timeout_that_the_brokers_do_not_allow_is_refused(kafka: KafkaServer) -> None:
    made = sink(kafka, kafka.topic()).set_property("transaction.timeout.ms", "900001").build()
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms is 900001") as refused:
        made.check()
    assert "transaction.max.timeout.ms" in refused.value.remedy


def test_a_missing_topic_is_refused(kafka: KafkaServer) -> None:
    with pytest.raises(ConfigError, match="no topic 'nowhere'"):
        sink(kafka, "nowhere").build().check()
    sink(kafka, kafka.topic()).build().check()


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_a_full_producer_holds_the_writer_back(
    kafka: KafkaServer, world: World, guarantee: DeliveryGuarantee
) -> None:
    topic = kafka.topic()
    builder = sink(kafka, topic, guarantee).set_property("queue.buffering.max.messages", "50")
    step = opened(world, builder.build())
    step.rows(*range(1_000))
    step.snapshot(1)
    step.rows(*range(1_000, 1_200))
    step.finish()
    step.snapshot(2)
    step.complete(2)
    assert list(map(int, kafka.values(topic))) == list(range(1_200))
    step.operator.close()


def test_at_least_once_waits_for_the_records_ahead_of_the_barrier(
    kafka: KafkaServer, world: World
) -> None:
    topic = kafka.topic()
    made = sink(kafka, topic, AT_LEAST_ONCE).set_property("linger.ms", "500").build()
    first = opened(world, made)
    first.rows(1, 2)
    first.snapshot(1)
    assert kafka.values(topic) == ["1", "2"]
    first.rows(3)
    first.finish()
    killed(world)
    second = opened(world, made, Snapshot([{}]))
    second.rows(3)
    second.snapshot(2)
    assert kafka.values(topic) == ["1", "2", "3", "3"]
    second.operator.close()


def test_records_that_do_not_arrive_fail_the_checkpoint(kafka: KafkaServer, world: World) -> None:
    topic = kafka.topic()
    builder = sink(kafka, topic, AT_LEAST_ONCE).set_property("message.timeout.ms", "300")
    step = opened(world, builder.set_bootstrap_servers("127.0.0.1:1").build())
    step.rows(1)
    with pytest.raises(StorageFailed, match="could not be written to Kafka"):
        step.snapshot(1)
    world.forget()
