"""Event time that stands still is told once, with the input that holds it back."""

from dataclasses import replace
from typing import Any

from tests.demo.views import EMPTY
from tidegate.jobmaster.standstill import STANDSTILL_MS, Standstills
from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, SubtaskFigures
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.ids import ChannelId, VertexId
from tidegate.model.topology import Edge, Partitioner

A, B, WINDOW, LATER = (VertexId(bytes([n]) * 16) for n in range(4))
EDGES = (
    Edge(A, WINDOW, Partitioner.HASH, 0),
    Edge(B, WINDOW, Partitioner.HASH, 0),
    Edge(WINDOW, LATER, Partitioner.HASH, 0),
    Edge(A, LATER, Partitioner.HASH, 0),
)


def vertex(vertex_id: VertexId, name: str, **figures: Any) -> VertexView:
    state = ExecutionState.RUNNING
    subtask = SubtaskView(0, 1, state, None, {}, SubtaskFigures(**figures))
    return VertexView(vertex_id, name, 2, 128, (subtask,))


def seen(reached_ms: int, furthest_ms: int, *, later_ms: int | None = None) -> JobView:
    """A window that B holds back, and a step behind it and A."""
    held = (ChannelId(1, 1, 0),) if furthest_ms > reached_ms else ()
    window = vertex(
        WINDOW, "Window", watermark_ms=reached_ms, furthest_ms=furthest_ms, held_by=held
    )
    behind = reached_ms if later_ms is None else later_ms
    waits = (ChannelId(2, 0, 0),) if furthest_ms > behind else ()
    later = vertex(LATER, "Later", watermark_ms=behind, furthest_ms=furthest_ms, held_by=waits)
    vertices = (vertex(A, "Source: a"), vertex(B, "Source: b"), window, later)
    return replace(EMPTY, vertices=vertices, edges=EDGES)


def test_the_silent_input_is_told_once_and_not_what_stands_behind_it() -> None:
    standstills = Standstills()
    for second in range(10):
        assert standstills.look(seen(5, 100 + second), second * 1_000) == []
    (told,) = standstills.look(seen(5, 200), STANDSTILL_MS)
    assert (told.step, told.silent) == ("Window", "Source: b (2/2)")
    assert (told.watermark_ms, told.for_ms) == (5, STANDSTILL_MS)
    assert standstills.look(seen(5, 300), 2 * STANDSTILL_MS) == []


def test_it_is_told_again_after_event_time_went_on_in_between() -> None:
    standstills = Standstills()
    for now_ms in range(0, STANDSTILL_MS + 1, 1_000):
        found = standstills.look(seen(5, now_ms + 6), now_ms)
    assert len(found) == 1
    start_ms = STANDSTILL_MS + 1_000
    for now_ms in range(0, STANDSTILL_MS + 1, 1_000):
        found = standstills.look(seen(6, start_ms + now_ms), start_ms + now_ms)
    assert len(found) == 1


def test_event_time_that_never_began_counts_too() -> None:
    standstills = Standstills()
    standstills.look(seen(MIN_TIMESTAMP_MS, 1), 0)
    (told,) = standstills.look(seen(MIN_TIMESTAMP_MS, 2), STANDSTILL_MS)
    assert told.watermark_ms == MIN_TIMESTAMP_MS


def test_where_all_inputs_rest_or_event_time_advances_nothing_is_told() -> None:
    resting, advancing = Standstills(), Standstills()
    for now_ms in range(0, 5 * STANDSTILL_MS, 1_000):
        assert resting.look(seen(5, 100), now_ms) == []
        assert advancing.look(seen(now_ms, now_ms + 50_000), now_ms) == []


def test_a_subtask_that_was_restarted_begins_anew() -> None:
    standstills = Standstills()
    standstills.look(seen(5, 100), 0)
    view = seen(5, 200)
    stopped = tuple(
        replace(v, subtasks=(replace(v.subtasks[0], state=ExecutionState.DEPLOYING),))
        for v in view.vertices
    )
    assert standstills.look(replace(view, vertices=stopped), STANDSTILL_MS) == []
    assert standstills.look(seen(5, 300), STANDSTILL_MS + 1) == []
