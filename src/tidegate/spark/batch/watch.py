"""Attempts of the tasks of a batch as they tell of themselves, and which of them counts.

Spark runs a task again where it has died, and may run it twice at once, so of each subtask there is
as much as its best attempt has done: one that has finished, else the newest that runs.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.driver.links import Questions
from tidegate.errors import SlotLost
from tidegate.jobmaster.view import SlotView
from tidegate.model.control import (
    ExecutionState,
    Logged,
    Pulse,
    Samples,
    SubtaskChanged,
    SubtaskFigures,
    TaskBegan,
    Threads,
)

if TYPE_CHECKING:
    from tidegate.clock import Clock
    from tidegate.errors import PeerLost, TidegateError
    from tidegate.model.control import ToSlot
    from tidegate.model.ids import ExecutionId, SlotId, SubtaskId, VertexId
    from tidegate.model.metrics import Metrics
    from tidegate.transport.wire import Wire

ATTEMPTS_MAX: Final = 8
"""Attempts of one subtask that are remembered, the newest ones."""


class TaskListener(Protocol):
    """Hears what concerns the job as a whole. Called on the driver's loop."""

    @property
    def is_ending(self) -> bool:
        """True once the job is cancelled or over: tasks that are lost then were ended."""
        ...

    def logged(self, message: Logged) -> None: ...

    def task_failed(
        self, subtask: SubtaskId, slot: SlotId, error: TidegateError, *, again: bool
    ) -> None:
        """An attempt has failed. again: Spark may run the task once more."""
        ...


@dataclass(slots=True)
class SeenTask:
    """One attempt. number: how many came before it. entered_ms: wall clock, by state."""

    began: TaskBegan
    number: int
    entered_ms: dict[ExecutionState, int]
    heard_ms: int
    state: ExecutionState = ExecutionState.RUNNING
    figures: SubtaskFigures = field(default_factory=SubtaskFigures)
    metrics: Metrics = field(default_factory=dict)

    @property
    def rank(self) -> tuple[int, int]:
        """The greatest of a subtask's attempts counts."""
        if self.state is ExecutionState.FINISHED:
            return 2, self.number
        return int(not self.state.is_terminal), self.number

    def enter(self, state: ExecutionState, at_ms: int) -> None:
        self.state = state
        self.entered_ms[state] = at_ms


class TaskWatch:
    """Takes links from tasks, on the driver's loop. Any thread may look.

    listener: hears what is not figures. questions: to tasks that run, for coroutines of the loop.
    quiet: is set while there is no link.
    """

    def __init__(self, clock: Clock, listener: TaskListener) -> None:
        self._clock = clock
        self._listener = listener
        self._lock = threading.Lock()
        self._attempts: dict[SubtaskId, list[SeenTask]] = {}
        self._tasks: dict[SlotId, SeenTask] = {}
        self._begun: dict[SubtaskId, int] = {}
        self._stages: dict[VertexId, int] = {}
        self._links: set[_TaskLink] = set()
        self.questions: Final = Questions(self._ask)
        self.quiet: Final = asyncio.Event()
        self.quiet.set()
        self._by_slot: dict[SlotId, _TaskLink] = {}

    def accept(self, wire: Wire) -> _TaskLink:
        link = _TaskLink(self, wire)
        self._links.add(link)
        self.quiet.clear()
        return link

    def _ask(self, slot: SlotId, question: ToSlot) -> None:
        if (link := self._by_slot.get(slot)) is not None:
            link.wire.send([pickle.dumps(question, protocol=5)])

    def close(self) -> None:
        """End the links that are left. Nothing that happens now is a failure."""
        self._by_slot.clear()
        for each in list(self._links):
            each.wire.close()

    # --- for those who look ---

    def task(self, subtask: SubtaskId) -> SeenTask | None:
        """The attempt that counts."""
        with self._lock:
            known = self._attempts.get(subtask)
            if not known:
                return None
            best = max(known, key=lambda each: each.rank)
            return replace(best, entered_ms=dict(best.entered_ms))

    def stage(self, vertex: VertexId) -> int | None:
        """Spark's number of the stage that runs a vertex; None before its first task."""
        return self._stages.get(vertex)

    @property
    def ran_again(self) -> bool:
        """True if tasks of one subtask have begun more than once."""
        with self._lock:
            return any(begun > 1 for begun in self._begun.values())

    def slots(self) -> tuple[SlotView, ...]:
        """Tasks that run now, each as the slot of its subtask."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            tasks = [each for each in self._tasks.values() if not each.state.is_terminal]
        return tuple(
            SlotView(each.began.slot, each.began.host, each.began.pid, now_ms - each.heard_ms, 0)
            for each in tasks
        )

    # --- for the links ---

    def heard(self, message: object, link: _TaskLink) -> None:
        match message:
            case TaskBegan():
                link.slot = message.slot
                self._by_slot[message.slot] = link
                self._began(message)
            case Logged():
                self._listener.logged(message)
            case Pulse():
                for execution, figures in message.figures.items():
                    self._told(execution, figures, message.metrics.get(execution, {}))
            case SubtaskChanged():
                self._ended(message)
            case Threads() | Samples():
                self.questions.heard(message)
            case _:
                raise AssertionError(f"no task says {message!r}")

    def _began(self, began: TaskBegan) -> None:
        subtask, at_ms = began.execution.subtask, self._clock.wall_ms()
        with self._lock:
            self._stages[subtask.vertex] = began.stage
            task = self._tasks.get(began.slot)
            if task is not None:  # its link was broken, and it runs on
                task.state = ExecutionState.RUNNING
                return
            number = self._begun.get(subtask, 0)
            self._begun[subtask] = number + 1
            entered = {ExecutionState.DEPLOYING: at_ms, ExecutionState.RUNNING: at_ms}
            task = SeenTask(began, number, entered, self._clock.monotonic_ms())
            self._tasks[began.slot] = task
            attempts = self._attempts.setdefault(subtask, [])
            attempts.append(task)
            for former in attempts[:-ATTEMPTS_MAX]:
                attempts.remove(former)
                self._tasks.pop(former.began.slot, None)

    def _told(self, execution: ExecutionId, figures: SubtaskFigures, metrics: Metrics) -> None:
        with self._lock:
            if (task := self._of(execution)) is not None:
                task.heard_ms = self._clock.monotonic_ms()
                task.figures, task.metrics = figures, metrics

    def _ended(self, message: SubtaskChanged) -> None:
        with self._lock:
            if (task := self._of(message.execution)) is None:
                return
            task.enter(message.state, self._clock.wall_ms())
            if message.figures is not None:
                task.figures, task.metrics = message.figures, message.metrics
        if message.error is not None:
            subtask, slot = message.execution.subtask, task.began.slot
            self._listener.task_failed(subtask, slot, message.error, again=False)

    def _of(self, execution: ExecutionId) -> SeenTask | None:
        attempts = self._attempts.get(execution.subtask, ())
        return next((each for each in attempts if each.began.execution == execution), None)

    def gone(self, link: _TaskLink) -> None:
        """A link has ended; its task too, or it dials again."""
        self._links.discard(link)
        if not self._links:
            self.quiet.set()
        slot = link.slot
        if slot is None or self._by_slot.get(slot) is not link:
            return
        del self._by_slot[slot]
        with self._lock:
            task = self._tasks.get(slot)
            if task is None or task.state.is_terminal:
                return
            ended = self._listener.is_ending
            state = ExecutionState.CANCELED if ended else ExecutionState.FAILED
            task.enter(state, self._clock.wall_ms())
            subtask = task.began.execution.subtask
            others = any(each.rank > task.rank for each in self._attempts[subtask])
        if not others:
            self._listener.task_failed(subtask, slot, _lost(task.began), again=True)


class _TaskLink:
    """The link of one task. slot: its name, once it has said it."""

    def __init__(self, watch: TaskWatch, wire: Wire) -> None:
        self._watch = watch
        self.wire = wire
        self.slot: SlotId | None = None

    def on_frame(self, frame: memoryview) -> None:
        self._watch.heard(pickle.loads(frame), self)

    def on_closed(self, error: PeerLost | None) -> None:
        self._watch.gone(self)


def _lost(began: TaskBegan) -> SlotLost:
    return SlotLost(
        f"The task's process {began.pid} on {began.host} has ended without a word",
        where=f"Spark's stage {began.stage}",
        remedy="Spark runs the task again, spark.task.maxFailures times at most in all. See the "
        "executor's log, and whether its machine ran out of memory.",
    )
