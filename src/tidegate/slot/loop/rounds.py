"""The rounds of a slot's loop: turns of subtasks, slices of snapshots, and rest.

The loop yields by time, not by batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tidegate.errors import CallInterrupted, as_error
from tidegate.model.control import ExecutionState
from tidegate.slot.loop.calls import Calls
from tidegate.slot.loop.courtesy import Courtesy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.clock import Clock
    from tidegate.model.ids import CheckpointId, ExecutionId
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot
    from tidegate.slot.subtask.subtask import Subtask

SATURATED_S = 0.05
"""The slot is saturated once work has been waiting at each look for so long.

A record that finds the loop encoding is no backlog: with long slices at once, each record that
comes during a checkpoint would wait for one.
"""

COURTESY_S = 0.001
"""How soon the loop looks again whether slow calls have to wait for a checkpoint any longer."""


class Rounds:
    """Gives turns to the subtasks of a slot, and time to the snapshots that they have cut.

    subtasks: those that are not over. calls: says in whose code the loop is.
    """

    def __init__(self, clock: Clock) -> None:
        self.subtasks: dict[ExecutionId, Subtask] = {}
        self.calls = Calls()
        self.courtesy = Courtesy(self._is_open)
        self._clock = clock
        self._ready: deque[Subtask] = deque()
        self._listed: set[ExecutionId] = set()
        self._can_turn = False
        self._encoding: deque[SubtaskSnapshot] = deque()
        self._caught_up_s = clock.precise_s()
        self._wake = asyncio.Event()

    # --- who has the next turn ---

    def list(self, execution: ExecutionId) -> None:
        """Give a subtask a turn, if it is not over."""
        subtask = self.subtasks.get(execution)
        if subtask is not None:
            self._list(subtask)

    def _list(self, subtask: Subtask) -> None:
        if subtask.execution not in self._listed:
            self._listed.add(subtask.execution)
            self._ready.append(subtask)
        self._wake.set()

    def is_listed(self, execution: ExecutionId) -> bool:
        """True if a subtask waits for a turn."""
        return execution in self._listed

    def wake(self) -> None:
        self._wake.set()

    def encode(self, snapshot: SubtaskSnapshot) -> None:
        self._encoding.append(snapshot)
        self._wake.set()

    def forget(self, execution: ExecutionId) -> None:
        del self.subtasks[execution]
        self.courtesy.forget(execution)

    # --- work ---

    @property
    def has_work(self) -> bool:
        """True if the next round would do something."""
        return self._can_turn or self._can_encode

    @property
    def has_waiting(self) -> bool:
        """True if subtasks would have turns, did they not wait for a checkpoint."""
        return bool(self._ready)

    def work(self, settings: SlotSettings) -> None:
        """Turns of the ready subtasks, until none is ready or it is time to yield; then a slice."""
        clock, ready = self._clock, self._ready
        until_s = clock.precise_s() + settings.yield_ms / 1000
        waiting: list[Subtask] = []
        while ready:
            subtask = ready.popleft()
            self._listed.discard(subtask.execution)
            if self._waits(subtask):
                waiting.append(subtask)
                continue
            if (work := subtask.next_work()) is not None:
                self._turn(subtask, work)
                if subtask.runnable:
                    self._list(subtask)
            if clock.precise_s() >= until_s:
                break
        self._can_turn = bool(ready)
        for subtask in waiting:
            self._list(subtask)
        if waiting and not self._can_turn:
            self._wake.clear()  # which only the waiting ones have set
        if settings.buffer_timeout_ms >= 0:
            flush_before_ms = clock.monotonic_ms() - settings.buffer_timeout_ms
            for subtask in self._gathering():
                self.act(subtask, partial(subtask.outputs.flush_older_than, flush_before_ms))
        if not ready:
            self._caught_up_s = clock.precise_s()
        if self._can_encode:
            # Slices are long while the input waits anyway.
            saturated = clock.precise_s() - self._caught_up_s > SATURATED_S
            self._encode(settings.slice_busy_ms if saturated else settings.slice_idle_ms)

    def _waits(self, subtask: Subtask) -> bool:
        waits = self.courtesy.waits(subtask.execution, self._clock.precise_s())
        return waits and not subtask.is_urgent

    def _is_open(self, checkpoint: CheckpointId) -> bool:
        return any(subtask.owes(checkpoint) for subtask in self.subtasks.values())

    def _turn(self, subtask: Subtask, work: Callable[[], None]) -> None:
        is_urgent, began_s = subtask.is_urgent, self._clock.precise_s()
        self.act(subtask, lambda: subtask.turn(work))
        if not is_urgent:
            self.courtesy.called(subtask.execution, self._clock.precise_s() - began_s)

    @property
    def _can_encode(self) -> bool:
        return bool(self._encoding) and not self._encoding[0].is_held_up

    def _encode(self, budget_ms: float) -> None:
        if self._encoding[0].encode(budget_ms):
            self._encoding.popleft()

    def _gathering(self) -> Iterator[Subtask]:
        """Subtasks that have rows to flush. Each is looked at behind the call of the one before."""
        for subtask in list(self.subtasks.values()):
            if subtask.outputs.gathers and not subtask.state.is_terminal:
                yield subtask

    def act(self, subtask: Subtask, call: Callable[[], None]) -> None:
        """Call a subtask's code; errors are its failure, or the end that was asked for."""
        outer = self.calls.begin(subtask.execution, self._clock.monotonic_ms())
        try:
            try:
                call()
            finally:
                self.calls.end(outer)  # what follows is our own, and not to be broken off
        except CallInterrupted:
            subtask.end(ExecutionState.CANCELED)
        except BaseException as raised:
            subtask.fail(as_error(raised))

    # --- rest ---

    def flush(self) -> None:
        for subtask in self._gathering():
            self.act(subtask, subtask.outputs.flush)

    async def rest(self) -> None:
        """Nothing to do: wait for the network, a timer or the pool."""
        if not self._ready:
            self._wake.clear()
            await self._wake.wait()
            self._caught_up_s = self._clock.precise_s()

    async def rest_shortly(self) -> None:
        """Slow calls wait for a checkpoint: let it go on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COURTESY_S):
                await self._wake.wait()
