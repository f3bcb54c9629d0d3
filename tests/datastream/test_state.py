"""State in whole programs, on the local runtime, in one loop and on a clock that programs move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidegate import (
    CheckpointedFunction,
    CheckpointListener,
    Configuration,
    JobFailed,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueStateDescriptor,
)
from tidegate.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate import BroadcastState, DataStream, OperatorListState, RuntimeContext
    from tidegate.api.functions import SnapshotContext
    from tidegate.model.ids import CheckpointId


class Wall(SystemClock):
    """A wall's clock that stands still until somebody moves it; here that is the job's function."""

    now_ms = 1_000_000

    def wall_ms(self) -> int:
        return Wall.now_ms


@pytest.fixture(autouse=True)
def wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tidegate.minicluster.in_process.SystemClock", Wall)
    monkeypatch.setattr(Wall, "now_ms", Wall.now_ms)
    yield


def local(settings: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict(
        {"tidegate.local.in-process": "true", **(settings or {})}
    )
    return StreamExecutionEnvironment.local(1, configuration=configuration)


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


class FirstSeen(KeyedProcessFunction[Any, str]):
    """Each id once a second; a number lets so many milliseconds pass."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        name, pause_ms = value
        Wall.now_ms += pause_ms
        if name and self.seen.value() is None:
            self.seen.update(True)
            yield name


@pytest.mark.feature("F258")
def test_an_id_is_new_again_when_its_time_is_over() -> None:
    """Program 9."""
    rows = [("x", 0), ("y", 0), ("x", 0), ("", 2_000), ("x", 0)]
    ids = local().from_collection(rows).key_by(lambda row: row[0])
    assert collected(ids.process(FirstSeen())) == ["x", "y", "x"]


class Cache(KeyedProcessFunction[Any, str]):
    """Whether each get finds what was put."""

    def __init__(self, update_type: StateTtlConfig.UpdateType) -> None:
        self.update_type = update_type

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.seconds(2)).set_update_type(self.update_type)
        descriptor = ValueStateDescriptor("cached", Types.STRING(), ttl=ttl.build())
        self.cached = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        command, pause_ms = value
        Wall.now_ms += pause_ms
        if command == "put":
            self.cached.update("it")
        else:
            yield "miss" if self.cached.value() is None else "hit"


@pytest.mark.feature("F258")
@pytest.mark.parametrize(
    ("update_type", "found"),
    [
        (StateTtlConfig.UpdateType.OnReadAndWrite, ["hit", "hit", "miss"]),
        (StateTtlConfig.UpdateType.OnCreateAndWrite, ["hit", "miss", "miss"]),
    ],
)
def test_a_cache_forgets_what_is_not_used(
    update_type: StateTtlConfig.UpdateType, found: list[str]
) -> None:
    """Program 19."""
    rows = [("put", 0), ("get", 1_200), ("get", 1_200), ("get", 3_000)]
    commands = local().from_collection(rows).key_by(lambda row: "one key")
    assert collected(commands.process(Cache(update_type))) == found


class FailingOnce(
    KeyedProcessFunction[int, "tuple[object, object]"], CheckpointedFunction, CheckpointListener
):
    """Puts a value and fails once a checkpoint holds it; then looks for it just before and at the
    end of its time.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.seconds(60)).build()
        self.held = runtime_context.get_state(ValueStateDescriptor("held", Types.LONG(), ttl=ttl))
        self.attempt = runtime_context.get_attempt_number()
        self.put = self.completed = self.looked = False
        self.saved: set[CheckpointId] = set()

    def snapshot_state(self, context: SnapshotContext) -> None:
        if self.put:
            self.saved.add(context.checkpoint)

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self.completed = self.completed or checkpoint_id in self.saved

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[object, object]]:
        if self.attempt == 0:
            if not self.put:
                self.held.update(7)
                self.put = True
            assert not self.completed, "as planned"
        elif not self.looked:
            self.looked = True
            Wall.now_ms += 59_999
            before = self.held.value()
            Wall.now_ms += 1
            yield before, self.held.value()


@pytest.mark.feature("F258")
def test_what_is_restored_is_as_old_as_it_was() -> None:
    env = local(
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "10 ms",
        }
    ).enable_checkpointing(20)
    rows = env.generate(lambda n: n, rate=500.0).key_by(lambda n: 0, Types.LONG())
    stream = rows.process(FailingOnce()).uid("failing")
    assert stream.execute_and_collect(limit=1) == [(7, None)]


class KeepsAll(
    MapFunction[int, "tuple[list[int], list[int], dict[str, int]]"], CheckpointedFunction
):
    """Operator state of each kind."""

    def open(self, runtime_context: RuntimeContext) -> None:
        union = OperatorStateDescriptor("union", Types.LONG(), RedistributionMode.UNION)
        self.split: OperatorListState[int] = runtime_context.get_operator_list_state(
            OperatorStateDescriptor("split", Types.LONG())
        )
        self.union: OperatorListState[int] = runtime_context.get_operator_list_state(union)
        self.rules: BroadcastState[str, int] = runtime_context.get_broadcast_state(
            MapStateDescriptor("rules", Types.STRING(), Types.LONG())
        )

    def snapshot_state(self, context: SnapshotContext) -> None:
        """All is in state already."""

    def map(self, value: int) -> tuple[list[int], list[int], dict[str, int]]:
        self.split.add(value)
        self.union.add(-value)
        self.rules.put("last", value)
        return self.split.get(), self.union.get(), dict(self.rules.items())


def test_functions_have_operator_state_of_each_kind() -> None:
    found = collected(local().from_collection([1, 2]).map(KeepsAll()))
    assert found == [([1], [-1], {"last": 1}), ([1, 2], [-1, -2], {"last": 2})]


class ReadsInOpen(KeyedProcessFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.seconds(1)).build()
        runtime_context.get_state(ValueStateDescriptor("early", ttl=ttl)).value()

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        return [value]


class AsksTwice(KeyedProcessFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("twice", Types.LONG()))
        runtime_context.get_map_state(MapStateDescriptor("twice", Types.LONG(), Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        return [value]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (ReadsInOpen(), ["without a current key", "Read and write keyed state only"]),
        (AsksTwice(), ["'twice' is asked for as MapState", "ValueState", "operator 'Mine'"]),
    ],
)
def test_a_wrong_use_of_state_fails_the_job_and_says_why(
    function: KeyedProcessFunction[int, int], says: list[str]
) -> None:
    env = local()
    env.from_collection([1]).key_by(lambda n: n).process(function).name("Mine").print()
    with pytest.raises(JobFailed) as raised:
        env.execute()
    for each in says:
        assert each in str(raised.value)
