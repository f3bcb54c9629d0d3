"""Timers: each once, in order, deletable, part of snapshots, at any parallelism."""

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.world import MAX_PARALLELISM, Subtask, restored, snapshot
from tidegate.errors import SerializerIncompatible, UserError
from tidegate.state.user.timers import TimerQueue
from tidegate.typeinfo.types import LONG, Types

KEYS = st.integers(0, 3)
TIMES = st.integers(-5, 20)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["register", "delete"]), KEYS, TIMES),
    st.tuples(st.just("due"), TIMES),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)


def event_timers(subtask: Subtask, alarms: list[int] | None = None) -> TimerQueue:
    return subtask.backend.timers(
        "user-timers", None, ([] if alarms is None else alarms).append
    ).event


def drawn(subtask: Subtask, timers: TimerQueue, until_ms: int) -> list[tuple[int, object]]:
    return [(ms, subtask.cell.key) for ms, _ in timers.due(until_ms)]


@pytest.mark.feature("F263")
@given(st.lists(ACTIONS, max_size=60))
def test_they_are_what_a_set_of_times_for_each_key_would_be(actions: list[Any]) -> None:
    subtasks = [Subtask()]
    timers = [event_timers(subtasks[0])]
    model: set[tuple[int, int]] = set()
    for action in actions:
        match action:
            case ("register" | "delete" as call, key, ms):
                at = next(index for index, each in enumerate(subtasks) if each.owns(key))
                subtasks[at].on(key)
                if call == "register":
                    timers[at].register(ms)
                    model.add((ms, key))
                else:
                    timers[at].delete(ms)
                    model.discard((ms, key))
            case ("due", ms):
                found = [drawn(*each, ms) for each in zip(subtasks, timers, strict=True)]
                assert all(each == sorted(each, key=lambda timer: timer[0]) for each in found)
                expected = {timer for timer in model if timer[0] <= ms}
                assert sorted(chain(*found)) == sorted(expected)
                model -= expected
            case _:
                (_, parallelism) = action
                states = [snapshot(subtask) for subtask in subtasks]
                subtasks = restored(states, parallelism, key_type=Types.LONG())
                timers = [event_timers(subtask) for subtask in subtasks]
    left = [drawn(*each, 100) for each in zip(subtasks, timers, strict=True)]
    assert sorted(chain(*left)) == sorted(model)


def test_what_is_set_and_taken_back_while_others_are_due_counts() -> None:
    subtask = Subtask().on("a")
    timers = event_timers(subtask)
    for ms in (1, 2, 3):
        timers.register(ms)
    seen: list[int] = []
    for ms, _ in timers.due(5):
        seen.append(ms)
        if ms == 1:
            timers.delete(2)
            timers.register(5)
            timers.register(6)
    assert seen == [1, 3, 5]
    assert timers.next_ms == 6


def test_many_deleted_ones_are_forgotten() -> None:
    subtask = Subtask().on("a")
    timers = event_timers(subtask)
    for ms in range(10_000):
        timers.register(ms)
        timers.delete(ms - 1)
    assert len(timers) < 200
    assert drawn(subtask, timers, 20_000) == [(9_999, "a")]


def test_a_namespace_tells_timers_of_one_time_apart() -> None:
    subtask = Subtask().on("a")
    timers = subtask.backend.timers("windows", LONG, list[int]().append).event
    for namespace in (7, 8, 7):
        timers.register(1, namespace)
    states = [snapshot(subtask)]
    again = restored(states, key_type=Types.STRING())[0]
    timers = again.backend.timers("windows", LONG, list[int]().append).event
    assert sorted(timers.due(1)) == [(1, 7), (1, 8)]


def test_an_alarm_tells_of_each_timer_that_is_the_next() -> None:
    alarms: list[int] = []
    subtask = Subtask().on("a")
    timers = subtask.backend.timers("user-timers", None, alarms.append).processing
    for ms in (50, 70, 30):
        timers.register(ms)
    assert alarms == [50, 30]
    assert drawn(subtask, timers, 40) == [(30, "a")]
    assert alarms[:2] == [50, 30]
    assert {*alarms[2:]} == {50}
    again = restored([snapshot(subtask)])[0]
    fresh: list[int] = []
    again.backend.timers("user-timers", None, fresh.append)
    assert fresh == [50]


def test_the_alarm_for_what_comes_next_does_not_wait_for_a_draw_to_run_out() -> None:
    alarms: list[int] = []
    timers = Subtask().on("a").backend.timers("user-timers", None, alarms.append).processing
    for ms in (30, 50):
        timers.register(ms)
    assert next(timers.due(40)) == (30, None)
    assert alarms == [30, 50]


@pytest.mark.parametrize("time", [1.5, "1", None, True, 2**63])
def test_what_is_no_time_is_refused(time: Any) -> None:
    timers = event_timers(Subtask().on("a"))
    with pytest.raises(UserError, match=r"(?s)cannot be set for .* key 'a'"):
        timers.register(time)


def test_without_a_key_there_are_none() -> None:
    with pytest.raises(UserError, match="without a current key"):
        event_timers(Subtask()).register(1)


def test_timers_do_not_fit_those_of_another_namespace() -> None:
    subtask = Subtask().on("a")
    event_timers(subtask).register(1)
    again = restored([snapshot(subtask)], max_parallelism=MAX_PARALLELISM)[0]
    with pytest.raises(SerializerIncompatible, match="namespaces"):
        again.backend.timers("user-timers", LONG, list[int]().append)
