"""How long a slot encodes a snapshot between two looks at its input."""

from types import SimpleNamespace
from typing import Any, cast

from tidegate.model.control import ExecutionState
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId, VertexId
from tidegate.model.settings import SlotSettings
from tidegate.slot.loop.rounds import SATURATED_S, Rounds
from tidegate.testing.clock import ManualClock

EXECUTION = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))
SETTINGS = SlotSettings(slice_idle_ms=0.3, slice_busy_ms=10.0)


class Snapshot:
    """One that is never encoded; notes how long each slice may be."""

    is_held_up = False

    def __init__(self) -> None:
        self.slices: list[float] = []

    def encode(self, budget_ms: float) -> bool:
        self.slices.append(budget_ms)
        return False


class Loop:
    """A slot's rounds with one subtask, each of whose turns takes longer than a round."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rounds = Rounds(self.clock)
        self.snapshot = Snapshot()
        self.runnable = False
        self.rounds.encode(cast("Any", self.snapshot))
        outputs = SimpleNamespace(gathers=False)
        subtask = SimpleNamespace(
            execution=EXECUTION,
            is_urgent=False,
            state=ExecutionState.RUNNING,
            outputs=outputs,
            next_work=lambda: lambda: self.clock.advance(ms=5),
            turn=lambda work: work(),
        )
        # As a subtask's own: it is asked behind each turn.
        loop = self

        class Fed(SimpleNamespace):
            @property
            def runnable(self) -> bool:
                return loop.runnable

        self.rounds.subtasks[EXECUTION] = cast("Any", Fed(**vars(subtask)))

    def round(self, *, more: bool) -> float:
        """A turn for a batch, with or without another one behind it; the slice that follows."""
        self.runnable = more
        self.rounds.list(EXECUTION)
        self.rounds.work(SETTINGS)
        return self.snapshot.slices[-1]


def test_a_batch_that_came_during_a_slice_is_no_backlog() -> None:
    loop = Loop()
    for _ in range(100):
        assert loop.round(more=True) == SETTINGS.slice_idle_ms
        assert loop.round(more=False) == SETTINGS.slice_idle_ms


def test_slices_are_long_once_the_input_has_waited_at_each_look_for_a_while() -> None:
    loop = Loop()
    rounds = int(SATURATED_S / 0.005)
    assert [loop.round(more=True) for _ in range(rounds)] == [SETTINGS.slice_idle_ms] * rounds
    assert loop.round(more=True) == SETTINGS.slice_busy_ms
    assert loop.round(more=False) == SETTINGS.slice_idle_ms
    assert loop.round(more=True) == SETTINGS.slice_idle_ms


class Gathering(SimpleNamespace):
    """A subtask with rows to flush, or without; notes how it is asked to."""

    def __init__(self, number: int, *, gathers: bool) -> None:
        self.flushed: list[object] = []
        self.execution = EXECUTION._replace(attempt=Attempt(number))
        self.state = ExecutionState.RUNNING
        self.outputs = SimpleNamespace(
            gathers=gathers,
            flush=lambda: self.flushed.append("all"),
            flush_older_than=self.flushed.append,
        )


def test_subtasks_that_gather_nothing_are_not_asked_to_flush() -> None:
    clock = ManualClock()
    rounds = Rounds(clock)
    gathering, empty = Gathering(0, gathers=True), Gathering(1, gathers=False)
    for subtask in (gathering, empty):
        rounds.subtasks[subtask.execution] = cast("Any", subtask)
    rounds.work(SETTINGS)
    rounds.flush()
    older_than_ms = clock.monotonic_ms() - SETTINGS.buffer_timeout_ms
    assert (gathering.flushed, empty.flushed) == ([older_than_ms, "all"], [])
