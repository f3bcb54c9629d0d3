"""Calls in flight: in which order they leave, whichever order they are done in."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.elements import Watermark, WatermarkStatus
from tidegate.operators.async_calls.async_queue import (
    Call,
    CallQueue,
    OrderedQueue,
    TimeMark,
    UnorderedQueue,
)

IDLE, ACTIVE = WatermarkStatus(idle=True), WatermarkStatus(idle=False)

COMES = st.one_of(
    st.just("call"),
    st.integers(1, 9).map(Watermark),
    st.sampled_from([IDLE, ACTIVE]),
    st.integers(0, 9),
)
"""A record, a mark, or the n-th of the calls under way is done."""


def left(queue: CallQueue) -> list[Call | TimeMark]:
    """What leaves now."""
    found: list[Call | TimeMark] = []
    while (head := queue.head()) is not None:
        queue.pop()
        found.append(head)
    return found


def finish(queue: CallQueue, call: Call) -> None:
    call.results = []
    queue.done(call)


def lived(
    queue: CallQueue, script: list[object]
) -> tuple[list[Call | TimeMark], list[Call | TimeMark]]:
    """What came, and what left, in order; in the end every call is done."""
    came: list[Call | TimeMark] = []
    went: list[Call | TimeMark] = []
    under_way: list[Call] = []
    for each in script:
        if each == "call":
            call = Call(len(came), None)
            queue.add(call)
            came.append(call)
            under_way.append(call)
        elif isinstance(each, Watermark | WatermarkStatus):
            queue.mark(each)
            came.append(each)
        elif under_way:
            finish(queue, under_way.pop(int(str(each)) % len(under_way)))
        went += left(queue)
        waiting = [call for call in came if isinstance(call, Call) and call not in went]
        assert list(queue.calls()) == waiting, "what has not left is kept, in its order"
    for call in under_way:
        finish(queue, call)
    went += left(queue)
    assert queue.empty
    return came, went


def without_repeated_watermarks(line: list[Call | TimeMark]) -> list[Call | TimeMark]:
    """Of watermarks that follow each other the last one."""
    kept: list[Call | TimeMark] = []
    for each in line:
        if kept and isinstance(each, Watermark) and isinstance(kept[-1], Watermark):
            kept.pop()
        kept.append(each)
    return kept


def stretches(line: list[Call | TimeMark]) -> list[object]:
    """Marks, and between them which calls there are."""
    found: list[object] = [set()]
    for each in line:
        if isinstance(each, Call):
            found[-1].add(each.value)  # type: ignore[attr-defined]
        else:
            found += [each, set()]
    return found


@given(st.lists(COMES, max_size=30))
def test_in_order_all_leaves_as_it_came(script: list[object]) -> None:
    came, went = lived(OrderedQueue(), script)
    assert without_repeated_watermarks(went) == without_repeated_watermarks(came)


@given(st.lists(COMES, max_size=30))
def test_without_order_calls_stay_between_their_marks(script: list[object]) -> None:
    came, went = lived(UnorderedQueue(), script)
    kept = without_repeated_watermarks(came), without_repeated_watermarks(went)
    assert stretches(kept[1]) == stretches(kept[0])


def test_without_order_calls_leave_as_they_are_done() -> None:
    queue = UnorderedQueue()
    first, second, third = (Call(n, None) for n in range(3))
    for call in (first, second):
        queue.add(call)
    queue.mark(Watermark(5))
    queue.add(third)
    finish(queue, third)
    queue.mark(Watermark(6))
    finish(queue, second)
    assert left(queue) == [second]
    finish(queue, first)
    assert left(queue) == [first, Watermark(5), third, Watermark(6)]


def test_watermarks_behind_a_call_that_takes_long_do_not_pile_up() -> None:
    for queue in (OrderedQueue(), UnorderedQueue()):
        call = Call(0, None)
        queue.add(call)
        for ms in range(1_000):
            queue.mark(Watermark(ms))
        finish(queue, call)
        assert left(queue) == [call, Watermark(999)]
