"""Windows that fold columns give what they give row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.operators.backed import in_columns
from tests.operators.window_run import WindowRun
from tests.properties import examples
from tidegate import (
    AggregateFunction,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    UserCodeFailed,
    UserError,
    WindowFunction,
)
from tidegate.datastream.windowed import window_operator
from tidegate.model.elements import MAX_WATERMARK_MS
from tidegate.operators.aggregates.folded import FoldedKeys
from tidegate.operators.windows import folded_panes
from tidegate.operators.windows.aligned import AlignedWindowOperator
from tidegate.operators.windows.firing import WindowPlan
from tidegate.operators.windows.folded_panes import ROWS_MIN, folds_of_windows
from tidegate.traced.purity import NotPure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.model.elements import RowBatch

pytestmark = pytest.mark.hypothesis


class Mean(AggregateFunction[Any, Any, Any]):
    """Rows and their sum, of whole or floating numbers."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: tuple[int, float], accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Total(Mean):
    """The sum alone, which cannot be merged."""

    def create_accumulator(self) -> int:
        return 7

    def add(self, value: tuple[int, float], accumulator: float) -> float:
        return accumulator + value[1] * 2

    def merge(self, acc_a: object, acc_b: object) -> Any:
        raise NotImplementedError


class Counted(Total):
    """Begins with something else each time."""

    begun = 0

    def create_accumulator(self) -> int:
        self.begun += 1
        return self.begun


BEGIN = 7


class FromGlobal(Total):
    """Begins with what a global holds by then."""

    def create_accumulator(self) -> int:
        return BEGIN


GATHERED: dict[str, dict[str, Any]] = {
    "mean": {"aggregate": Mean()},
    "total": {"aggregate": Total()},
    "reduce": {"reduce": lambda old, new: (old[0], old[1] + new[1])},
    "no fold": {"reduce": lambda old, new: old if old[1] > new[1] else new},
}
numbers = st.one_of(
    st.integers(-9, 9), st.sampled_from([2**62, -(2**63), 2**70, 0.5, -0.0, 1e300]), st.floats()
)
rows = st.lists(st.tuples(st.integers(0, 3), numbers, st.integers(-30, 60)), min_size=1, max_size=9)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), rows),
        st.tuples(st.just("rows"), rows),
        st.tuples(st.just("time"), st.integers(0, 40)),
        st.tuples(st.just("restore"), st.sampled_from([1, 2, 4])),
        st.tuples(st.just("cut"), st.sampled_from([1, 2, 4])),
    ),
    max_size=10,
)


def told(
    make: Callable[[], Any], given_actions: list[Any], form: Callable[[RowBatch], RowBatch]
) -> str:
    """Results after each step, late records and what is left of the state, as text."""
    run = WindowRun(make, 2, batch_rows=4, as_fed=form)
    watermark, found = -30, list[object]()
    for action in [*given_actions, ("time", MAX_WATERMARK_MS)]:
        try:
            match action:
                case ("rows", given_rows):
                    run.send([(key, (key, value), at) for key, value, at in given_rows])
                case ("time", ms):
                    watermark = min(watermark + ms, MAX_WATERMARK_MS)
                    run.watermark(watermark)
                case ("cut", parallelism):
                    # Where it is cut each form says for itself.
                    watermark = min(watermark + 20, MAX_WATERMARK_MS)
                    run.restore(run.watermark_cut(watermark, 1), parallelism, cut=True)
                    run.watermark(watermark)
                    found.append(sorted(map(repr, run.taken())))
                case (_, parallelism):
                    run.restore(run.snapshot(), parallelism, cut=True)
                    watermark = -30
        except (UserCodeFailed, UserError) as failed:
            return repr([*found, str(failed)])
        found.append((run.taken(), run.late()))
    return repr([*found, run.held()])


def all_of(key: object, window: Any, elements: Any) -> list[tuple[object, ...]]:
    return [(key, window.start, *elements)]


def one_by_one(key: object, window: Any, elements: Any) -> Iterator[object]:
    yield from elements
    yield key, window.end


def divided(key: Any, window: Any, elements: Any) -> list[tuple[object, ...]]:
    return [(window.end - key, True, elements[0] // (key - 1), 0.5)]


def second(key: int, window: Any, elements: Any) -> list[object]:
    return [elements[0][1] * 3]


class Applied(WindowFunction[Any, Any, Any, Any]):
    """Evaluated like a plain function."""

    def apply(self, key: Any, window: Any, inputs: Any) -> list[object]:
        return [(*inputs, key == 2, window.start)]


TUMBLING = TumblingEventTimeWindows(10)
FUNCTIONS: tuple[object, ...] = (all_of, one_by_one, divided, second, Applied(), None)


@pytest.mark.parametrize("name", GATHERED)
@examples(100)
@given(
    st.sampled_from(FUNCTIONS),
    st.integers(1, 20),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(-5, 5),
    st.sampled_from([0, 0, 7]),
    st.sampled_from([0, 2, ROWS_MIN]),
    actions,
)
# A snapshot in the midst of a window.
@example(all_of, 1, None, 0, 0, 0, [("rows", [(0, 0, 0), (1, 0, 0)]), ("time", 10), ("cut", 1)])
def test_columns_come_to_what_rows_come_to(
    name: str,
    function: object,
    size: int,
    slide: int | None,
    offset: int,
    lateness: int,
    rows_min: int,
    steps: list[Any],
) -> None:
    def make() -> Any:
        assigner: Any = TumblingEventTimeWindows(size, offset % size)
        if slide is not None:
            assigner = SlidingEventTimeWindows(size, slide, offset % slide)
        trigger = assigner.get_default_trigger()
        plan = WindowPlan(assigner, trigger, lateness, "late", function=function, **GATHERED[name])
        return window_operator(plan, None, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folded_panes, "ROWS_MIN", rows_min)
        found = told(make, steps, in_columns)
    assert found == told(make, steps, lambda batch: batch)


def test_a_window_that_fires_looks_at_its_own_panes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[FoldedKeys] = []
    flush = FoldedKeys.flush
    monkeypatch.setattr(FoldedKeys, "flush", lambda self: (flushed.append(self), flush(self))[1])
    plan = replace(plan_of(**GATHERED["mean"]), assigner=SlidingEventTimeWindows(30, 10))
    run = WindowRun(lambda: AlignedWindowOperator(plan), as_fed=in_columns)
    panes = 50
    for pane in range(panes):
        run.send([(1, (1, 4), 10 * pane), (2, (2, 6), 10 * pane + 1)])
    flushed.clear()
    run.watermark(MAX_WATERMARK_MS)
    assert len(run.taken()) == 2 * (panes + 2)
    assert panes <= len(flushed) <= 3 * (panes + 2)


def test_few_rows_a_pane_are_folded_only_where_columns_hold_the_pane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folded: list[int] = []
    gather = FoldedKeys.gather

    def noted(self: FoldedKeys, rows: Any) -> bool:
        folded.append(len(rows))
        return gather(self, rows)

    monkeypatch.setattr(FoldedKeys, "gather", noted)
    plan = plan_of(**GATHERED["mean"])
    run = WindowRun(lambda: AlignedWindowOperator(plan), batch_rows=100, as_fed=in_columns)
    run.send([(1, (1, 4), 5)])
    run.send([(1, (1, 4), 10 * pane + 5) for pane in range(100)])
    assert folded == [1, 1]
    run.watermark(MAX_WATERMARK_MS)
    assert [value for value, _ in run.taken()][:2] == [(1, 0, (2, 8)), (1, 10, (1, 4))]


@pytest.mark.parametrize("name", ["mean", "total", "reduce"])
def test_no_function_is_called_where_it_is_folded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AlignedWindowOperator, "_gather", None)
    steps = [("rows", [(1, 4, 3), (2, 6, 4)]), ("rows", [(1, 5, 12)]), ("time", 60), ("restore", 2)]
    assert told(lambda: AlignedWindowOperator(plan_of(**GATHERED[name])), steps, in_columns)


@pytest.mark.parametrize("function", [all_of, divided, Applied(), None])
def test_no_function_is_called_where_windows_fire(
    function: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AlignedWindowOperator, "_due_results", None)
    steps = [("rows", [(2, 4, 3), (3, 6, 4)]), ("rows", [(2, 5, 12)]), ("time", 60)]
    plan = replace(plan_of(aggregate=Total()), function=function)
    assert told(lambda: AlignedWindowOperator(plan), steps, in_columns)


@pytest.mark.parametrize("name", ["mean", "total", "reduce"])
@pytest.mark.parametrize("size", [10, 16])
def test_the_end_of_all_time_is_no_event_time_of_columns_either(name: str, size: int) -> None:
    def make() -> Any:
        return AlignedWindowOperator(
            replace(plan_of(**GATHERED[name]), assigner=TumblingEventTimeWindows(size))
        )

    steps = [("rows", [(1, 4, 3), (2, 6, MAX_WATERMARK_MS)]), ("time", 60)]
    found = told(make, steps, in_columns)
    assert "the end of all time" in found and found == told(make, steps, lambda batch: batch)


class Opened(Mean):
    """Is told of its start."""

    def open(self, runtime_context: object) -> None: ...


OPENED = Opened()


@pytest.mark.parametrize(
    ("assigner", "gathered", "why"),
    [
        (TumblingEventTimeWindows(10), {"aggregate": Mean()}, ""),
        (SlidingEventTimeWindows(10, 4), {"aggregate": Mean()}, ""),
        (SlidingEventTimeWindows(10, 5), {"aggregate": Total()}, ""),
        (SlidingEventTimeWindows(10, 4), {"aggregate": Total()}, "it has no merge()"),
        (SlidingEventTimeWindows(4, 10), {"aggregate": Mean()}, "leave gaps"),
        (TumblingProcessingTimeWindows(10), {"aggregate": Mean()}, "of processing time"),
        (TumblingEventTimeWindows(10), {"aggregate": Mean(), "paired": True}, "of two streams"),
        (TumblingEventTimeWindows(10), {"aggregate": OPENED, "functions": (OPENED,)}, "an open()"),
    ],
)
def test_it_is_told_where_windows_call_the_function(
    assigner: Any, gathered: dict[str, Any], why: str
) -> None:
    plan = WindowPlan(assigner, assigner.get_default_trigger(), function=all_of, **gathered)
    told_why = AlignedWindowOperator(plan).by_row["aggregate"]
    assert why in told_why and bool(why) == bool(told_why)


class Worded(Mean):
    """Gives a text, which it makes by a call."""

    def get_result(self, accumulator: tuple[int, float]) -> Any:
        return str(accumulator)


WORDED_LINE = Worded.get_result.__code__.co_firstlineno + 1


class Cleared(ProcessWindowFunction[Any, Any, Any, Any]):
    """Is told of windows that go."""

    def process(self, key: Any, context: Any, elements: Any) -> list[object]:
        return [key]

    def clear(self, context: Any) -> None: ...


@pytest.mark.parametrize(
    ("assigner", "given", "told"),
    [
        (TUMBLING, {"aggregate": Mean()}, ("window function", "")),
        (TUMBLING, {"aggregate": Mean(), "function": None}, ("get_result", "")),
        (TUMBLING, {"reduce": lambda old, new: old, "function": None}, None),
        (TUMBLING, {"reduce": lambda old, new: old}, ("window function", "")),
        (
            TUMBLING,
            {"function": one_by_one, **GATHERED["reduce"]},
            ("window function", "generator"),
        ),
        (TUMBLING, {}, ("window function", "the rows themselves are kept")),
        (TUMBLING, GATHERED["no fold"], ("window function", "reduce is called for each row")),
        (TUMBLING, {"aggregate": Worded(), "function": None}, ("get_result", "calls a function")),
        (
            TUMBLING,
            {"aggregate": Worded()},
            ("window function", f"in get_result, line {WORDED_LINE} calls a function"),
        ),
        (TUMBLING, {"aggregate": Mean(), "lateness_ms": 1}, ("window function", "allow lateness")),
        (TUMBLING, {"aggregate": Mean(), "function": Cleared()}, ("window function", "a clear()")),
        (SlidingEventTimeWindows(10, 5), {"aggregate": Mean()}, ("window function", "overlap")),
        (SlidingEventTimeWindows(10, 5), {"aggregate": Total()}, ("window function", "")),
        (EventTimeSessionWindows(10), {"aggregate": Mean()}, ("window function", "not tumbling")),
        (GlobalWindows(), {"aggregate": Mean(), "function": None}, ("get_result", "not tumbling")),
    ],
)
def test_it_is_told_where_windows_call_for_their_results(
    assigner: Any, given: dict[str, Any], told: tuple[str, str] | None
) -> None:
    plan = replace(WindowPlan(assigner, assigner.get_default_trigger(), function=all_of), **given)
    found = dict(window_operator(plan, None, None).by_window)
    if told is None:
        assert found == {}
        return
    call, why = told
    assert [*found] == [call]
    assert why in found[call] and bool(why) == bool(found[call])


def plan_of(**gathered: Any) -> WindowPlan:
    assigner = TumblingEventTimeWindows(10)
    return WindowPlan(assigner, assigner.get_default_trigger(), function=all_of, **gathered)


@pytest.mark.parametrize(("name", "begins"), [("mean", (0, 0)), ("total", 7), ("reduce", None)])
def test_what_a_window_begins_with_is_known(name: str, begins: object) -> None:
    assert folds_of_windows(plan_of(**GATHERED[name]))[1] == begins


@pytest.mark.parametrize(
    ("gathered", "why"),
    [
        ({}, "the rows themselves are kept"),
        ({"aggregate": Counted()}, "stores something"),
        ({"aggregate": FromGlobal()}, "create_accumulator reads what may change"),
        (GATHERED["no fold"], "decides or repeats something"),
    ],
)
def test_what_cannot_be_folded_says_why(gathered: dict[str, Any], why: str) -> None:
    with pytest.raises(NotPure, match=why):
        folds_of_windows(plan_of(**gathered))
