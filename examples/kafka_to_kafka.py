"""Numbers from one topic of Kafka, running sums to another, each exactly once.

Offsets, sums and transactions are one snapshot. Kill the process at any moment, and go on with
``--from latest``: a reader that reads committed records only sees each sum once. Needs a broker
with both topics, and ``pip install 'tidegate[kafka]'``:

    tidegate run -D execution.checkpointing.dir=checkpoints examples/kafka_to_kafka.py \\
        localhost:9092 numbers sums --fill --pause 0.005
    tidegate run -D execution.checkpointing.dir=checkpoints --from latest \\
        examples/kafka_to_kafka.py localhost:9092 numbers sums
"""

import argparse
import time

from tidegate import StreamExecutionEnvironment, Types
from tidegate.connectors import (
    DeliveryGuarantee,
    JsonSchema,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

NUMBERS = 3_000
KEYS = 10
PREFIX = "kafka-to-kafka"


def numbers_of(servers, topic):
    """A topic, up to what it holds when the job starts."""
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_group_id(PREFIX)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonSchema())
        .build()
    )


def sums_to(servers, topic):
    """A topic, in transactions that are committed with their checkpoints."""
    records = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(JsonSchema())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(PREFIX)
        .set_record_serializer(records)
        .build()
    )


def paired(number, pause_s):
    """A pair for a sum to begin with, after a rest."""
    time.sleep(pause_s)
    return number, number


def program(env, servers, numbers, sums, pause_s=0.0):
    """A pair for each number: it, and the sum of its key so far. pause_s: a rest at each number."""
    env.enable_checkpointing(200)
    totals = (
        env.from_source(numbers_of(servers, numbers), None, "numbers")
        .uid("numbers")
        .map(lambda number: paired(number, pause_s))
        .key_by(lambda pair: pair[0] % KEYS, Types.LONG())
        .reduce(lambda sum_before, pair: (pair[0], sum_before[1] + pair[1]))
        .uid("sums")
    )
    totals.sink_to(sums_to(servers, sums)).uid("topic")


def fill(servers, topic):
    """The numbers from 1 on, spread over the partitions of a topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for number in range(1, NUMBERS + 1):
        producer.produce(topic, str(number), key=str(number))
    producer.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("numbers", help="the topic to read")
    parser.add_argument("sums", help="the topic to write")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, to have time to kill it")
    parser.add_argument("--fill", action="store_true", help="write the numbers first")
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.servers, arguments.numbers)
    env = StreamExecutionEnvironment.get_execution_environment()
    program(env, arguments.servers, arguments.numbers, arguments.sums, arguments.pause)
    env.execute("kafka to kafka")


if __name__ == "__main__":
    main()
