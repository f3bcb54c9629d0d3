"""What Kafka's source and sink are told, and what they refuse, without a broker."""

import builtins
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from tests.operators.world import Hosted, World
from tidegate import ConfigError, Row, StreamExecutionEnvironment, Types
from tidegate.api import ship
from tidegate.connectors import (
    ByteArraySchema,
    DeliveryGuarantee,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    JsonSchema,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
    KafkaTopicSelector,
    SimpleStringSchema,
)
from tidegate.connectors.kafka import cluster
from tidegate.connectors.kafka.enumerator.dealing import EnumeratorState, KafkaEnumerator
from tidegate.connectors.kafka.enumerator.partition_finder import PartitionFinder
from tidegate.connectors.kafka.offsets import KafkaSplit, Subscription
from tidegate.connectors.kafka.transactions import (
    TransactionIds,
    TransactionName,
    connection_settings,
)
from tidegate.connectors.kafka.writer import Sending
from tidegate.errors import BadRecord, FormatError, StorageFailed
from tidegate.model.elements import MIN_TIMESTAMP_MS, RowBatch
from tidegate.model.ids import CheckpointId
from tidegate.operators.sinks.sink import SinkOperator

NOBODY = "127.0.0.1:1"
STATE_BEFORE_THE_MOVE = b"ctidegate.connectors.kafka.enumerator\nEnumeratorState\n."
"""A reference as a pickle of the state had it while the enumerator was one file."""


def test_positions_of_older_checkpoints_are_found_under_the_name_that_they_had() -> None:
    assert pickle.loads(STATE_BEFORE_THE_MOVE)().begun is False


def source() -> KafkaSourceBuilder:
    schema = SimpleStringSchema()
    return KafkaSource.builder().set_bootstrap_servers(NOBODY).set_value_only_deserializer(schema)


def records() -> KafkaRecordSerializationSchema:
    schema = KafkaRecordSerializationSchema.builder()
    return schema.set_topic("out").set_value_serialization_schema(SimpleStringSchema()).build()


def sink() -> KafkaSinkBuilder:
    return KafkaSink.builder().set_bootstrap_servers(NOBODY).set_record_serializer(records())


def test_a_source_reads_from_the_beginning_without_an_end_unless_told_otherwise() -> None:
    made = source().set_topics("a", "b").build()
    assert not made.bounded
    assert made.produced_type == Types.STRING()
    assert made.start == KafkaOffsetsInitializer.earliest()
    assert made.discovery_ms == 300_000
    assert made.properties["isolation.level"] == "read_uncommitted"
    assert made.properties["enable.auto.commit"] == "false"


def test_a_bounded_source_does_not_look_for_new_partitions() -> None:
    made = source().set_topics("a").set_bounded(KafkaOffsetsInitializer.latest()).build()
    assert made.bounded
    assert made.discovery_ms == 0


def test_partitions_are_looked_for_by_a_client_with_all_properties() -> None:
    made = source().set_topics("a").set_property("broker.address.family", "v5").build()
    finder = PartitionFinder(made.subscription, made.properties, made.start, None)
    with pytest.raises(ConfigError, match=r"broker\.address\.family"):
        finder.find((), first=True)


def test_a_certificate_that_is_not_verified_is_refused_where_transactions_are_ended() -> None:
    unverified = {"bootstrap.servers": NOBODY, "enable.ssl.certificate.verification": "false"}
    with pytest.raises(ConfigError, match=r"'enable\.ssl\.certificate\.verification' cannot be"):
        connection_settings(unverified, "operator 'out'")


def test_offsets_are_committed_only_to_a_group_that_was_named() -> None:
    assert not source().set_topics("a").build().commits
    assert source().set_topics("a").set_group_id("g").build().commits
    silent = source().set_topics("a").set_group_id("g")
    assert not silent.set_property("commit.offsets.on.checkpoint", "false").build().commits


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: source().build(), "No topics or partitions to read are set"),
        (lambda: source().set_topics().build(), "no topic among"),
        (lambda: source().set_topics("a").set_topic_pattern("b").build(), "more than once"),
        (lambda: source().set_topic_pattern("(").build(), "not a regular expression"),
        (lambda: KafkaSource.builder().set_topics("a").build(), "No server|Nothing says how"),
        (lambda: source().set_bootstrap_servers("").set_topics("a").build(), "No server is given"),
        (
            lambda: (
                source()
                .set_topics("a")
                .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
                .build()
            ),
            "of no group",
        ),
        (
            lambda: (
                source()
                .set_topics("a")
                .set_bounded(KafkaOffsetsInitializer.committed_offsets())
                .build()
            ),
            "ends at committed offsets, but of no group",
        ),
        (
            lambda: source().set_topics("a").set_property("enable.auto.commit", "true").build(),
            "'enable.auto.commit' is 'true'",
        ),
        (
            lambda: (
                source()
                .set_topics("a")
                .set_property("partition.discovery.interval.ms", "soon")
                .build()
            ),
            "'soon', which is not a number",
        ),
        (
            lambda: (
                source().set_topics("a").set_property("commit.offsets.on.checkpoint", "yes").build()
            ),
            "'commit.offsets.on.checkpoint' is 'yes'",
        ),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "The timestamp is -1"),
        (
            lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("a", 0): -5}),
            "a-0': -5",
        ),
        (lambda: sink().set_property("transactional.id", "x").build(), "each transaction gets"),
        (
            lambda: sink().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build(),
            "none is set",
        ),
        (
            lambda: (
                sink()
                .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .set_transactional_id_prefix("ü" * 32_001)
                .build()
            ),
            "64002 bytes",
        ),
        (
            lambda: (
                sink()
                .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                .set_property("enable.idempotence", "false")
                .build()
            ),
            "'enable.idempotence' is 'false'",
        ),
        (
            lambda: sink().set_property("transaction.timeout.ms", "1 h").build(),
            "'1 h', which is not a number",
        ),
        (lambda: KafkaSink.builder().set_bootstrap_servers(NOBODY).build(), "become records"),
        (lambda: KafkaRecordSerializationSchema.builder().build(), "No topic for the records"),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_topic("a").build(),
            "how values become bytes",
        ),
        (
            lambda: (
                KafkaRecordSerializationSchema.builder()
                .set_topic("a")
                .set_topic_selector(str)
                .build()
            ),
            "Both a topic and a topic selector",
        ),
        (lambda: SimpleStringSchema("utf-9"), "'utf-9', which Python does not know"),
        (lambda: JsonRowSerializationSchema.builder().build(), "type of the rows is None"),
    ],
)
def test_what_cannot_be_is_refused_while_the_program_is_built(
    build: Callable[[], object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        build()
    assert refused.value.where and refused.value.remedy


@pytest.mark.parametrize("client", ["confluent_kafka", "kafka"])
def test_a_missing_client_is_named_with_the_command_that_installs_it(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = cluster.find_spec
    monkeypatch.setattr(cluster, "find_spec", lambda name: None if name == client else there(name))
    with pytest.raises(ConfigError, match=f"there is no module {client}") as refused:
        source().set_topics("a").build()
    assert "pip install 'tidegate[kafka]'" in refused.value.remedy
    with pytest.raises(ConfigError, match="no module"):
        sink().build()


def test_the_clients_are_loaded_only_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args: object) -> object:
        assert name.partition(".")[0] not in ("confluent_kafka", "kafka"), name
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    source().set_topics("a").build()
    sink().build()


@pytest.mark.parametrize(
    "program",
    [
        lambda env: env.from_source(source().set_topics("a").build()).print(),
        lambda env: env.from_collection(["a"]).sink_to(sink().build()),
    ],
)
def test_no_broker_is_said_before_anything_runs(
    program: Callable[[StreamExecutionEnvironment], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_S", 0.3)
    env = StreamExecutionEnvironment.local(1)
    program(env)
    with pytest.raises(ConfigError, match=r"No server of Kafka has answered within 0\.3 s") as no:
        env.execute("nobody there")
    assert NOBODY in no.value.where


def test_an_unknown_property_is_named_before_anything_runs() -> None:
    made = source().set_topics("a").set_property("auto.offset.reste", "latest").build()
    with pytest.raises(ConfigError, match=r"auto\.offset\.reste"):
        made.check()


def test_an_element_that_fits_no_record_is_told_with_operator_and_field(world: World) -> None:
    step = Hosted(SinkOperator(sink().build()), world, name="to kafka")
    with pytest.raises(BadRecord, match="7 is not text") as bad:
        step.rows(7)
    assert "operator 'to kafka', in the value schema" in bad.value.where
    step.operator.close()


class ByLength(KafkaTopicSelector):
    def apply(self, data: str) -> str:
        return f"words-{len(data)}"


@pytest.mark.parametrize("selector", [ByLength(), lambda text: f"words-{len(text)}"])
def test_elements_go_where_a_selector_says(selector: object) -> None:
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(selector)
        .set_key_serialization_schema(JsonSchema())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    assert schema.serialize("abc") == ("words-3", b'"abc"', b"abc")


def test_schemas_bring_values_there_and_back() -> None:
    assert SimpleStringSchema("latin-1").serialize("ü") == b"\xfc"
    assert SimpleStringSchema("latin-1").deserialize(b"\xfc") == "ü"
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"\x00")) == b"\x00"
    assert JsonSchema().serialize({"a": [1, None]}) == b'{"a":[1,null]}'
    assert JsonSchema().deserialize(b'{"a":[1,null]}') == {"a": [1, None]}


ROW = Types.ROW_NAMED(
    ["id", "day", "tags", "inner"],
    [
        Types.LONG(),
        Types.SQL_DATE(),
        Types.LIST(Types.STRING()),
        Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
    ],
)


def test_json_rows_go_there_and_back_also_pickled() -> None:
    writes = JsonRowSerializationSchema.builder().with_type_info(ROW).build()
    reads = JsonRowDeserializationSchema.builder().type_info(ROW).build()
    row = Row(id=1, day=date(2024, 2, 29), tags=["a"], inner=Row(x=0.5))
    data = b'{"id":1,"day":"2024-02-29","tags":["a"],"inner":{"x":0.5}}'
    assert writes.serialize(row) == data
    assert reads.deserialize(data) == row
    assert pickle.loads(pickle.dumps(reads)).deserialize(data) == row
    assert reads.produced_type == ROW


def test_json_rows_take_missing_fields_as_none_unless_told_otherwise() -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(ROW)
    assert builder.build().deserialize(b'{"id":1,"more":2}') == Row(
        id=1, day=None, tags=None, inner=None
    )
    with pytest.raises(ValueError, match="day"):
        builder.fail_on_missing_field().build().deserialize(b'{"id":1}')


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": ["integer", "null"]},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}},
        "raw": {"type": "string", "contentEncoding": "base64"},
    },
    "definitions": {"tag": {"type": "string"}},
}


def test_a_json_schema_says_what_the_rows_are() -> None:
    reads = JsonRowDeserializationSchema.builder().json_schema(json.dumps(JSON_SCHEMA)).build()
    names = ["id", "price", "at", "tags", "raw"]
    types = [
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(Types.STRING()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ]
    assert reads.produced_type == Types.ROW_NAMED(names, types)
    data = b'{"id":null,"price":1.5,"at":"2024-02-29T10:00:00","tags":["a"],"raw":"AAE="}'
    at = datetime(2024, 2, 29, 10)  # noqa: DTZ001
    assert reads.deserialize(data) == Row(
        id=None, price=Decimal("1.5"), at=at, tags=["a"], raw=b"\x00\x01"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ("{", "#"),
        ("[]", "#"),
        ('{"type":"object"}', "#"),
        ('{"type":"object","properties":{"a":{"type":"null"}}}', "#/properties/a"),
        ('{"type":"object","properties":{"a":{"type":["string","null","integer"]}}}', "#/prop"),
        ('{"type":"object","properties":{"a":{"$ref":"other.json"}}}', "#/properties/a"),
        ('{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}', "#/properties/a"),
        ('{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}', "#/properties/a"),
        ('{"type":"string"}', "JsonRowDeserializationSchema"),
        ('{"type":"object","properties":"none"}', "#"),
        ('{"oneOf":["string"]}', "#/oneOf"),
        ('{"anyOf":{"type":"string"}}', "#/anyOf"),
        ("[" * 100_000, "#"),
        ('{"items":' * 800 + "{}" + "}" * 800, "#"),
        ('{"type":"array","items":' * 600 + "{}" + "}" * 600, "#"),
    ],
)
def test_what_is_no_schema_of_rows_is_refused_with_its_place(schema: str, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        JsonRowDeserializationSchema.builder().json_schema(schema).build()
    assert place in refused.value.where


@pytest.mark.parametrize("data", [b"{", b'{"id":"x"}', b"[1]", b'{"id":1,"day":"tomorrow"}'])
def test_what_is_no_such_row_is_bad_or_passed_over(data: bytes) -> None:
    builder = JsonRowDeserializationSchema.builder().type_info(ROW)
    with pytest.raises(ValueError):
        builder.build().deserialize(data)
    assert builder.ignore_parse_errors().build().deserialize(data) is None


def test_an_event_time_before_1970_is_refused_not_replaced_by_the_time_of_day() -> None:
    sending = Sending({"bootstrap.servers": NOBODY, "log_level": "0"}, "operator 'out'")
    with pytest.raises(BadRecord, match="event time of an element is -1 ms") as refused:
        sending.send(RowBatch(["old"], [-1]), 0, records())
    assert refused.value.where == "operator 'out', element 'old'"
    assert sending.send(RowBatch(["none"], [MIN_TIMESTAMP_MS]), 0, records()) == 1
    sending.producer.purge()


def test_a_committable_names_a_transaction_and_nothing_secret() -> None:
    name = TransactionName("p-0-7", 4_000, 2)
    assert name.to_bytes() == b'{"v": 1, "id": "p-0-7", "producer": 4000, "epoch": 2}'
    assert TransactionName.from_bytes(name.to_bytes()) == name
    known = replace(name, coordinator=3)
    again = TransactionName.from_bytes(known.to_bytes())
    assert again.coordinator == 3 and again == name


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"[" * 10_000, b'{"v": 2, "id": "p"}', b"\xff"]
)
def test_what_is_no_committable_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="not a committable of a Kafka sink"):
        TransactionName.from_bytes(data)


ATTEMPTS = ("1-9", "2-2", "2-3", "2-4", "3-0")


def test_a_restore_clears_what_is_above_its_checkpoint_and_of_nobody_else() -> None:
    ids = TransactionIds("p.q", 1, "00abcdef", (1, 2))
    there = ["p.q-1-7", "p.q-1-8", "p.q-4-9", "p.q-0-9", "pxq-1-9", "p.q-1-9-x", "p.q-check"]
    there = [*there, *(f"{each}-12345678-3-4" for each in there)]
    left = ["p.q-1-8", "p.q-4-9"]
    left += [f"{each}-12345678-3-4" for each in left]
    assert ids.left_behind(there, parallelism=3, restored=7) == left
    assert ids.left_behind(there, parallelism=1, restored=7) == []


def test_an_attempt_clears_what_earlier_ones_of_its_job_left_and_no_later_ones() -> None:
    ids = TransactionIds("p", 1, "00abcdef", (2, 3))
    assert ids.of(8) == "p-1-8-00abcdef-2-3"
    there = [f"p-{subtask}-8-00abcdef-{attempt}" for subtask in (1, 3) for attempt in ATTEMPTS]
    earlier = [each for each in there if each.endswith(("-1-9", "-2-2"))]
    assert ids.left_behind(there, parallelism=2, restored=7) == earlier


def test_the_second_client_reaches_the_cluster_as_the_first_one_does() -> None:
    given = {
        "bootstrap.servers": "a:1, b:2",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "user",
        "sasl.password": "secret",
        "linger.ms": "5",
    }
    assert connection_settings(given, "KafkaSink") == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "user",
        "sasl_plain_password": "secret",
    }
    with pytest.raises(ConfigError, match=r"'ssl\.keystore\.location' cannot be used"):
        connection_settings({**given, "ssl.keystore.location": "/k"}, "KafkaSink")


def test_properties_reach_the_client() -> None:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers("broker:9092")
        .set_topics("orders")
        .set_value_only_deserializer(SimpleStringSchema())
        .set_client_id_prefix("orders-job")
        .set_properties({"fetch.min.bytes": "7", "isolation.level": "read_committed"})
        .build()
    )
    given = dict(source.properties)
    assert given["client.id"] == "orders-job"
    assert given["fetch.min.bytes"] == "7"
    assert given["isolation.level"] == "read_committed"


def test_a_truth_value_is_no_decimal() -> None:
    builder = JsonRowDeserializationSchema.builder()
    builder = builder.type_info(Types.ROW_NAMED(["price"], [Types.BIG_DEC()]))
    with pytest.raises(ValueError, match="price"):
        builder.build().deserialize(b'{"price":true}')
    assert builder.ignore_parse_errors().build().deserialize(b'{"price":true}') is None


def test_a_cluster_that_finds_no_new_partitions_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks, answers = list[Callable[[], None]](), ["found", "away", "away", "found", "away"]

    def find(known: object, *, first: bool) -> list[KafkaSplit]:
        if answers.pop(0) == "away":
            raise StorageFailed("no broker answers", where="KafkaSource of 'numbers'")
        return []

    context: Any = SimpleNamespace(
        run_blocking=lambda call, then: then(call()),
        call_later=lambda after_ms, call: looks.append(call),
    )
    finder: Any = SimpleNamespace(find=find, bounded=False)
    with caplog.at_level("INFO"):
        KafkaEnumerator(context, finder, 1_000, None).start()
        while answers:
            looks.pop()()
    away = "KafkaSource of 'numbers': new partitions are looked for again later: no broker answers"
    assert caplog.messages == [away, "new partitions of Kafka are found again", away]


def test_a_sink_in_transactions_loses_what_the_brokers_abort() -> None:
    builder = sink().set_property("transaction.timeout.ms", "60000")
    assert builder.build().commits_within_ms is None
    builder = builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    assert builder.set_transactional_id_prefix("orders").build().commits_within_ms == 60_000


def test_a_pattern_leaves_kafkas_own_topics_out_and_names_take_them() -> None:
    own = ("__consumer_offsets", "__transaction_state", "__share_group_state")
    pattern = Subscription(pattern=".*")
    assert [pattern.includes(topic) for topic in own] == [False] * 3
    assert pattern.includes("orders") and pattern.includes("__orders")
    assert Subscription(topics=own).includes("__consumer_offsets")


def restored_enumerator(subscription: Subscription, state: EnumeratorState) -> EnumeratorState:
    """State of an enumerator that was restored, and has looked at a cluster without news."""
    context: Any = SimpleNamespace(
        run_blocking=lambda call, then: then(call()), call_later=lambda after_ms, call: None
    )
    finder: Any = SimpleNamespace(subscription=subscription, bounded=False)
    data = ship.dumps(state, name="kafka enumerator")
    enumerator = KafkaEnumerator(context, finder, 0, data)
    return ship.restored(EnumeratorState, enumerator.snapshot(CheckpointId(1)), name="kafka")


def test_kafkas_own_topics_of_an_older_snapshot_are_dropped_where_a_pattern_leaves_them_out() -> (
    None
):
    orders, own = KafkaTopicPartition("orders", 0), KafkaTopicPartition("__consumer_offsets", 3)
    state = EnumeratorState({orders, own}, [KafkaSplit(own, 7), KafkaSplit(orders, 7)], begun=True)
    dropped = EnumeratorState({orders}, [KafkaSplit(orders, 7)], begun=True)
    assert restored_enumerator(Subscription(pattern=".*"), state) == dropped
    assert restored_enumerator(Subscription(topics=("orders", own.topic)), state) == state
