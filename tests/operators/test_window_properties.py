"""Window operators against the brute-force model: any input, any time, any failure, any scale."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.window_model import Firing, Kept, Rules, Span, WindowModel, aligned
from tests.operators.window_run import WindowRun
from tests.properties import examples
from tidegate import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CountWindow,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    Window,
    WindowAssigner,
)
from tidegate.api.operator import Operator
from tidegate.api.windows.assigners import count_windows
from tidegate.datastream.windowed import window_operator
from tidegate.model.elements import MAX_WATERMARK_MS
from tidegate.operators.emit import PIECE_MS
from tidegate.operators.windows.aligned import AlignedWindowOperator
from tidegate.operators.windows.firing import WindowPlan
from tidegate.operators.windows.general import WindowOperator

KEYS = st.sampled_from(["a", "b", "c", "d"])
PARALLELISM = st.sampled_from([1, 2, 4])
TIMES = st.integers(-30, 60)
ROWS = st.lists(st.tuples(KEYS, TIMES), max_size=8)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("time"), st.integers(0, 40)),
        st.tuples(st.just("slow"), st.integers(0, 40)),
        st.tuples(st.just("restore"), PARALLELISM, ROWS),
        st.tuples(st.just("cut"), PARALLELISM, st.integers(0, 40), st.integers(1, 4)),
    ),
    max_size=12,
)


class Lists(AggregateFunction[int, list[int], list[int]]):
    """Gathers in place, and merges into the first."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return list(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


class UnmergedLists(Lists):
    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        raise NotImplementedError


class Fold(AggregateFunction[int, tuple[int, ...], tuple[int, ...]]):
    """Of values that nobody can change."""

    def create_accumulator(self) -> tuple[int, ...]:
        return ()

    def add(self, value: int, accumulator: tuple[int, ...]) -> tuple[int, ...]:
        return (*accumulator, value)

    def get_result(self, accumulator: tuple[int, ...]) -> tuple[int, ...]:
        return accumulator

    def merge(self, acc_a: tuple[int, ...], acc_b: tuple[int, ...]) -> tuple[int, ...]:
        return acc_a + acc_b


def all_of(key: object, window: Window, elements: Iterable[object]) -> list[tuple[object, ...]]:
    return [(key, span_of(window), tuple(elements))]


def the_one(key: object, window: Window, elements: Iterable[Any]) -> list[tuple[object, ...]]:
    (gathered,) = elements
    return [(key, span_of(window), tuple(gathered))]


def span_of(window: Window) -> Span:
    match window:
        case TimeWindow():
            return window.start, window.end
        case CountWindow():
            return window.id, window.id
        case _:
            return 0, 0


GATHERED: dict[str, Callable[[], dict[str, Any]]] = {
    "kept": lambda: {"function": all_of},
    "kept, typed": lambda: {"function": all_of, "content_type": Types.LONG()},
    "reduced": lambda: {"function": the_one, "reduce": lambda x, y: x + y},
    "aggregated": lambda: {"function": the_one, "aggregate": Lists()},
    "folded": lambda: {"function": the_one, "aggregate": Fold()},
}
UNMERGED = {"unmerged": lambda: {"function": the_one, "aggregate": UnmergedLists()}}


@dataclass
class Case:
    """A program and its rules. ordered: whether a window's records come in the order they had."""

    assigner: WindowAssigner[Any, Any]
    rules: Rules
    trigger: Trigger[Any, Any] | None = None
    evictor: Evictor[Any, Any] | None = None
    gathered: str = "kept"
    ordered: bool = True
    expected: type[Operator] | None = None
    found: list[Firing] = field(default_factory=list[Firing])

    def operator(self) -> Operator:
        trigger = self.trigger or self.assigner.get_default_trigger()
        made = (GATHERED | UNMERGED)[self.gathered]()
        plan = WindowPlan(self.assigner, trigger, self.rules.lateness, "late", **made)
        operator = window_operator(plan, self.evictor, None)
        assert self.expected is None or type(operator) is self.expected
        return operator

    def value(self, number: int) -> object:
        return (number,) if self.gathered == "reduced" else number

    def checked(self, run: WindowRun, model: WindowModel) -> None:
        """What came since the last look is what the model says, and stands in the same order."""
        found = [Firing(*value, stamp) for value, stamp in run.taken()]
        assert by_window(found, self) == by_window(self._expected(model), self)
        assert Counter(map(number_of, run.late())) == Counter(map(number_of, model.taken_late()))
        self.found += found

    def _expected(self, model: WindowModel) -> list[Firing]:
        if self.gathered != "reduced":
            return model.taken()
        fired = model.taken()
        return [
            Firing(each.key, each.window, tuple(map(number_of, each.values)), each.stamp)
            for each in fired
        ]


def number_of(value: object) -> object:
    return value[0] if isinstance(value, tuple) else value


def by_window(firings: list[Firing], case: Case) -> dict[object, list[object]]:
    found: defaultdict[object, list[object]] = defaultdict(list)
    for each in firings:
        values = each.values if case.ordered else tuple(sorted(each.values))
        found[each.key, each.window].append((values, each.stamp))
    return found


def in_order(firings: list[Firing]) -> bool:
    stamps = [each.stamp for each in firings]
    return stamps == sorted(stamps)


def agree(
    case: Case, actions: list[Any], parallelism: int, batch_rows: int, *, tidy: bool = True
) -> None:
    """Run both side by side. tidy: windows go, and with the last one all that was kept of them."""
    run = WindowRun(case.operator, parallelism, batch_rows=batch_rows)
    model = WindowModel(case.rules)
    numbers = iter(range(10**6))
    watermark = -30

    def rows(given: list[tuple[str, int]], *, known: bool = True) -> None:
        sent = [(key, case.value(next(numbers)), time) for key, time in given]
        run.send(sent)
        for key, value, time in sent if known else ():
            model.record(key, value, run.clock.stands_at_ms if case.rules.by_clock else time)

    def later(ms: int) -> None:
        nonlocal watermark
        if case.rules.by_clock:
            run.at(run.clock.stands_at_ms + ms)
            model.advance(run.clock.stands_at_ms - 1)
            return
        watermark = min(watermark + ms, MAX_WATERMARK_MS)
        run.watermark(watermark)
        model.advance(watermark)
        if case.rules.trigger == "end" and parallelism == 1:
            assert in_order([Firing(*value, stamp) for value, stamp in run.subtasks[0].out.rows])

    for action in actions:
        match action:
            case ("rows", given):
                rows(given)
            case ("time", ms):
                later(ms)
            case ("slow", ms):
                run.clock.step_ms = PIECE_MS
                later(ms)
                run.clock.step_ms = 0
            case ("cut", parallelism, ms, pauses):
                if not case.rules.by_clock:
                    states = run.watermark_cut(watermark + ms, pauses)
                    run.restore(states, parallelism, cut=True)
                later(ms)
                model.restart()
                run.restore(run.snapshot(), parallelism, cut=True)
                watermark = -30
            case (_, parallelism, lost):
                states = run.snapshot(lambda lost=lost: rows(lost, known=False))
                run.restore(states, parallelism)
                model.restart()
                watermark = -30
        case.checked(run, model)
    later(MAX_WATERMARK_MS if not case.rules.by_clock else 1_000)
    case.checked(run, model)
    if tidy:
        assert model.open_windows == 0 and not run.held()


def aligned_case(
    draw: st.DrawFn,
    kind: str,
    fires: Trigger[Any, Any] | None = None,
    *,
    ordinary: bool = False,
    **rules: Any,
) -> Case:
    size = draw(st.integers(1, 20), "size")
    slide = size if kind.startswith("tumbling") else draw(st.integers(1, 25), "slide")
    offset = draw(st.integers(1 - slide, slide - 1), "offset")
    by_clock = kind.endswith("clock")
    assigners: dict[str, Callable[[], WindowAssigner[Any, Any]]] = {
        "tumbling": lambda: TumblingEventTimeWindows(size, offset),
        "sliding": lambda: SlidingEventTimeWindows(size, slide, offset),
        "tumbling by clock": lambda: TumblingProcessingTimeWindows(size, offset),
        "sliding by clock": lambda: SlidingProcessingTimeWindows(size, slide, offset),
    }
    gathered = draw(st.sampled_from([*GATHERED, *UNMERGED]), "gathered")
    return Case(
        assigners[kind](),
        Rules(
            aligned(size, slide, offset),
            by_clock=by_clock,
            lateness=0 if by_clock else draw(st.sampled_from([0, 0, 1, 7, 20]), "lateness"),
            in_panes=ordinary and slide < size and gathered not in UNMERGED,
            **rules,
        ),
        fires,
        gathered=gathered,
    )


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "tumbling by clock", "sliding by clock"])
@examples(150)
@given(st.data(), ACTIONS, PARALLELISM, st.integers(1, 5))
def test_aligned_windows(
    kind: str, data: st.DataObject, actions: list[Any], parallelism: int, batch_rows: int
) -> None:
    case = aligned_case(data.draw, kind, ordinary=True)
    # A sliding window is put together of its panes: then records come in the order of these.
    case.ordered, case.expected = kind.startswith("tumbling"), AlignedWindowOperator
    agree(case, actions, parallelism, batch_rows)


TRIGGERS: dict[str, tuple[Callable[[int], Trigger[Any, Any]], Callable[[int], dict[str, Any]]]] = {
    "end": (lambda _: PurgingTrigger(EventTimeTrigger()), lambda _: {"purging": True}),
    "count": (lambda n: CountTrigger(n), lambda n: {"trigger": ("count", n)}),
    "purging count": (
        lambda n: PurgingTrigger(CountTrigger(n)),
        lambda n: {"trigger": ("count", n), "purging": True},
    ),
    "continuous": (ContinuousEventTimeTrigger, lambda n: {"trigger": ("continuous", n)}),
    "purging continuous": (
        lambda n: PurgingTrigger(ContinuousEventTimeTrigger(n)),
        lambda n: {"trigger": ("continuous", n), "purging": True},
    ),
    "never": (lambda _: NeverTrigger(), lambda _: {"trigger": "never"}),
}


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
@pytest.mark.parametrize("name", [*TRIGGERS])
@examples(40)
@given(st.data(), ACTIONS, PARALLELISM, st.integers(1, 5))
def test_triggers(
    kind: str,
    name: str,
    data: st.DataObject,
    actions: list[Any],
    parallelism: int,
    batch_rows: int,
) -> None:
    number = data.draw(st.integers(1, 6), "number")
    trigger, rules = TRIGGERS[name][0](number), TRIGGERS[name][1](number)
    if kind == "sessions":
        case = session_case(data.draw, trigger, **rules)
    else:
        case = aligned_case(data.draw, kind, trigger, **rules)
    case.expected = WindowOperator
    agree(case, actions, parallelism, batch_rows)


@pytest.mark.parametrize("name", ["tumbling by clock", "sliding by clock", "sessions by clock"])
@examples(40)
@given(st.data(), ACTIONS, PARALLELISM, st.integers(1, 5), st.booleans())
def test_triggers_by_the_clock(
    name: str,
    data: st.DataObject,
    actions: list[Any],
    parallelism: int,
    batch_rows: int,
    continuous: bool,
) -> None:
    number = data.draw(st.integers(1, 6), "number")
    inner: Trigger[Any, Any] = (
        ContinuousProcessingTimeTrigger(number) if continuous else ProcessingTimeTrigger()
    )
    rules = {"trigger": ("continuous", number) if continuous else "end", "purging": True}
    if name == "sessions by clock":
        case = session_case(data.draw, PurgingTrigger(inner), by_clock=True, **rules)
    else:
        case = aligned_case(data.draw, name, PurgingTrigger(inner), **rules)
    agree(case, actions, parallelism, batch_rows)


@pytest.mark.parametrize(
    ("interval", "late"),
    [
        pytest.param(2, ("time", 5), id="late by two intervals"),
        pytest.param(4, ("slow", 5), id="slow in all that is due"),
    ],
)
def test_a_trigger_still_sees_the_end_of_its_window(interval: int, late: tuple[str, int]) -> None:
    rules = Rules(gap=lambda _: 7, by_clock=True, trigger=("continuous", interval), purging=True)
    trigger = PurgingTrigger(ContinuousProcessingTimeTrigger(interval))
    case = Case(ProcessingTimeSessionWindows(7), rules, trigger, ordered=False)
    agree(case, [("rows", [("a", 0)]), late], parallelism=1, batch_rows=1)


def session_case(
    draw: st.DrawFn,
    fires: Trigger[Any, Any] | None = None,
    *,
    by_clock: bool = False,
    **rules: Any,
) -> Case:
    gap = draw(st.integers(1, 15), "gap")
    kind = ProcessingTimeSessionWindows if by_clock else EventTimeSessionWindows
    dynamic = draw(st.booleans(), "dynamic")

    def extract(value: Any) -> int:
        return 1 + number_of(value) * 7 % 15

    return Case(
        kind.with_dynamic_gap(extract) if dynamic else kind(gap),
        Rules(
            gap=extract if dynamic else lambda _: gap,
            by_clock=by_clock,
            lateness=0 if by_clock else draw(st.sampled_from([0, 0, 3, 20]), "lateness"),
            **rules,
        ),
        fires,
        gathered=draw(st.sampled_from([*GATHERED]), "gathered"),
        ordered=False,
    )


@pytest.mark.parametrize("by_clock", [False, True])
@examples(150)
@given(st.data(), ACTIONS, PARALLELISM, st.integers(1, 5))
def test_sessions(
    by_clock: bool, data: st.DataObject, actions: list[Any], parallelism: int, batch_rows: int
) -> None:
    agree(session_case(data.draw, by_clock=by_clock), actions, parallelism, batch_rows)


@pytest.mark.slow
@examples(150)
@given(
    st.integers(1, 6),
    st.integers(0, 7),
    st.sampled_from([*GATHERED]),
    ACTIONS,
    PARALLELISM,
    st.integers(1, 5),
)
def test_count_windows(
    size: int,
    slide: int,
    gathered: str,
    actions: list[Any],
    parallelism: int,
    batch_rows: int,
) -> None:
    rules = Rules(size=size, slide=slide or size, trigger=("count", size), purging=True)
    case = Case(count_windows(size, slide), rules, gathered=gathered)
    agree(case, actions, parallelism, batch_rows, tidy=False)


@examples(60)
@given(
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([*GATHERED]),
    ACTIONS,
    PARALLELISM,
    st.integers(1, 5),
)
def test_a_global_window_fires_as_its_trigger_says(
    number: int,
    purging: bool,
    gathered: str,
    actions: list[Any],
    parallelism: int,
    batch_rows: int,
) -> None:
    trigger = CountTrigger(number)
    rules = Rules(trigger=("count", number), purging=purging)
    case = Case(
        GlobalWindows(), rules, PurgingTrigger(trigger) if purging else trigger, gathered=gathered
    )
    agree(case, actions, parallelism, batch_rows, tidy=False)


def last(count: int) -> Callable[[Kept], Kept]:
    return lambda kept: kept[-count:]


def newest(span_ms: int) -> Callable[[Kept], Kept]:
    return lambda kept: [each for each in kept if each[1] > max(time for _, time in kept) - span_ms]


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
@examples(60)
@given(
    st.data(),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    ACTIONS,
    PARALLELISM,
    st.integers(1, 5),
)
def test_evictors(
    kind: str,
    data: st.DataObject,
    number: int,
    after: bool,
    by_time: bool,
    actions: list[Any],
    parallelism: int,
    batch_rows: int,
) -> None:
    evicted = newest(number) if by_time else last(number)
    rules = {"evict_after" if after else "evict_before": evicted}
    if kind == "sessions":
        by_time = True  # which records of merged windows are the last ones, nobody says
        case = session_case(data.draw, evict_before=newest(number))
        case.evictor = TimeEvictor(number)
    else:
        case = aligned_case(data.draw, kind, **rules)
        case.evictor = (TimeEvictor if by_time else CountEvictor)(number, after)
    case.expected = WindowOperator
    agree(case, actions, parallelism, batch_rows)
