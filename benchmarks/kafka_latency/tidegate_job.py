"""The job on Tidegate: a count per key, one read and one update of its state a record.

Runs until it is ended.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.workload import environment, job_arguments
from tidegate import Configuration, KeyedProcessFunction, Types, ValueStateDescriptor
from tidegate.connectors import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    SimpleStringSchema,
)

GUARANTEES = {each.value: each for each in DeliveryGuarantee}


def main() -> int:
    parser = job_arguments(__doc__ or "", checkpoint_ms=100)
    parser.add_argument("--guarantee", choices=list(GUARANTEES), default="exactly-once")
    parser.add_argument("--set", action="append", default=[], help="an option as key=value")
    for name in ("servers", "source", "sink", "folder"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    env = environment(args, Path(args.folder) / "checkpoints")
    settings = Configuration()
    for each in args.set:
        key, _, value = each.partition("=")
        settings.set_string(key, value)
    env.configure(settings)
    env.from_source(source(args), None, "source").map(
        lambda text: tuple(text.split(",")), output_type=Types.TUPLE([Types.STRING()] * 2)
    ).key_by(lambda pair: pair[0], key_type=Types.STRING()).process(
        Count(), output_type=Types.STRING()
    ).sink_to(sink(args))
    env.execute("kafka latency")
    return 0


def source(args: argparse.Namespace) -> KafkaSource:
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(args.servers)
        .set_topics(args.source)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )


def sink(args: argparse.Namespace) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(args.sink)
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(args.servers)
        .set_delivery_guarantee(GUARANTEES[args.guarantee])
        .set_transactional_id_prefix(args.sink)
        .set_property("linger.ms", "0")
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )


class Count(KeyedProcessFunction):
    """A running count of the record's key; its stamp is passed on."""

    def open(self, runtime_context) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return [f"{value[0]},{count},{value[1]}"]


if __name__ == "__main__":
    sys.exit(main())
