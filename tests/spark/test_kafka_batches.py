"""A topic's history in a batch on Spark, then the topic live, as one run over both."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.kafka import KafkaServer
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import kill_slot, until, wait_completed
from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    SimpleStringSchema,
)

pytestmark = pytest.mark.slow

HISTORY, ALL, KEYS = 600, 1_000, 7


class Sums(KeyedProcessFunction[int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        total = (self.total.value() or 0) + value
        self.total.update(total)
        yield json.dumps([value, total])


def sums(
    env: StreamExecutionEnvironment, kafka: KafkaServer, topics: tuple[str, str], *, live: bool
) -> None:
    numbers, out = topics
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_topics(numbers)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
    )
    if not live:
        source = source.set_bounded(KafkaOffsetsInitializer.latest())
    schema = KafkaRecordSerializationSchema.builder().set_topic(out)
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(out)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )
    texts = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "numbers")
    keyed = texts.uid("numbers").map(int, Types.LONG()).uid("ints").key_by(lambda n: n % KEYS)
    keyed.process(Sums(), Types.STRING()).uid("sums").sink_to(sink).uid("topic")


def test_a_batch_reads_what_has_come_since_the_one_before(jobs: Jobs, kafka: KafkaServer) -> None:
    topics = kafka.topic(3), kafka.topic(2)
    savepoint = None
    for last in (HISTORY, ALL):
        kafka.write(topics[0], range(1 if savepoint is None else HISTORY + 1, last + 1))
        env = jobs.env(2, **({} if savepoint is None else {RESTORE_PATH: savepoint}))
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        sums(env.end_with_savepoint(jobs.folder / "savepoints"), kafka, topics, live=False)
        savepoint = env.execute("batch").get_savepoint()
        found = [json.loads(value)[0] for value in kafka.values(topics[1])]
        assert sorted(found) == list(range(1, last + 1))


@pytest.mark.feature("F303")
def test_a_live_job_reads_a_topic_on_where_a_batch_has_ended(
    jobs: Jobs, local_jobs: Jobs, kafka: KafkaServer
) -> None:
    topics = kafka.topic(3), kafka.topic(2)
    kafka.write(topics[0], range(1, HISTORY + 1))
    env = jobs.env(2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).end_with_savepoint(jobs.folder / "savepoints")
    sums(env, kafka, topics, live=False)
    savepoint = env.execute("history").get_savepoint()
    assert savepoint is not None
    assert len(kafka.values(topics[1])) == HISTORY
    live = local_jobs.checkpointed(3, 100, **{"execution.state-recovery.path": savepoint})
    sums(live, kafka, topics, live=True)
    client = local_jobs.start(live, "live")
    kafka.write(topics[0], range(HISTORY + 1, ALL - 100))
    wait_completed(client, 2)
    kill_slot(client, 0)
    kafka.write(topics[0], range(ALL - 100, ALL + 1))
    until(lambda: len(kafka.values(topics[1])) >= ALL, "all sums are there")
    client.cancel().result(60)
    found = [json.loads(value) for value in kafka.values(topics[1])]
    assert sorted(number for number, _ in found) == list(range(1, ALL + 1))
    for key in range(KEYS):
        of_key = sorted((total, number) for number, total in found if number % KEYS == key)
        before = 0
        for total, number in of_key:
            assert total == before + number
            before = total
