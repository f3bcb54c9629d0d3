"""Which call a slot is in, and how it is broken off: by the handler of a signal, played here."""

from collections.abc import Iterator
from types import FrameType, FunctionType

import pytest

from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId, VertexId
from tidegate.slot.loop.calls import CallInterrupted, Calls


def execution(index: int) -> ExecutionId:
    return ExecutionId(SubtaskId(VertexId(b"v"), index), Attempt(1), Epoch(1))


def frame_in(module: str) -> FrameType:
    """What a signal would interrupt in code of that module."""

    def here() -> Iterator[None]:
        yield

    return FunctionType(here.__code__, {"__name__": module})().gi_frame  # type: ignore[no-any-return]


USERS, OURS = "orders", "tidegate.state.heap.in_memory"


def test_a_call_of_a_cancelled_subtask_is_broken_off_in_code_that_is_not_ours() -> None:
    calls = Calls()
    calls.begin(execution(0), 1)
    with pytest.raises(CallInterrupted):
        calls.interrupt([execution(0)], frame_in(USERS))


def test_our_own_code_is_never_broken_off_but_the_next_signal_finds_the_users() -> None:
    calls = Calls()
    calls.begin(execution(0), 1)
    calls.interrupt([execution(0)], frame_in(OURS))
    with pytest.raises(CallInterrupted):
        calls.interrupt([], frame_in(USERS))


def test_a_call_of_another_subtask_goes_on() -> None:
    calls = Calls()
    calls.begin(execution(1), 1)
    calls.interrupt([execution(0)], frame_in(USERS))
    assert calls.current is not None and calls.current.began_ms == 1
    calls.end(None)
    calls.interrupt([execution(1)], frame_in(USERS))
    assert calls.current is None


def test_a_call_within_a_call_leaves_the_outer_one_to_be_seen() -> None:
    calls = Calls()
    assert calls.current is None
    outer = calls.begin(execution(0), 1)
    inner = calls.begin(execution(0), 5)
    assert calls.current is not None and calls.current.began_ms == 5
    calls.end(inner)
    assert calls.current is not None and calls.current.began_ms == 1
    calls.end(outer)
    assert calls.current is None


def test_closing_is_told_and_not_broken_off() -> None:
    told: list[tuple[ExecutionId, bool]] = []
    calls = Calls()
    calls.watched_by(lambda execution, over: told.append((execution, over)))
    calls.begin(execution(0), 1)
    calls.closing(execution(0))
    calls.interrupt([execution(0)], frame_in(USERS))
    outer = calls.begin(execution(0), 7, closes=True)
    calls.interrupt([], frame_in(USERS))
    assert calls.current is not None and calls.current.began_ms == 7
    calls.end(outer)
    calls.closed(execution(0))
    assert told == [(execution(0), False), (execution(0), True)]
