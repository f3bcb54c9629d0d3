"""What sinks promise from end to end, as `explain` and the plan tell it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tidegate import (
    Configuration,
    Prepared,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Types,
)
from tidegate.connectors import (
    DeliveryGuarantee,
    FileSink,
    JdbcConnectionOptions,
    JdbcSink,
    KafkaRecordSerializationSchema,
    KafkaSink,
    SimpleStringSchema,
)
from tidegate.graph.guarantees import EndToEnd, guarantees
from tidegate.model.ids import OperatorId
from tidegate.model.settings import CheckpointingMode, CheckpointSettings, JobSettings, SlotSettings
from tidegate.model.topology import Delivery, OperatorInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidegate.api.sink import WriterContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId

ONCE, AT_LEAST, NONE = (
    DeliveryGuarantee.EXACTLY_ONCE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.NONE,
)
KEPT = CheckpointSettings(interval_ms=100, directory="/checkpoints")


def promised(
    delivery: Delivery, checkpoints: CheckpointSettings, *, batch: bool = False
) -> EndToEnd:
    sink = OperatorInfo(OperatorId(b"s" * 16), "Sink: totals", delivery=delivery)
    source = OperatorInfo(OperatorId(b"r" * 16), "Source: orders")
    settings = JobSettings(checkpoints=checkpoints, slot=SlotSettings(final_only=batch))
    [found] = guarantees([source, sink], settings)
    assert found.sink == "Sink: totals"
    return found


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_a_sink_gives_what_it_has_where_the_job_takes_nothing_from_it(
    guarantee: DeliveryGuarantee,
) -> None:
    found = promised(Delivery(guarantee), KEPT)
    assert (found.guarantee, found.why, found.provided) == (guarantee, (), ())


def test_conditions_of_the_sink_and_of_the_driver_are_told() -> None:
    found = promised(Delivery(ONCE, ("readers wait",)), replace(KEPT, directory=None))
    assert found.provided[0] == "readers wait"
    assert "execution.checkpointing.dir" in found.provided[1] and len(found.provided) == 2


def test_a_job_that_takes_no_checkpoints_promises_nothing() -> None:
    found = promised(Delivery(ONCE, ("readers wait",)), replace(KEPT, interval_ms=None))
    assert found.guarantee is NONE and found.provided == ()
    assert "execution.checkpointing.interval is not set" in found.why[0]


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_a_batch_takes_nothing_from_a_sink_though_it_takes_no_checkpoints(
    guarantee: DeliveryGuarantee,
) -> None:
    nowhere = replace(KEPT, interval_ms=None, directory=None)
    found = promised(Delivery(guarantee, ("readers wait",)), nowhere, batch=True)
    assert (found.guarantee, found.why, found.provided) == (guarantee, (), ("readers wait",))


@pytest.mark.parametrize("own, why", [(ONCE, 1), (AT_LEAST, 0)])
def test_barriers_that_do_not_wait_leave_at_least_once(own: DeliveryGuarantee, why: int) -> None:
    found = promised(Delivery(own), replace(KEPT, mode=CheckpointingMode.AT_LEAST_ONCE))
    assert found.guarantee is AT_LEAST and len(found.why) == why


class Counting:
    """A sink of one's own that says nothing of itself, and commits nothing."""

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> Counting:
        return self

    def committer(self) -> None:
        return

    def write(self, batch: Batch) -> None: ...

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None: ...


class Idempotent(Counting):
    """It says what it knows better."""

    delivery = Delivery(ONCE, ("keys do not change",))


def sinks(folder: Path) -> list[tuple[Any, DeliveryGuarantee, str]]:
    as_text = KafkaRecordSerializationSchema.builder().set_topic("out")
    schema = as_text.set_value_serialization_schema(SimpleStringSchema()).build()
    kafka = KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(schema)
    return [
        (FileSink.json(f"{folder}/out"), ONCE, ""),
        (Counting(), AT_LEAST, ""),
        (Idempotent(), ONCE, "keys do not change"),
        (kafka.build(), NONE, ""),
        (kafka.set_delivery_guarantee(AT_LEAST).build(), AT_LEAST, ""),
        (
            kafka.set_delivery_guarantee(ONCE).set_transactional_id_prefix("p").build(),
            ONCE,
            "read_committed",
        ),
        (
            JdbcSink.sink(
                "INSERT INTO t VALUES (?)",
                Types.ROW_NAMED(["n"], [Types.LONG()]),
                JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
                .with_url(f"jdbc:sqlite:{folder}/t")
                .build(),
            ),
            AT_LEAST,
            "upsert",
        ),
    ]


def test_each_sink_of_ours_and_of_users_says_what_it_promises(tmp_path: Path) -> None:
    settings = Configuration.from_dict({"execution.checkpointing.dir": str(tmp_path / "kept")})
    env = StreamExecutionEnvironment.local(1, configuration=settings)
    env.enable_checkpointing(100)
    numbers = env.from_sequence(1, 3)
    wanted = sinks(tmp_path)
    for sink, _, _ in wanted:
        numbers.sink_to(sink)
    numbers.print()
    numbers.add_sink(print)
    told = json.loads(env.get_execution_plan())["guarantees"]
    last = [("at-least-once", "")] * 2
    expected = [*((guarantee.value, text) for _, guarantee, text in wanted), *last]
    assert [each["guarantee"] for each in told] == [guarantee for guarantee, _ in expected]
    for each, (_, text) in zip(told, expected, strict=True):
        assert text in " ".join(each["provided"]) and bool(text) is bool(each["provided"])


def test_explain_tells_it_below_the_steps() -> None:
    env = StreamExecutionEnvironment.local(1)
    env.from_sequence(1, 3).add_sink(print).name("to the screen")
    lines = env.explain().splitlines()
    at = lines.index("Sinks, from end to end")
    assert lines[at + 1] == "     - Sink: to the screen: none"
    assert lines[at + 2].startswith("         since the job takes no checkpoints")
    assert len(lines) == at + 3


def test_explain_says_of_a_batch_that_it_commits_at_its_end() -> None:
    env = StreamExecutionEnvironment.local(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_sequence(1, 3).key_by(lambda n: n % 2).reduce(max).add_sink(print).name(
        "to the screen"
    )
    lines = env.explain().splitlines()
    assert "4 tasks, a batch: no checkpoints, sinks commit at its end" in lines[0]
    assert lines[-1] == "     - Sink: to the screen: at-least-once"
