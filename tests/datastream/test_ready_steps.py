"""Steps without a class: what they give, what they forget, and what they refuse."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datastream.fakes import KeepingRuntime, environment, numbers
from tests.e2e.plain import as_of
from tests.properties import examples
from tidegate import OutputTag, TimeDomain, Types
from tidegate.errors import UserError
from tidegate.testing import OperatorHarness

if TYPE_CHECKING:
    from tidegate import DataStream

LATE = OutputTag("late")


def keyed(stream: DataStream[Any]) -> Any:
    return stream.key_by(lambda row: row[0], Types.STRING())


def test_only_the_first_record_of_a_key_passes() -> None:
    with OperatorHarness(lambda s: keyed(s).deduplicate(), parallelism=2) as harness:
        harness.process_all([("a", 1), ("b", 2), ("a", 3)])
        assert sorted(harness.take()) == [("a", 1), ("b", 2)]
        harness.advance_time(10**12)
        harness.process(("a", 4))
        assert harness.take() == []


def test_a_key_passes_again_when_its_time_is_over() -> None:
    with OperatorHarness(lambda s: keyed(s).deduplicate(timedelta(seconds=1))) as harness:
        harness.process(("a", 1))
        harness.advance_time(999)
        harness.process(("a", 2))
        assert harness.take() == [("a", 1)]
        harness.advance_time(1)
        harness.process(("a", 3))
        assert harness.take() == [("a", 3)]


def test_each_record_is_counted_within_its_key_also_after_a_restore() -> None:
    with OperatorHarness(lambda s: keyed(s).count(), parallelism=2) as harness:
        harness.process_all([("a", 1), ("b", 2), ("a", 3)])
        assert sorted(harness.take()) == [("a", 1), ("a", 2), ("b", 1)]
        snapshot = harness.snapshot()
    with OperatorHarness(lambda s: keyed(s).count(), parallelism=3, restore=snapshot) as harness:
        harness.process_all([("b", 5), ("a", 4)])
        assert sorted(harness.take()) == [("a", 3), ("b", 2)]


def test_a_count_begins_anew_where_no_record_came_for_its_time() -> None:
    with OperatorHarness(lambda s: keyed(s).count("1 s")) as harness:
        for _ in range(3):
            harness.process(("a", 1))
            harness.advance_time(900)
        harness.advance_time(100)
        harness.process(("a", 1))
        assert [count for _, count in harness.take()] == [1, 2, 3, 1]


def test_a_ranking_is_told_when_it_changes() -> None:
    with OperatorHarness(lambda s: keyed(s).top_n(2, by=lambda row: row[1])) as harness:
        rows = [("a", 3, "x"), ("a", 5, "y"), ("a", 3, "z"), ("a", 4, "w")]
        harness.process_all(rows)
        x, y, _, w = rows
        assert harness.take() == [("a", [x]), ("a", [y, x]), ("a", [y, w])]


def test_a_ranked_thing_stands_in_a_ranking_once() -> None:
    def ranked(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).top_n(2, by=lambda row: row[1], same=lambda row: row[2])

    with OperatorHarness(ranked) as harness:
        harness.process_all([("a", 1, "x"), ("a", 2, "y"), ("a", 3, "x"), ("a", 0, "z")])
        assert [[row[1:] for row in rows] for _, rows in harness.take()] == [
            [(1, "x")],
            [(2, "y"), (1, "x")],
            [(3, "x"), (2, "y")],
        ]


def test_the_records_of_a_second_are_told_for_each_span_and_key() -> None:
    with OperatorHarness(lambda s: keyed(s).rate("2 s")) as harness:
        for at in (0, 100, 1_999, 2_000):
            harness.process(("a", at), timestamp=at)
        harness.process(("b", 1), timestamp=1)
        harness.watermark(1_999)
        assert sorted(harness.take()) == [("a", 2_000, 1.5), ("b", 2_000, 0.5)]
        harness.end()
        assert harness.take() == [("a", 4_000, 0.5)]


def test_a_rate_may_go_by_the_wall_clock() -> None:
    with OperatorHarness(
        lambda s: keyed(s).rate("1 s", domain=TimeDomain.PROCESSING_TIME)
    ) as harness:
        harness.process_all([("a", 1), ("a", 2)])
        harness.advance_time(1_000)
        assert harness.take() == [("a", 1_000, 2.0)]


def joined(**options: Any) -> Any:
    return lambda left, right: keyed(left).as_of_join(keyed(right), **options)


def test_a_record_waits_for_the_newest_that_is_no_later() -> None:
    with OperatorHarness(joined(), inputs=2) as harness:
        harness.process(("a", "l5"), timestamp=5)
        harness.process(("a", "r3"), timestamp=3, source=1)
        harness.process(("a", "r6"), timestamp=6, source=1)
        harness.process(("b", "l5"), timestamp=5)
        harness.watermark(4)
        harness.process(("a", "r5"), timestamp=5, source=1)
        assert harness.output == []
        harness.watermark(5)
        assert sorted(harness.output, key=repr) == [
            ((("a", "l5"), ("a", "r5")), 5),
            ((("b", "l5"), None), 5),
        ]


def test_records_that_come_too_late_go_where_they_are_asked_to() -> None:
    with OperatorHarness(joined(late=LATE), inputs=2) as harness:
        harness.watermark(10)
        harness.process(("a", "l10"), timestamp=10)
        assert harness.take_side_output(LATE) == [("a", "l10")]
    with OperatorHarness(joined(), inputs=2) as harness:
        harness.watermark(10)
        harness.process(("a", "l10"), timestamp=10)
        harness.end()
        assert harness.take() == []


def test_records_without_event_time_are_refused() -> None:
    with OperatorHarness(joined(), inputs=2) as harness, pytest.raises(UserError) as raised:
        harness.process(("a", 1))
    assert "event time" in str(raised.value)


@pytest.mark.slow
@examples(60)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 30)), max_size=40
    ),
    cut=st.integers(0, 40),
    tolerance=st.none() | st.integers(0, 10),
)
def test_all_are_joined_as_plain_python_joins_them(
    rows: list[tuple[str, int, int]], cut: int, tolerance: int | None
) -> None:
    """Rows come up to 5 ms out of order; one restore, at another parallelism, is among them."""
    build = joined(tolerance=None if tolerance is None else f"{tolerance} ms")
    stamped = [(key, source, n + ahead % 6, n) for n, (key, source, ahead) in enumerate(rows)]
    found: list[Any] = []

    def feed(harness: OperatorHarness, part: list[Any]) -> None:
        for row in part:
            harness.process(row, timestamp=row[2], source=row[1])
            harness.watermark(row[3])
        found.extend(harness.take())

    with OperatorHarness(build, inputs=2, parallelism=2) as harness:
        feed(harness, stamped[:cut])
        snapshot = harness.snapshot()
    with OperatorHarness(build, inputs=2, parallelism=3, restore=snapshot) as harness:
        feed(harness, stamped[cut:])
        harness.end()
        found.extend(harness.take())
    sides = [[row for row in stamped if row[1] == source] for source in (0, 1)]
    assert sorted(found, key=repr) == sorted(as_of(sides[0], sides[1], tolerance), key=repr)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.top_n(0, by=str), "The n of top_n is 0"),
        (lambda s: s.top_n(1, by="points"), "top_n"),
        (lambda s: s.as_of_join(5), "as_of_join"),
        (lambda s: s.as_of_join(s, tolerance="soon"), "soon"),
        (lambda s: s.deduplicate("soon"), "soon"),
    ],
)
def test_wrong_calls_are_refused_at_the_call(call: Any, told: str) -> None:
    with pytest.raises(UserError) as raised:
        call(numbers(environment(KeepingRuntime())).key_by(str))
    assert told in str(raised.value)


def test_an_unkeyed_stream_says_what_is_missing() -> None:
    stream: Any = numbers(environment(KeepingRuntime()))
    with pytest.raises(AttributeError, match="call key_by first"):
        stream.deduplicate()
