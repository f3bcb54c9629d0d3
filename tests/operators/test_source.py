"""The source operator and its coordinator: readers, splits, event time."""

import datetime
import decimal
from pathlib import Path

import pytest

from flinkformat.row import Row
from tests.operators.source_job import SourceJob
from tests.operators.world import TURNS_MAX, FakeCoordinatorContext, Hosted, World
from tidegate.api import ship
from tidegate.api.operator import Polled
from tidegate.api.watermarks import TimestampAssigner, WatermarkStrategy
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.files.file_source import FileSource
from tidegate.connectors.generator import NumberSequenceSource
from tidegate.errors import GraphError
from tidegate.model.duration import Duration, Instant
from tidegate.model.elements import OperatorEvent, Watermark
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.operators.sources.source_coordinator import (
    AssignmentTracker,
    NoMoreSplits,
    SourceCoordinator,
    SplitsAssigned,
    SplitsWanted,
)
from tidegate.typeinfo.types import TypeInformation, Types

TYPED = [
    (Types.STRING(), "a"),
    (Types.BYTE(), 1),
    (Types.BOOLEAN(), True),
    (Types.SHORT(), 1),
    (Types.INT(), 1),
    (Types.LONG(), 1),
    (Types.FLOAT(), 0.5),
    (Types.DOUBLE(), 0.5),
    (Types.CHAR(), "a"),
    (Types.BIG_INT(), 1),
    (Types.BIG_DEC(), decimal.Decimal(1)),
    (Types.INSTANT(), Instant(1, 0)),
    (Types.SQL_DATE(), datetime.date(2026, 1, 2)),
    (Types.SQL_TIME(), datetime.time(1, 2)),
    (
        Types.SQL_TIMESTAMP(),
        datetime.datetime.fromisoformat("2026-01-02"),
    ),
    (Types.PICKLED_BYTE_ARRAY(), {1}),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [1]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a"),
    (Types.BASIC_ARRAY(Types.SHORT()), [1]),
    (Types.OBJECT_ARRAY(Types.INT()), [1]),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}),
    (Types.LIST(Types.INT()), [1]),
    (Types.TUPLE([Types.INT(), Types.STRING()]), (1, "a")),
    (Types.ROW([Types.SHORT(), Types.BYTE()]), Row(f0=1, f1=2)),
    (Types.ROW_NAMED(["n"], [Types.INT()]), Row(n=1)),
]
"""A value of each type."""

WANTED = OperatorEvent(SplitsWanted())


class Manual:
    """A source whose enumerator does what the test says."""

    bounded = True
    produced_type = None

    def __init__(self) -> None:
        self.calls: list[object] = []

    def enumerator(self, context: object, restored: bytes | None) -> "Manual":
        self.context = context
        self.calls.append(("enumerator", restored))
        return self

    def start(self) -> None:
        self.calls.append("start")

    def split_requested(self, subtask: int) -> None:
        self.calls.append(("wanted", subtask))

    def add_back(self, subtask: int, splits: list[object]) -> None:
        self.calls.append(("back", subtask, splits))

    def reader_ready(self, subtask: int) -> None:
        self.calls.append(("ready", subtask))

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        return b"state"

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self.calls.append(("complete", checkpoint))

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def manual(world: World) -> tuple[Manual, SourceCoordinator, FakeCoordinatorContext]:
    source = Manual()
    context = FakeCoordinatorContext(world, 2)
    coordinator = SourceCoordinator(source, context, "manual")
    coordinator.start(None, None)
    source.calls.clear()
    return source, coordinator, context


def test_a_reader_that_asks_too_early_is_heard_once_it_is_ready(manual: tuple) -> None:
    source, coordinator, _ = manual
    coordinator.on_event(0, WANTED)
    assert source.calls == []
    coordinator.subtask_ready(0)
    assert source.calls == [("ready", 0), ("wanted", 0)]


def test_splits_and_the_end_of_them_go_to_their_reader(manual: tuple) -> None:
    source, coordinator, context = manual
    coordinator.subtask_ready(1)
    source.context.assign(1, ["a", "b"])
    source.context.no_more_splits(1)
    (_, assigned), (_, ended) = context.sent
    assert [subtask for subtask, _ in context.sent] == [1, 1]
    assert isinstance(assigned.payload, SplitsAssigned) and len(assigned.payload.splits) == 2
    assert ended.payload == NoMoreSplits()


def test_a_reader_that_is_not_ready_cannot_be_given_splits(manual: tuple) -> None:
    source, _, _ = manual
    with pytest.raises(GraphError, match="reader 0, which is not ready"):
        source.context.assign(0, ["a"])


def test_no_more_splits_is_kept_for_a_reader_that_is_not_ready(manual: tuple) -> None:
    source, coordinator, context = manual
    source.context.no_more_splits(0)
    assert not context.sent
    coordinator.subtask_ready(0)
    assert [event.payload for _, event in context.sent] == [NoMoreSplits()]


def test_a_reset_reader_gives_back_what_came_after_its_checkpoint(manual: tuple) -> None:
    source, coordinator, _ = manual
    coordinator.subtask_ready(0)
    source.context.assign(0, ["a"])
    coordinator.snapshot(CheckpointId(1))
    source.context.assign(0, ["b"])
    coordinator.snapshot(CheckpointId(2))
    source.context.assign(0, ["c"])
    coordinator.on_complete(CheckpointId(1))
    source.calls.clear()
    coordinator.subtask_reset(0, CheckpointId(1))
    assert source.calls == [("back", 0, ["b", "c"])]


def test_without_a_checkpoint_a_reset_reader_gives_back_all(manual: tuple) -> None:
    source, coordinator, _ = manual
    coordinator.subtask_ready(0)
    source.context.assign(0, ["a"])
    coordinator.snapshot(CheckpointId(1))
    source.context.assign(0, ["b"])
    source.calls.clear()
    coordinator.subtask_reset(0, None)
    assert source.calls == [("back", 0, ["a", "b"])]


def test_the_tracker_forgets_what_can_be_restored() -> None:
    tracker = AssignmentTracker()
    tracker.assigned(0, ["a"])
    tracker.cut(CheckpointId(1))
    tracker.forget(CheckpointId(1))
    assert tracker.take_back(0, None) == []


@pytest.mark.feature("F144")
def test_the_enumerator_is_told_of_completed_checkpoints(manual: tuple) -> None:
    source, coordinator, _ = manual
    coordinator.on_complete(CheckpointId(3))
    assert source.calls == [("complete", 3)]


def test_the_enumerator_is_made_from_the_restored_state(world: World) -> None:
    source = Manual()
    coordinator = SourceCoordinator(source, FakeCoordinatorContext(world, 1), "manual")
    coordinator.start(CheckpointId(4), b"state")
    coordinator.close()
    assert source.calls == [("enumerator", b"state"), "start", "close"]


# --- event time ---

PAIRS = [("a", 5), ("b", 9), ("c", 7)]


class SecondField(TimestampAssigner[tuple[str, int]]):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


def timed(world: World, strategy: WatermarkStrategy, values: list[object]) -> Hosted:
    operator = SourceReaderOperator(CollectionSource(values), strategy, "timed")
    reader = Hosted(operator, world, settings=SlotSettings(rows=3, watermark_ms=200))
    coordinator = operator.coordinator(context := FakeCoordinatorContext(world, 1))
    coordinator.start(None, None)
    coordinator.subtask_ready(0)
    coordinator.on_event(0, WANTED)
    while context.sent:
        operator.on_event(context.sent.popleft()[1])
    return reader


@pytest.mark.parametrize("assigner", [SecondField(), lambda value, before: value[1]])
def test_records_get_their_timestamps(world: World, assigner: object) -> None:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(assigner)
    reader = timed(world, strategy, PAIRS)
    assert reader.poll() is Polled.MORE
    assert reader.out.stamps == [5, 9, 7]
    assert reader.out.watermarks == []


def test_watermarks_come_by_time_the_first_after_one_interval(world: World) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3))
    reader = timed(world, strategy.with_timestamp_assigner(SecondField()), PAIRS)
    reader.poll()
    assert reader.out.watermarks == []
    world.pass_time(200)
    reader.poll()
    assert reader.out.watermarks == [Watermark(9 - 3 - 1)]
    world.pass_time(200)
    reader.poll()
    assert len(reader.out.watermarks) == 1


def test_monotonous_timestamps_hold_back_one_millisecond(world: World) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    reader = timed(world, strategy.with_timestamp_assigner(SecondField()), PAIRS)
    reader.poll()
    world.pass_time(200)
    reader.poll()
    assert reader.out.watermarks == [Watermark(8)]


@pytest.mark.parametrize("kind", ["numbers", "collection", "files"])
def test_in_front_of_a_slow_step_a_source_emits_few_rows_at_once(
    world: World, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "lines.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(100)))
    source = {
        "numbers": NumberSequenceSource(0, 99),
        "collection": CollectionSource(list(range(100))),
        "files": FileSource.json(str(tmp_path)),
    }[kind]
    settings = SlotSettings(rows=20, arrow_rows=20)
    job = SourceJob(world, lambda: SourceReaderOperator(source), 1, settings=settings)
    out = job.readers[0].out
    sizes = []
    for rows_max in (2**31, 7, 1, 1_000):
        out.rows_max = rows_max
        before = len(job.emitted)
        for _ in range(TURNS_MAX):
            if len(job.emitted) == before:
                job.step(0)
        sizes.append(len(job.emitted) - before)
    assert sizes == [20, 7, 1, 20]


@pytest.mark.parametrize(("type_info", "value"), TYPED, ids=[str(each) for each, _ in TYPED])
def test_a_source_of_each_type_is_shipped_and_gives_its_values(
    world: World, type_info: TypeInformation, value: object
) -> None:
    source = CollectionSource([value])
    shipped = ship.dumps(SourceReaderOperator(source, None, "typed", type_info), name="typed")
    job = SourceJob(world, lambda: ship.loads(shipped, name="typed"), 1)
    job.run_to_end()
    assert job.emitted == [value]
