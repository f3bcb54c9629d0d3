"""Interval joins, window joins and co-groups through the surface, against plain loops."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.datastream.fakes import environment, exchanges, numbers
from tests.datastream.two_streams import at, collected, first, local
from tests.operators.backed import BackedJob
from tests.operators.world import World
from tidegate import (
    CoGroupFunction,
    CountTrigger,
    Duration,
    EventTimeSessionWindows,
    GlobalWindows,
    GraphError,
    JobFailed,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Time,
    TimeEvictor,
    TumblingEventTimeWindows,
    Types,
)

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate import DataStream, RuntimeContext
    from tidegate.api.operator import Operator

Row = tuple[str, int]
SLOW = pytest.mark.slow
ASIDE = OutputTag[Any]("aside")
ROW = Types.TUPLE([Types.STRING(), Types.LONG()])


def drawn(seed: int, rows: int = 120) -> tuple[list[Row], list[Row]]:
    """Two streams of keys and ascending event times."""
    chance = random.Random(seed)

    def one() -> list[Row]:
        times = sorted(chance.randrange(-50, 500) for _ in range(rows))
        return [(chance.choice("abcde"), time) for time in times]

    return one(), one()


class Pairs(ProcessJoinFunction[Row, Row, Any]):
    """The pairs; those of equal time aside too."""

    def process_element(self, left: Row, right: Row, ctx: ProcessJoinFunction.Context) -> Any:
        assert ctx.get_timestamp() == max(ctx.get_left_timestamp(), ctx.get_right_timestamp())
        yield left, right
        if ctx.get_left_timestamp() == ctx.get_right_timestamp():
            yield ASIDE, left


def paired(lefts: list[Row], rights: list[Row], low: int, high: int) -> list[tuple[Row, Row]]:
    """What an interval join gives, by all pairs."""
    return sorted(
        (left, right)
        for left in lefts
        for right in rights
        if left[0] == right[0] and low <= right[1] - left[1] <= high
    )


# --- interval joins -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "parallelism"),
    [(-5, 10, 1), (3, 9, 1), (-9, -3, 1), (0, 0, 1), pytest.param(-5, 10, 2, marks=SLOW)],
)
def test_pairs_lie_between_the_bounds(low: int, high: int, parallelism: int) -> None:
    lefts, rights = drawn(low)
    env = local(parallelism)
    left, right = at(env, lefts).key_by(first), at(env, rights).key_by(first)
    joined = left.interval_join(right).between(Time.milliseconds(low), Time.milliseconds(high))
    assert sorted(collected(joined.process(Pairs()))) == paired(lefts, rights, low, high)


def test_bounds_may_be_exclusive_and_durations() -> None:
    lefts, rights = drawn(1)
    env = local()
    left, right = at(env, lefts).key_by(first), at(env, rights).key_by(first)
    joined = left.interval_join(right).between(Duration.of_millis(-3), Duration.of_millis(3))
    narrow = joined.lower_bound_exclusive().upper_bound_exclusive().process(Pairs(), None)
    assert sorted(collected(narrow)) == paired(lefts, rights, -2, 2)


def test_pairs_have_side_outputs() -> None:
    lefts, rights = drawn(2)
    env = local()
    left, right = at(env, lefts).key_by(first), at(env, rights).key_by(first)
    joined = left.interval_join(right).between(Time(-5), Time(5)).process(Pairs())
    expected = sorted(left for left, _ in paired(lefts, rights, 0, 0))
    assert sorted(collected(joined.get_side_output(ASIDE))) == expected


def test_a_join_needs_event_time() -> None:
    env = local()
    one = env.from_collection([("a", 1)]).key_by(first)
    joined = one.interval_join(one).between(Time(0), Time(1)).process(Pairs()).name("joined")
    with pytest.raises(JobFailed, match=r"(?s)no event time.*'joined', (left|right) input"):
        collected(joined)


# --- window joins ---------------------------------------------------------------------------------


def in_windows(rows: Iterable[Row], size: int, slide: int) -> dict[tuple[str, int], list[Row]]:
    """The rows by key and start of the window."""
    windows: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        start = row[1] - row[1] % slide
        while start > row[1] - size:
            windows[row[0], start].append(row)
            start -= slide
    return windows


def assigner(size: int, slide: int) -> Any:
    if size == slide:
        return TumblingEventTimeWindows.of(Time(size))
    return SlidingEventTimeWindows.of(Time(size), Time(slide))


@pytest.mark.parametrize(
    ("size", "slide", "typed", "parallelism"),
    [(20, 20, False, 1), (30, 10, True, 1), pytest.param(30, 10, True, 2, marks=SLOW)],
)
def test_records_of_one_window_are_joined(
    size: int, slide: int, typed: bool, parallelism: int
) -> None:
    lefts, rights = drawn(size)
    env = local(parallelism)
    left, right = at(env, lefts), at(env, rights)
    if typed:
        left, right = left.map(same, ROW), right.map(same, ROW)
    joined = left.join(right).where(first).equal_to(first).window(assigner(size, slide))
    one, other = in_windows(lefts, size, slide), in_windows(rights, size, slide)
    expected = [(a, b) for window in one for a in one[window] for b in other.get(window, ())]
    assert sorted(collected(joined.apply(lambda a, b: (a, b)))) == sorted(expected)


def same(row: Row) -> Row:
    return row


class Halves(JoinFunction[Row, Row, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.dash = "-"

    def join(self, first: Row, second: Row) -> str:
        return f"{first[1]}{self.dash}{second[1]}"


class Sizes(CoGroupFunction[Row, Row, tuple[str, int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls = 0

    def co_group(
        self, first: Iterable[Row], second: Iterable[Row]
    ) -> Iterator[tuple[str, int, int]]:
        self.calls += 1
        firsts, seconds = list(first), list(second)
        yield (firsts or seconds)[0][0], len(firsts), len(seconds)


def test_function_objects_are_opened() -> None:
    env = local()
    left, right = at(env, [("a", 1), ("b", 2)]), at(env, [("a", 3), ("c", 4)])
    windows = TumblingEventTimeWindows.of(Time(5))
    joined = left.join(right).where(first).equal_to(first).window(windows).apply(Halves())
    assert collected(joined) == ["1-3"]
    env = local()
    left, right = at(env, [("a", 1), ("b", 2)]), at(env, [("a", 3), ("c", 4)])
    grouped = left.co_group(right).where(first).equal_to(first).window(windows).apply(Sizes())
    assert sorted(collected(grouped)) == [("a", 1, 1), ("b", 1, 0), ("c", 0, 1)]


def test_groups_hold_records_without_a_pair() -> None:
    lefts, rights = drawn(7)
    env = local()
    grouped = at(env, lefts).co_group(at(env, rights)).where(first).equal_to(first)
    found = collected(grouped.window(assigner(20, 20)).apply(lambda a, b: [(a, b)]))
    one, other = in_windows(lefts, 20, 20), in_windows(rights, 20, 20)
    expected = [(one.get(window, []), other.get(window, [])) for window in one | other]
    assert sorted(found) == sorted(expected)


def sessions(rows: list[tuple[int, Row]], gap: int) -> list[list[tuple[int, Row]]]:
    """Rows of one key, each with its stream, cut where nothing came for the gap."""
    cut: list[list[tuple[int, Row]]] = []
    for row in sorted(rows, key=lambda row: row[1][1]):
        if not cut or row[1][1] > cut[-1][-1][1][1] + gap:
            cut.append([])
        cut[-1].append(row)
    return cut


def test_sessions_go_over_both_streams() -> None:
    lefts, rights = drawn(8, rows=60)
    env = local()
    grouped = at(env, lefts).co_group(at(env, rights)).where(first).equal_to(first)
    windows = EventTimeSessionWindows.with_gap(Time(12))
    found = collected(grouped.window(windows).apply(lambda a, b: [(sorted(a), sorted(b))]))
    expected: list[tuple[list[Row], list[Row]]] = []
    for key in "abcde":
        own = [(n, row) for n, rows in enumerate((lefts, rights)) for row in rows if row[0] == key]
        for session in sessions(own, 12):
            left, right = ([row for n, row in session if n == port] for port in (0, 1))
            expected.append((sorted(left), sorted(right)))
    assert sorted(found) == sorted(expected)


def test_a_trigger_fires_by_the_records_of_both_streams() -> None:
    env = local()
    grouped = at(env, [("a", 1), ("a", 2), ("b", 1)]).co_group(at(env, [("a", 3), ("a", 4)]))
    keyed = grouped.where(first).equal_to(first).window(GlobalWindows.create())
    each_second = keyed.trigger(PurgingTrigger.of(CountTrigger.of(2)))
    sizes = collected(each_second.apply(lambda a, b: [len(a) + len(b)]))
    assert sizes == [2, 2]


def test_an_evictor_keeps_the_newest_of_both_streams() -> None:
    env = local()
    joined = at(env, [("a", 1), ("a", 4)]).join(at(env, [("a", 5), ("a", 6)]))
    windows = joined.where(first).equal_to(first).window(assigner(10, 10))
    newest = windows.evictor(TimeEvictor.of(Time(3))).apply(lambda a, b: (a[1], b[1]))
    assert sorted(collected(newest)) == [(4, 5), (4, 6)]


def step_of(stream: DataStream[Any]) -> Callable[[], Operator]:
    """Loads the operator that made a stream, as a slot would."""
    stream.print()
    graph = stream.get_execution_environment().get_job_graph()
    made = graph.topology.vertices[-1].id
    return lambda: graph.plan(made).operators[0]


def test_late_records_join_as_long_as_their_window_is_kept() -> None:
    env = environment()
    joined = numbers(env, "one").join(numbers(env, "other")).where(first).equal_to(first)
    kept = joined.window(assigner(10, 10)).allowed_lateness(15).apply(lambda a, b: (a, b))
    with World() as world:
        job = BackedJob(world, step_of(kept), 2)
        assert job.feed(0, ("a", "left", 1), ("b", "left", 12)) == []
        assert job.feed(1, ("a", "right", 2)) == []
        assert job.watermark(12) == [(("left", "right"), 9)]
        job = job.restored(3)
        assert job.watermark(12) == []
        again = [(("left", "right"), 9), (("left", "late"), 9)]
        assert job.feed(1, ("a", "late", 3)) == again
        assert job.watermark(24) == []
        assert job.feed(1, ("a", "too late", 3), ("b", "in time", 13)) == [
            (("left", "in time"), 19)
        ]


def test_late_records_of_an_interval_join_go_aside() -> None:
    env = environment()
    left, right = (numbers(env, name).key_by(first) for name in ("one", "other"))
    joined = left.interval_join(right).between(Time(0), Time(5))
    aside = joined.side_output_left_late_data(OutputTag("left"))
    with World() as world:
        job = BackedJob(world, step_of(aside.process(Plain())), 2)
        job.watermark(10)
        assert job.feed(0, ("a", "late", 9), ("a", "in time", 10)) == [(("left", "late"), 9)]
        assert job.feed(1, ("a", "late", 9), ("a", "right", 12)) == [(("in time", "right"), 12)]


class Plain(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any:
        return [(left, right)]


def test_a_group_may_give_nothing() -> None:
    env = local()
    grouped = at(env, [("a", 1)]).co_group(at(env, [("a", 1)])).where(first).equal_to(first)
    assert collected(grouped.window(assigner(5, 5)).apply(lambda a, b: None)) == []


def test_keys_of_two_types_that_meet_fail_the_job() -> None:
    env = local()
    joined = at(env, [(1, 1)]).join(at(env, [("1", 1)])).where(first).equal_to(first)
    stream = joined.window(assigner(5, 5)).apply(lambda a, b: (a, b)).name("joined")
    with pytest.raises(JobFailed, match=r"(?s)keys of the two streams have two types.*'joined'"):
        collected(stream)


def test_a_join_that_raises_is_named() -> None:
    env = local()
    joined = at(env, [("a", 0)]).join(at(env, [("a", 0)])).where(first).equal_to(first)
    stream = joined.window(assigner(5, 5)).apply(lambda a, b: a[1] / b[1]).name("joined")
    with pytest.raises(JobFailed, match=r"(?s)ZeroDivisionError.*'joined'"):
        collected(stream)


# --- what is refused at its line ------------------------------------------------------------------


def joined_by(function: Any) -> Callable[[Any, Any], Any]:
    windows = TumblingEventTimeWindows.of(Time(5))
    return lambda a, b: a.join(b).where(first).equal_to(first).window(windows).apply(function)


def between(low: int, high: int) -> Callable[[Any, Any], Any]:
    return lambda a, b: (
        a.key_by(first).interval_join(b.key_by(first)).between(Time(low), Time(high))
    )


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (between(5, 4), "lower bound, 5 ms, is above the upper one, 4 ms"),
        (lambda a, b: between(5, 5)(a, b).lower_bound_exclusive(), "is above the upper one"),
        (lambda a, b: between(0, 1)(a, b).process(len), "takes a ProcessJoinFunction"),
        (joined_by(Sizes()), "takes a JoinFunction or a plain function, not Sizes"),
        (
            lambda a, b: a.join(b).where(first).equal_to(first).window(5),
            "takes a WindowAssigner, not int",
        ),
        (
            lambda a, b: a.join(b).where(first, Types.INT()).equal_to(first, Types.LONG()),
            "keys of the two streams have two types, Integer and Long",
        ),
        (lambda a, b: joined_by(same)(a, numbers(environment())), "two environments"),
    ],
)
def test_what_cannot_work_is_refused_at_its_line(
    call: Callable[[Any, Any], Any], what: str
) -> None:
    env = environment()
    with pytest.raises(GraphError, match=what) as caught:
        call(numbers(env, "one"), numbers(env, "other"))
    assert caught.value.where and caught.value.remedy


def test_both_inputs_of_a_join_are_keyed() -> None:
    env = environment()
    joined_by(same)(numbers(env, "one"), numbers(env, "other")).print()
    assert exchanges(env) == ["HASH", "HASH"]
