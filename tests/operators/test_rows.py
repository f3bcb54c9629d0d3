"""map, filter, flat_map, process and reduce, row by row."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.operators.world import Hosted, World, arrow
from tidegate.api.functions import (
    CheckpointedFunction,
    CheckpointListener,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    SnapshotContext,
)
from tidegate.api.operator import Operator
from tidegate.api.state import OperatorStateDescriptor, ValueStateDescriptor
from tidegate.api.watermarks import WatermarkStrategy
from tidegate.errors import BadRecord, GraphError, UnsupportedKey, UserCodeFailed
from tidegate.model.elements import MIN_TIMESTAMP_MS, RowBatch, Watermark
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.operators.aggregates.reduce import ReduceOperator
from tidegate.operators.event_time.event_time import TimestampsOperator
from tidegate.operators.map import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    SinkFunctionOperator,
)
from tidegate.operators.process.process_functions import KeyedProcessOperator, ProcessOperator


def timestamps_by(assigner: Callable[..., int]) -> Operator:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    return TimestampsOperator(strategy)


def keyed(values: list[object], keys: list[object], stamps: list[int] | None = None) -> RowBatch:
    return RowBatch(values, stamps, keys, [0] * len(values))


def test_map_keeps_order_and_timestamps(world: World) -> None:
    step = Hosted(MapOperator(lambda v: v * 2), world)
    step.process(RowBatch([1, 2, 3], [10, 20, 30]))
    assert step.out.batches == [RowBatch([2, 4, 6], [10, 20, 30])]


def test_map_gives_arrow_rows_as_dicts(world: World) -> None:
    step = Hosted(MapOperator(lambda row: (row["a"], row["b"])), world)
    step.process(arrow({"a": [1, None], "b": ["x", "y"]}))
    assert step.out.values == [(1, "x"), (None, "y")]


def test_filter_keeps_rows_with_their_timestamps(world: World) -> None:
    step = Hosted(FilterOperator(lambda v: v % 2), world)
    step.process(RowBatch([1, 2, 3], [10, 20, 30]))
    assert step.out.batches == [RowBatch([1, 3], [10, 30])]


def test_filter_emits_nothing_where_no_row_passes(world: World) -> None:
    step = Hosted(FilterOperator(lambda v: False), world)
    step.rows(1, 2)
    assert step.out.batches == []


@pytest.mark.parametrize("results", [lambda v: [v, v], lambda v: iter((v, v)), lambda v: (v, v)])
def test_flat_map_takes_any_iterable(world: World, results: object) -> None:
    step = Hosted(FlatMapOperator(results), world)
    step.rows(1, 2)
    assert step.out.values == [1, 1, 2, 2]


def test_flat_map_takes_none_for_nothing_and_keeps_timestamps(world: World) -> None:
    step = Hosted(FlatMapOperator(lambda v: [v] * v if v else None), world)
    step.process(RowBatch([2, 0, 1], [10, 20, 30]))
    assert step.out.values == [2, 2, 1] and step.out.stamps == [10, 10, 30]


def test_a_flat_map_without_bound_waits_for_room(world: World) -> None:
    drawn = 0

    def endless(value: object) -> Iterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn

    step = Hosted(FlatMapOperator(endless), world, settings=SlotSettings(rows=8))
    step.out.has_room = False
    steps = step.operator.process(RowBatch(["x"]), 0, step.out)
    assert steps is not None
    for _ in range(4):
        assert next(steps) is None
    assert [len(batch) for batch in step.out.batches] == [1, 8, 16, 16]
    assert drawn == 1 + 8 + 16 + 16


class FailsAtThird:
    """A function of one value or of two that knows how often it was called."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, *values: int) -> int:
        self._calls += 1
        assert self._calls != 3
        return values[0]


@pytest.mark.parametrize(
    "make",
    [MapOperator, FilterOperator, SinkFunctionOperator, ReduceOperator, timestamps_by],
)
def test_a_failure_tells_the_place_of_its_row_among_equal_ones(
    world: World, make: Callable[[object], Operator]
) -> None:
    step = Hosted(make(FailsAtThird()), world)
    with pytest.raises(UserCodeFailed) as caught:
        step.process(keyed([7] * 5, ["a"] * 5))
    call = caught.value.call
    assert call is not None
    # The first row of a key is not reduced with another.
    assert (call.row, call.at) == (7, 3 if make is ReduceOperator else 2)


def test_a_function_that_raises_is_named_with_its_row_and_its_own_frames(world: World) -> None:
    def divide(value: int) -> float:
        return 1 / value

    step = Hosted(MapOperator(divide), world, name="ratio")
    with pytest.raises(UserCodeFailed) as caught:
        step.rows(1, 0, 2)
    error = caught.value
    assert "operator 'ratio' raised ZeroDivisionError: division by zero" in error.what
    assert error.where == "operator 'ratio', at the row 0"
    assert "return 1 / value" in error.trace
    assert "tidegate/operators" not in error.trace


def test_a_long_row_is_shortened_in_the_message(world: World) -> None:
    step = Hosted(MapOperator(lambda v: v.nothing), world)
    with pytest.raises(UserCodeFailed) as caught:
        step.rows("x" * 10_000)
    assert len(caught.value.where) < 300


def test_a_stop_iteration_in_a_map_is_a_failure_not_an_end(world: World) -> None:
    def broken(value: int) -> int:
        if value == 2:
            raise StopIteration
        return value

    for operator in (MapOperator(broken), FilterOperator(broken), FlatMapOperator(broken)):
        step = Hosted(operator, world)
        with pytest.raises(UserCodeFailed, match="StopIteration"):
            step.rows([1], 2, [3]) if isinstance(operator, FlatMapOperator) else step.rows(1, 2, 3)


def test_an_error_of_our_own_passes_through_user_code(world: World) -> None:
    def refuse(value: object) -> None:
        raise UnsupportedKey("no such key")

    step = Hosted(MapOperator(refuse), world)
    with pytest.raises(UnsupportedKey, match="no such key"):
        step.rows(1)


def test_what_is_no_function_is_refused_before_it_is_shipped() -> None:
    with pytest.raises(GraphError, match="neither callable"):
        MapOperator(42)


class Life(MapFunction[int, int]):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append(f"open {runtime_context.get_index_of_this_subtask()}")

    def map(self, value: int) -> int:
        self.calls.append(f"map {value}")
        return value

    def close(self) -> None:
        self.calls.append("close")


def test_a_function_is_opened_once_before_and_closed_once_after_its_rows(world: World) -> None:
    function = Life()
    step = Hosted(MapOperator(function), world, subtask=3, parallelism=4)
    step.rows(1, 2)
    step.operator.close()
    assert function.calls == ["open 3", "map 1", "map 2", "close"]


class Buffering(MapFunction[int, int], CheckpointedFunction, CheckpointListener):
    """Counts in operator state, and notes what it is told."""

    def __init__(self) -> None:
        self.count = 0
        self.told: list[object] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_operator_list_state(OperatorStateDescriptor("count"))
        self.count = sum(self.state.get())

    def map(self, value: int) -> int:
        self.count += 1
        return self.count

    def snapshot_state(self, context: SnapshotContext) -> None:
        self.told.append((context.checkpoint, context.triggered_ms))
        self.state.update([self.count])

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self.told.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self.told.append(("aborted", checkpoint_id))


@pytest.mark.feature("F102", "F103")
def test_a_function_is_asked_once_a_checkpoint_with_its_id_and_time(world: World) -> None:
    function = Buffering()
    step = Hosted(MapOperator(function), world)
    step.rows(1, 2)
    step.operator.snapshot(SnapshotContext(CheckpointId(7), triggered_ms=1_234))
    assert function.told == [(7, 1_234)]
    assert step.context.lists["count"] == [2]


def test_a_function_is_told_of_completed_and_aborted_checkpoints(world: World) -> None:
    function = Buffering()
    step = Hosted(MapOperator(function), world)
    step.operator.on_complete(CheckpointId(1))
    step.operator.on_aborted(CheckpointId(2))
    assert function.told == [("complete", 1), ("aborted", 2)]


def test_a_functions_operator_state_is_there_in_open(world: World) -> None:
    first = Hosted(MapOperator(Buffering()), world)
    first.rows(1, 2, 3)
    lists = first.snapshot(1).lists[0]
    second = Hosted(MapOperator(Buffering()), world, lists=lists, restored=CheckpointId(1))
    second.rows(4)
    assert second.out.values == [4]


class Counting(KeyedProcessFunction[int, tuple[object, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[object, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


def test_a_keyed_function_sees_the_state_of_each_rows_key(world: World) -> None:
    step = Hosted(KeyedProcessOperator(Counting()), world)
    step.process(keyed([1, 2, 3, 4], ["a", "b", "a", "a"]))
    assert step.out.values == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def test_a_keyed_function_takes_arrow_batches_of_a_keyed_edge(world: World) -> None:
    import numpy as np

    step = Hosted(KeyedProcessOperator(Counting()), world)
    batch = arrow({"k": ["a", "b", "a"]}, key_column="k", key_groups=np.array([1, 2, 1]))
    step.process(batch)
    assert step.out.values == [("a", 1), ("b", 1), ("a", 2)]


class Times(ProcessFunction[int, object]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> list[object]:
        service = ctx.timer_service()
        return [(value, ctx.timestamp(), service.current_watermark())] * 2


def test_a_process_function_sees_timestamp_and_watermark_before_the_row(world: World) -> None:
    step = Hosted(ProcessOperator(Times()), world)
    step.process(RowBatch([1], [10]))
    step.operator.on_watermark(Watermark(10), step.out)
    step.process(RowBatch([2], [20]))
    step.process(RowBatch([3]))
    assert step.out.values[::2] == [(1, 10, MIN_TIMESTAMP_MS), (2, 20, 10), (3, None, 10)]
    assert step.out.stamps == [10, 10, 20, 20]
    assert step.out.watermarks == [Watermark(10)]


@pytest.mark.parametrize("neither", [np.array([1, 2]), pd.NA], ids=["array", "NA"])
def test_a_filter_result_that_is_neither_true_nor_false_names_its_row(
    world: World, neither: object
) -> None:
    step = Hosted(FilterOperator({1: True, 2: 0, 3: "x", 4: neither, 5: True}.get), world)
    with pytest.raises(UserCodeFailed, match="is neither true nor false") as caught:
        step.process(RowBatch([1, 2, 3, 4, 5], [10, 20, 30, 40, 50]))
    assert caught.value.where.endswith("at the row 4")
    call = caught.value.call
    assert call is not None and (call.row, call.at) == (4, 3), "for the dead letters"
    assert step.out.values == [1, 3] and step.out.stamps == [10, 30]


def test_reduce_emits_what_each_key_has_come_to(world: World) -> None:
    step = Hosted(ReduceOperator(lambda old, new: old + new), world)
    step.process(keyed([1, 2, 3], ["a", "b", "a"], [10, 20, 30]))
    step.process(keyed([4], ["a"], [40]))
    assert step.out.values == [1, 2, 4, 8]
    assert step.out.stamps == [10, 20, 30, 40]


def test_a_reduce_that_raises_names_its_row(world: World) -> None:
    step = Hosted(ReduceOperator(lambda old, new: old + new), world, name="sum")
    with pytest.raises(UserCodeFailed) as caught:
        step.process(keyed([1, "x"], ["a", "a"]))
    assert caught.value.where == "operator 'sum', at the row 'x'"


class Failing(KeyedProcessFunction[int, int]):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield 10 // value


def test_a_keyed_function_that_raises_names_the_row_it_was_at(world: World) -> None:
    step = Hosted(KeyedProcessOperator(Failing()), world, name="tenth")
    with pytest.raises(UserCodeFailed) as caught:
        step.process(keyed([5, 0, 1], ["a", "b", "c"]))
    assert caught.value.where == "operator 'tenth', at the row 0"
    assert "yield 10 // value" in caught.value.trace


def test_a_process_function_that_raises_names_the_row_it_was_at(world: World) -> None:
    step = Hosted(ProcessOperator(lambda value, ctx: [10 // value]), world)
    with pytest.raises(UserCodeFailed) as caught:
        step.rows(5, 0, 1)
    assert caught.value.where == "operator 'step', at the row 0"


def test_results_of_a_keyed_row_keep_its_timestamp(world: World) -> None:
    step = Hosted(KeyedProcessOperator(Counting()), world)
    step.process(keyed([1, 2], ["a", "b"], [10, 20]))
    assert step.out.stamps == [10, 20]


def test_many_results_with_timestamps_come_in_bounded_batches(world: World) -> None:
    step = Hosted(FlatMapOperator(lambda v: range(v)), world, settings=SlotSettings(rows=4))
    step.process(RowBatch([20, 3], [10, 20]))
    assert [len(batch) for batch in step.out.batches] == [1, 8, 8, 6]
    assert step.out.stamps == [10] * 20 + [20] * 3


def test_processing_time_is_the_slots(world: World) -> None:
    step = Hosted(
        ProcessOperator(lambda v, ctx: [ctx.timer_service().current_processing_time()]), world
    )
    step.rows(1)
    assert step.out.values == [step.context.processing_time()]


def test_a_function_that_cannot_be_opened_is_named(world: World) -> None:
    class Broken(MapFunction[int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            raise OSError("no such device")

        def map(self, value: int) -> int:
            return value

    with pytest.raises(UserCodeFailed, match="raised OSError: no such device") as caught:
        Hosted(MapOperator(Broken()), world)
    assert caught.value.where == "operator 'step', in its open"


@pytest.mark.parametrize(
    "operator",
    [
        MapOperator(int),
        FilterOperator(int),
        FlatMapOperator(lambda v: [int(v)]),
        ProcessOperator(lambda v, ctx: [int(v)]),
    ],
    ids=["map", "filter", "flat_map", "process"],
)
@pytest.mark.parametrize("stamps", [None, [10, 20, 30, 40]])
def test_rows_ahead_of_one_that_fails_leave_before_the_failure(
    world: World, operator: Operator, stamps: list[int] | None
) -> None:
    step = Hosted(operator, world)
    step.rows("5", "5", "5")
    step.rows(*["5"] * 20)
    with pytest.raises(UserCodeFailed, match="x3") as failed:
        step.process(RowBatch(["1", "2", "x3", "4"], stamps))
    assert [int(value) for value in step.out.values[23:]] == [1, 2]
    assert isinstance(failed.value.__cause__, ValueError)
    if stamps is not None:
        assert step.out.stamps[-2:] == [10, 20]


@pytest.mark.parametrize(
    "make",
    [
        MapOperator,
        FilterOperator,
        FlatMapOperator,
        SinkFunctionOperator,
        ReduceOperator,
        ProcessOperator,
        timestamps_by,
    ],
)
def test_an_error_of_tidegates_own_keeps_the_cause_that_it_has(
    world: World, make: Callable[[Callable[..., Any]], Operator]
) -> None:
    ours, cause = BadRecord("no number"), OSError("the disk")

    def fails(*given: object) -> Any:
        raise ours from cause

    step = Hosted(make(fails), world)
    with pytest.raises(BadRecord, match="no number") as failed:
        step.process(keyed([1, 2], ["k", "k"]))
    assert failed.value is ours and ours.__cause__ is cause


def test_a_first_row_that_fails_fails_alone(world: World) -> None:
    step = Hosted(FlatMapOperator(lambda v: [1 / v]), world)
    with pytest.raises(UserCodeFailed):
        step.rows(0, 1)
    assert step.out.batches == []
