"""Window operators where their user does not see them: clocks that jump, rounds that take long."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.operators.window_run import WindowRun
from tidegate import (
    AggregateFunction,
    EventTimeSessionWindows,
    EventTimeTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    UserCodeFailed,
    WindowAssigner,
)
from tidegate.api.functions import Function
from tidegate.datastream.windowed import window_operator
from tidegate.model.elements import Watermark
from tidegate.operators.emit import PIECE_MS
from tidegate.operators.windows.firing import WindowPlan


def spans(key: object, window: TimeWindow, elements: Iterable[Any]) -> list[Any]:
    return [(key, window.start, window.end, list(elements))]


def running(
    assigner: WindowAssigner[Any, Any],
    trigger: Trigger[Any, Any] | None = None,
    clock_ms: int = 0,
    lateness_ms: int = 0,
) -> WindowRun:
    trigger = trigger or assigner.get_default_trigger()
    plan = WindowPlan(assigner, trigger, lateness_ms, "late", function=spans)
    return WindowRun(lambda: window_operator(plan, None, None), clock_ms=clock_ms)


@pytest.mark.parametrize(
    ("assigner", "windows"),
    [
        (TumblingProcessingTimeWindows(10), [(100, 110, [1]), (110, 120, [2])]),
        (
            SlidingProcessingTimeWindows(10, 5),
            [(95, 105, [1]), (100, 110, [1]), (105, 115, [2]), (110, 120, [2])],
        ),
        (ProcessingTimeSessionWindows(10), [(100, 110, [1]), (110, 120, [2])]),
    ],
)
def test_a_clock_that_was_put_back_makes_nobody_late(
    assigner: WindowAssigner[Any, Any], windows: list[Any]
) -> None:
    run = running(assigner, clock_ms=100)
    run.send([("a", 1, None)])
    run.at(110)
    run.clock.stands_at_ms = 93
    run.send([("a", 2, None)])
    run.at(200)
    assert [value for value, _ in run.taken()] == [("a", *window) for window in windows]
    assert run.late() == [] and run.counted("numLateRecordsDropped") == 0


@pytest.mark.parametrize("lateness_ms", [0, 5])
@pytest.mark.parametrize(
    ("assigner", "trigger"),
    [
        (TumblingEventTimeWindows(10), None),
        (SlidingEventTimeWindows(10, 5), None),
        (EventTimeSessionWindows(10), None),
        (TumblingEventTimeWindows(10), PurgingTrigger(EventTimeTrigger())),
    ],
)
def test_many_windows_that_are_due_at_once_let_a_checkpoint_in_between(
    assigner: WindowAssigner[Any, Any], trigger: Trigger[Any, Any] | None, lateness_ms: int
) -> None:
    run = running(assigner, trigger, lateness_ms=lateness_ms)
    run.send([(f"key {n}", n, 0) for n in range(50)])
    (hosted,) = run.subtasks
    run.clock.step_ms = PIECE_MS
    steps = hosted.operator.on_watermark(Watermark(100), hosted.out)
    assert steps is not None
    pauses = sum(step is not None for step in steps)
    assert pauses >= 7, "after each key group at the latest"
    assert hosted.out.watermarks == [100]


def test_contents_that_a_purging_trigger_leaves_are_gone() -> None:
    run = running(TumblingEventTimeWindows(10), PurgingTrigger(EventTimeTrigger()), lateness_ms=5)
    run.send([("a", 1, 3)])
    run.watermark(9)
    assert set(run.held()) == {"_timer_state/event_window-timers"}
    run.watermark(14)
    assert run.held() == {}


class Merging(AggregateFunction[Any, Any, Any]):
    """Counts, and merges as it is told to."""

    def __init__(self, merge: Callable[[Any, Any], object]) -> None:
        self._merge = merge

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self._merge(acc_a, acc_b)


def stops(left: Any, right: Any) -> object:
    return next(iter([]))


@pytest.mark.parametrize(
    ("gathering", "message", "call"),
    [
        ({"aggregate": Merging(stops)}, "raised StopIteration", "merge"),
        ({"aggregate": Merging(lambda a, b: a // (b - 1))}, "raised ZeroDivisionError", "merge"),
        (
            {"aggregate": Merging(lambda a, b: None)},
            "AggregateFunction.merge has returned",
            "merge",
        ),
        ({"reduce": stops}, "raised StopIteration", "reduce function"),
        ({"reduce": lambda a, b: None}, "the reduce function has returned None", "reduce function"),
    ],
)
def test_a_function_that_fails_to_put_panes_together_is_told_with_key_and_window(
    gathering: dict[str, Any], message: str, call: str
) -> None:
    assigner = SlidingEventTimeWindows(10, 5)
    plan = WindowPlan(assigner, assigner.get_default_trigger(), function=spans, **gathering)
    run = WindowRun(lambda: window_operator(plan, None, None))
    run.send([("a", 7, 1)])
    run.send([("b", 0, 1), ("b", 0, 6)])
    with pytest.raises(UserCodeFailed, match=message) as raised:
        run.watermark(100)
    place = f"{call}, for key 'b' and TimeWindow(start=0, end=10)"
    assert str(raised.value.where).endswith(f"in its {place}")


class Closing(Function):
    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.fails:
            raise OSError(self.fails)


def test_a_function_that_cannot_be_closed_leaves_none_of_the_others_open() -> None:
    functions = Closing("the first is stuck"), Closing("so is the next"), Closing()
    windows = TumblingEventTimeWindows(10)
    plan = WindowPlan(windows, EventTimeTrigger(), function=spans, functions=functions)
    run = WindowRun(lambda: window_operator(plan, None, None))
    with pytest.raises(UserCodeFailed, match="the first is stuck") as raised:
        run.subtasks[0].operator.close()
    assert [function.closed for function in functions] == [True, True, True]
    (note,) = raised.value.__notes__
    assert "so is the next" in note
