"""Loops around calls: compiled they draw the same results, and fail with the same error."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.api.output_tag import OutputTag
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.loops.forms import Loops
from tidegate.operators.row_loop import user_call
from tidegate.typeinfo.copies import private_copy

FORMS = both_forms()
SIDE = OutputTag("side")
ENDS = ("returns", "raises", "returns a value", "stops", "refuses")
RESULTS = st.lists(st.integers(0, 9) | st.lists(st.integers(), max_size=2), max_size=4)
CALLS = st.lists(
    st.tuples(st.sampled_from(["list", "tuple", "iterator"]), RESULTS, st.just("returns"))
    | st.tuples(st.just("generator"), RESULTS, st.sampled_from(ENDS))
    | st.tuples(st.just("raises"), st.just([]), st.sampled_from(ENDS[1:]))
    | st.tuples(st.sampled_from(["none", "text", "bytes", "number", "side"]), RESULTS, st.just("")),
    min_size=1,
    max_size=6,
)


class Function:
    """A user's function that does at each row what it is told; notes what stands in the cell."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self.seen: list[object] = []

    def of_row(self, value: Any, context: object) -> object:
        assert context == "context"
        return self.of_value(value)

    def of_value(self, value: Any) -> object:
        cell = self._cell
        self.seen.append((value, cell.key, cell.group, cell.timestamp_ms))
        kind, results, end = value
        match kind:
            case "none":
                return None
            case "text":
                return "text"
            case "bytes":
                return b"text"
            case "number":
                return 5
            case "side":
                return [(SIDE, each) for each in results]
            case "list":
                return results
            case "tuple":
                return tuple(results)
            case "iterator":
                return iter(results)
            case "raises":
                return finished(end)
            case _:
                return generated(results, end)


def generated(results: list[object], end: str) -> Iterator[object]:
    yield from results
    return finished(end)


def finished(end: str) -> Any:
    match end:
        case "raises":
            raise ValueError("a fault of the user's")
        case "stops":
            raise StopIteration(3)
        case "refuses":
            raise UserCodeFailed("one of ours", where="here")
        case "returns a value":
            return 7
        case _:
            return None


Outcome = tuple[list[object], str, str, list[object]]


def outcome(results: Iterator[object], pieces: int, function: Function) -> Outcome:
    """What was drawn in pieces, the error with its traceback, and what the function saw."""
    drawn: list[object] = []
    try:
        while len(piece := list(islice(results, pieces))) == pieces:
            drawn += piece
        drawn += piece
    except TidegateError as error:
        again = list(results)
        assert again == [], "nothing comes after a failure"
        text = f"{error}\n{error.__cause__!r}"
        return drawn, text, getattr(error, "trace", ""), function.seen
    return drawn, "", "", function.seen


def of_rows(loops: Loops, calls: list[Any], pieces: int, *, copied: bool) -> Outcome:
    cell = loops.key_cell()
    function = Function(cell)
    own = private_copy if copied else None
    user = user_call(function.of_row, own, loops, operator="calls")
    count = len(calls)
    keys, groups = [f"key {at}" for at in range(count)], list(range(count))
    stamps = [None if at % 2 else at for at in range(count)]
    results = loops.results_of_rows(user, "context", cell, calls, keys, groups, stamps)
    return outcome(results, pieces, function)


def of_values(loops: Loops, calls: list[Any], pieces: int, *, copied: bool) -> Outcome:
    cell = loops.key_cell()
    function = Function(cell)
    own = private_copy if copied else None
    user = user_call(function.of_value, own, loops, operator="calls")
    results = loops.results_of_values(user, cell, calls, [None] * len(calls))
    return outcome(results, pieces, function)


@pytest.mark.parametrize("run", [of_rows, of_values])
@examples(400)
@given(calls=CALLS, pieces=st.integers(1, 5), copied=st.booleans())
def test_both_forms_draw_the_same_and_fail_alike(
    run: Any, calls: list[Any], pieces: int, copied: bool
) -> None:
    plain, fast = (run(form, calls, pieces, copied=copied) for form in FORMS)
    assert fast == plain


def of_timers(loops: Loops, ends: list[str]) -> Outcome:
    cell = loops.key_cell()
    seen = Function(cell)

    def on_timer(ms: int, context: object) -> Iterator[object]:
        seen.seen.append((ms, cell.key, cell.group, cell.timestamp_ms))
        yield ms
        return finished(ends[ms])

    def due() -> Iterator[tuple[int, object]]:
        for ms in range(len(ends)):
            cell.key, cell.group = f"key {ms}", ms
            yield ms, None

    user = user_call(on_timer, None, loops, operator="calls", call_name="on_timer")
    return outcome(loops.results_of_timers(user, "context", cell, due()), 2, seen)


@given(ends=st.lists(st.sampled_from(ENDS), max_size=5))
def test_timers_fire_alike_in_both_forms(ends: list[str]) -> None:
    plain, fast = (of_timers(form, ends) for form in FORMS)
    assert fast == plain


class Timed:
    """Gives results, each at a time of its own."""

    def __init__(self, count: int, fails: bool) -> None:
        self.timestamp_ms = 0
        self._count = count
        self._fails = fails

    def __iter__(self) -> Iterator[int]:
        for ms in range(self._count):
            self.timestamp_ms = ms
            yield -ms
        if self._fails:
            raise ValueError("after the last")


@given(count=st.integers(0, 5), wanted=st.integers(0, 6), fails=st.booleans())
def test_results_have_the_time_of_their_moment(count: int, wanted: int, fails: bool) -> None:
    for form in FORMS:
        timed = Timed(count, fails)
        values: list[Any] = []
        stamps: list[Any] = []
        if fails and wanted > count:
            with pytest.raises(ValueError, match="after the last"):
                form.draw_with_times(iter(timed), wanted, timed, values, stamps)
        else:
            form.draw_with_times(iter(timed), wanted, timed, values, stamps)
        drawn = min(count, wanted)
        assert (values, stamps) == ([-ms for ms in range(drawn)], list(range(drawn)))


def test_a_loop_that_is_given_up_closes_the_users_generator() -> None:
    for form in FORMS:
        closed: list[str] = []

        def function(value: object, context: object, closed: list[str] = closed) -> Iterator[int]:
            try:
                yield from range(5)
            finally:
                closed.append("closed")

        cell = form.key_cell()
        user = user_call(function, None, form, operator="calls")
        results = form.results_of_rows(user, None, cell, ["row"], ["key"], [0], [None])
        assert list(islice(results, 2)) == [0, 1]
        assert closed == []
        del results
        assert closed == ["closed"]


@given(fits=st.lists(st.booleans(), max_size=4))
def test_a_reduce_brings_only_results_of_other_types(fits: list[bool]) -> None:
    for form in FORMS:
        reduce = form.typed_reduce(lambda old, new: new, tuple, lambda value: ("brought", value))
        for fit in fits:
            assert reduce(None, () if fit else []) == (() if fit else ("brought", []))
