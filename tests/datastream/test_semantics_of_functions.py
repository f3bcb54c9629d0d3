"""What PyFlink promises of functions, their state and their life, and of results."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    CoMapFunction,
    CompletableFuture,
    Configuration,
    DataStream,
    ExecutionConfig,
    GraphError,
    JobClient,
    JobFailed,
    JobID,
    JobStatus,
    KeyedProcessFunction,
    KeyedStateStore,
    ListState,
    ListStateDescriptor,
    MapFunction,
    MapState,
    MapStateDescriptor,
    MetricGroup,
    ReduceFunction,
    ReducingState,
    ReducingStateDescriptor,
    Row,
    RuntimeContext,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueState,
    ValueStateDescriptor,
)
from tidegate.testing import OperatorHarness

pytestmark = pytest.mark.slow


def by_first(event: Any) -> Any:
    return event[0]


# State


class Adding(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Every(KeyedProcessFunction[Any, Any]):
    """Shows what every kind of state of the key holds before it adds the record; None clears."""

    def open(self, runtime_context: RuntimeContext) -> None:
        store: KeyedStateStore = runtime_context
        adding, mean = Adding(), Mean()
        reducing = ReducingStateDescriptor("reduced", adding, Types.LONG())
        aggregating = AggregatingStateDescriptor("mean", mean, Types.PICKLED_BYTE_ARRAY())
        assert reducing.get_reduce_function() is adding
        assert aggregating.get_agg_function() is mean
        assert reducing.get_name() == "reduced"
        self.value: ValueState[int] = store.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list: ListState[int] = store.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map: MapState[str, int] = store.get_map_state(
            MapStateDescriptor("map", Types.STRING(), Types.LONG())
        )
        self.reduced: ReducingState[int] = store.get_reducing_state(reducing)
        self.mean: AggregatingState[int, float] = store.get_aggregating_state(aggregating)
        again = store.get_state(ValueStateDescriptor("value", Types.LONG()))
        assert again is self.value

    def process_element(
        self, value: tuple[str, int | None], ctx: KeyedProcessFunction.Context
    ) -> Iterator[object]:
        _, number = value
        yield (
            self.value.value(),
            list(self.list.get()),
            sorted(self.map.items()),
            self.map.is_empty(),
            "a" in self.map,
            self.map.get("a"),
            self.reduced.get(),
            self.mean.get(),
        )
        if number is None:
            for state in (self.value, self.list, self.map, self.reduced, self.mean):
                state.clear()
            self.value.update(None)  # type: ignore[arg-type]
            return
        self.value.update(number)
        self.list.add(number)
        self.map["a"] = number
        self.reduced.add(number)
        self.mean.add(number)


ABSENT = (None, [], [], True, False, None, None, None)


def every(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by(by_first, Types.STRING()).process(Every())


def test_absent_state_is_none_or_empty_and_state_belongs_to_its_key() -> None:
    with OperatorHarness(every) as harness:
        harness.process_all([("x", 2), ("x", 4), ("y", 1), ("x", None), ("x", 1)])
        assert harness.take() == [
            ABSENT,
            (2, [2], [("a", 2)], False, True, 2, 2, 2.0),
            ABSENT,
            (4, [2, 4], [("a", 4)], False, True, 4, 6, 3.0),
            ABSENT,
        ]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 2)])
def test_every_kind_of_state_goes_on_at_any_parallelism(before: int, after: int) -> None:
    keys = [f"k{n}" for n in range(12)]
    with OperatorHarness(every, parallelism=before) as harness:
        harness.process_all([(key, n) for n in (2, 4) for key in keys])
        snapshot = harness.snapshot()
    with OperatorHarness(every, parallelism=after, restore=snapshot) as harness:
        harness.process_all([(key, None) for key in keys])
        assert harness.take() == [(4, [2, 4], [("a", 4)], False, True, 4, 6, 3.0)] * len(keys)


class Lists(KeyedProcessFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = runtime_context.get_map_state(
            MapStateDescriptor("map", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[object]:
        self.list.add_all([1, 2])
        self.list.add(3)
        self.map.put_all({"a": 1, "b": 2})
        self.map.put("c", 3)
        self.map.remove("never there")
        del self.map["a"]
        yield (
            list(self.list.get()),
            list(self.map.keys()),
            list(self.map.values()),
            [self.map[key] for key in self.map],
            self.map.contains("a"),
        )
        self.list.update([])
        self.map.remove("b")
        self.map.remove("c")
        yield list(self.list.get()), self.map.is_empty()


def test_lists_keep_their_order_and_maps_work_as_dicts_do() -> None:
    with OperatorHarness(lambda s: s.key_by(by_first).process(Lists())) as harness:
        harness.process("x")
        assert harness.take() == [
            ([1, 2, 3], ["b", "c"], [2, 3], [2, 3], False),
            ([], True),
        ]


@pytest.mark.parametrize(
    ("update_type", "reads_renew"),
    [
        (StateTtlConfig.UpdateType.OnCreateAndWrite, False),
        (StateTtlConfig.UpdateType.OnReadAndWrite, True),
    ],
)
def test_state_with_a_time_to_live_expires_in_processing_time_and_its_age_survives(
    update_type: StateTtlConfig.UpdateType, reads_renew: bool
) -> None:
    ttl = StateTtlConfig.new_builder(Time.seconds(10)).set_update_type(update_type).build()
    assert (ttl.get_ttl(), ttl.get_update_type(), ttl.is_enabled()) == (
        Time.seconds(10),
        update_type,
        True,
    )

    class Peeks(KeyedProcessFunction[Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            descriptor = ValueStateDescriptor("value", Types.STRING())
            descriptor.enable_time_to_live(ttl)
            self.state = runtime_context.get_state(descriptor)

        def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Any:
            yield self.state.value()
            if value == "put":
                self.state.update("held")

    def step(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by(lambda value: 0).process(Peeks())

    with OperatorHarness(step) as harness:
        harness.process("put")
        harness.advance_time(9_999)
        harness.process("peek")
        snapshot = harness.snapshot()
        harness.advance_time(1)
        harness.process("peek")
        assert harness.take() == [None, "held", "held" if reads_renew else None]
    with OperatorHarness(step, restore=snapshot, start_ms=10_000) as harness:
        harness.process("peek")
        assert harness.take() == ["held" if reads_renew else None]


# What a function is told, and its life


class Telling(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        metrics: MetricGroup = runtime_context.get_metrics_group()
        metrics.gauge("seen", lambda: 3)
        for metric in (metrics.counter("records"), metrics.meter("rate")):
            assert metric.get_count() == 0
        metrics.distribution("sizes").update(5)
        self.told = (
            runtime_context.get_task_name(),
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_number_of_parallel_subtasks(),
            runtime_context.get_max_number_of_parallel_subtasks(),
            runtime_context.get_attempt_number(),
            runtime_context.get_job_parameter("color", "red"),
            runtime_context.get_job_parameter("size", "small"),
        )

    def map(self, value: Any) -> Any:
        return self.told


def test_a_function_is_told_where_it_runs() -> None:
    env = StreamExecutionEnvironment.local()
    config: ExecutionConfig = env.set_max_parallelism(16).get_config()
    config.set_global_job_parameters({"color": "blue"})
    assert config.get_global_job_parameters() == {"color": "blue"}
    mapped = env.from_collection([1]).map(Telling()).name("tell").disable_chaining()
    assert mapped.execute_and_collect(limit=1) == [("tell", 0, 1, 16, 0, "blue", "small")]


class Living(MapFunction[int, int]):
    """Writes down its life; fails at a record, where it is told to."""

    def __init__(self, diary: Path, fails_at: int = -1) -> None:
        self._diary = diary
        self._fails_at = fails_at
        self.seen = 0

    def _note(self, what: str) -> None:
        with self._diary.open("a") as diary:
            diary.write(f"{what}\n")

    def open(self, runtime_context: RuntimeContext) -> None:
        self._note("open")

    def map(self, value: int) -> int:
        self.seen += 1
        if value == self._fails_at:
            raise ValueError(f"no {value}")
        self._note(str(value))
        return value

    def close(self) -> None:
        self._note("close")


def test_a_function_is_opened_and_closed_once_and_is_a_copy(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local()
    function = Living(tmp_path / "diary")
    assert env.from_collection([1, 2]).map(function).execute_and_collect(limit=9) == [1, 2]
    assert (tmp_path / "diary").read_text().split() == ["open", "1", "2", "close"]
    assert function.seen == 0


def test_a_function_that_fails_is_closed_and_its_error_reaches_the_caller(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local()
    env.from_collection([1, 2]).map(Living(tmp_path / "diary", fails_at=2)).print()
    with pytest.raises(JobFailed, match="ValueError: no 2"):
        env.execute()
    assert (tmp_path / "diary").read_text().split() == ["open", "1", "close"]
    with pytest.raises(GraphError, match="No operators defined"):
        env.execute()  # the steps are gone, also of a job that failed


def test_a_function_is_closed_where_its_job_is_cancelled(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.local()
    endless = env.generate(lambda n: n, rate=1_000).map(Living(tmp_path / "diary"))
    with endless.execute_and_collect() as results:
        assert next(results) == 0
        client = results.get_job_client()
    with pytest.raises(StopIteration):
        results.next()
    status: CompletableFuture[JobStatus] = client.get_job_status()
    assert status.result() is JobStatus.CANCELED
    assert (tmp_path / "diary").read_text().split()[-1] == "close"


@pytest.mark.parametrize("status", JobStatus)
def test_a_status_tells_whether_a_job_is_over(status: JobStatus) -> None:
    over = {"FINISHED", "FAILED", "CANCELED"}
    assert status.is_globally_terminal_state() == (status.name in over)
    assert status.is_terminal_state() == (status.name in over | {"SUSPENDED"})


def test_a_finished_job_tells_its_id_and_how_long_it_took() -> None:
    env = StreamExecutionEnvironment.local()
    env.from_collection([1]).map(str).add_sink(lambda value: None)
    client: JobClient = env.execute_async("named")
    done: CompletableFuture[Any] = client.get_job_execution_result()
    result = done.result()
    job: JobID = client.get_job_id()
    assert result.get_job_id() == job
    assert str(job) == str(result.get_job_id())
    assert 0 < result.get_net_runtime() < 60_000
    assert done.done()
    assert not done.cancelled()
    assert not done.cancel()
    assert done.exception() is None


# Types, streams and results


class Two(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return "one", value

    def map2(self, value: Any) -> Any:
        return "two", value


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
NAMED = Types.ROW_NAMED(["a", "n"], [Types.STRING(), Types.LONG()])


def test_a_declared_type_converts_at_the_output_and_an_undeclared_one_does_not() -> None:
    env = StreamExecutionEnvironment.local()
    pairs = env.from_collection([("x", 1)])
    rows = pairs.map(lambda pair: pair, NAMED)
    back = rows.map(lambda row: Row(*row), PAIR)
    plain = back.map(lambda pair: Row(*pair))
    assert (rows.get_type(), back.get_type()) == (NAMED, PAIR)
    assert rows.execute_and_collect(limit=1) == [Row(a="x", n=1)]
    assert back.execute_and_collect(limit=1) == [("x", 1)]
    assert plain.execute_and_collect(limit=1) == [Row("x", 1)]


KEEPING: dict[str, Callable[[DataStream[Any]], DataStream[Any]]] = {
    "filter": lambda s: s.filter(lambda pair: True),
    "union": lambda s: s.union(s),
    "reduce": lambda s: s.key_by(by_first).reduce(lambda a, b: b),
    "sum": lambda s: s.key_by(by_first).sum(1),
    "max_by": lambda s: s.key_by(by_first).max_by(1),
    "rebalance": lambda s: s.rebalance(),
    "shuffle": lambda s: s.shuffle(),
}


@pytest.mark.parametrize("step", KEEPING.values(), ids=KEEPING)
def test_what_makes_no_new_records_keeps_their_type(
    step: Callable[[DataStream[Any]], DataStream[Any]],
) -> None:
    env = StreamExecutionEnvironment.local()
    assert step(env.from_collection([("x", 1)], PAIR)).get_type() == PAIR


def test_uniting_a_stream_with_itself_doubles_every_record() -> None:
    env = StreamExecutionEnvironment.local()
    numbers = env.from_collection([1, 2, 3])
    assert sorted(numbers.union(numbers).execute_and_collect(limit=9)) == [1, 1, 2, 2, 3, 3]
    longer = env.from_collection(range(50))
    assert len(numbers.union(longer, longer).execute_and_collect(limit=900)) == 103


def test_two_streams_share_a_step_each_by_its_own_function() -> None:
    with OperatorHarness(lambda s, t: s.connect(t).map(Two()), inputs=2) as harness:
        harness.process(1, timestamp=7)
        harness.process("b", source=1)
        assert harness.output == [(("one", 1), 7), (("two", "b"), None)]


def test_a_branch_that_changes_a_record_does_not_change_it_for_another() -> None:
    def changed(record: list[int]) -> list[int]:
        record.append(9)
        return record

    env = StreamExecutionEnvironment.local()
    records = env.from_collection([1]).map(lambda n: [n])
    both = records.map(changed).union(records.map(lambda record: record))
    assert sorted(both.execute_and_collect(limit=9)) == [[1], [1, 9]]


def words(lines: Iterable[str]) -> list[str]:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "1", "pipeline.name": "words"})
    )
    assert (env.get_parallelism(), env.get_configuration().get_string("pipeline.name", "")) == (
        1,
        "words",
    )
    return env.from_collection(list(lines)).flat_map(str.split).execute_and_collect(limit=100)


def test_order_is_kept_at_parallelism_one() -> None:
    assert words(["to be", "or not", "", "to be"]) == ["to", "be", "or", "not", "to", "be"]
