"""The snapshots of a slot's subtasks: encoded one after the other, written beside the work."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tidegate.errors import CheckpointAborted
from tidegate.model.control import CheckpointAcknowledged, CheckpointDeclined
from tidegate.model.failure_reason import FailureReason
from tidegate.slot.failures import as_ours
from tidegate.storage.places import CheckpointPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate.model.control import ToDriver
    from tidegate.model.ids import CheckpointId, ExecutionId
    from tidegate.slot.slot import World
    from tidegate.slot.subtask.hosting import Hosted
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot
    from tidegate.storage.checkpoints import CheckpointStorageWorkerView


class Snapshots:
    """The snapshots that are on their way, from their cut to their acknowledgement.

    send: to the driver. beside: runs to the end, whatever becomes of the subtasks. wake: called
    when there may be something to encode.
    """

    def __init__(
        self,
        world: World,
        send: Callable[[ToDriver], None],
        beside: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        wake: Callable[[], None],
    ) -> None:
        self._world = world
        self._send = send
        self._beside = beside
        self._wake = wake
        self._encoding: deque[SubtaskSnapshot] = deque()
        self._by_execution: dict[ExecutionId, dict[CheckpointId, SubtaskSnapshot]] = {}

    @property
    def can_encode(self) -> bool:
        """Whether there is something to encode, and room for what comes of it."""
        return bool(self._encoding) and not self._encoding[0].is_held_up

    def encode(self, budget_ms: float) -> None:
        """Encode for about that long; only while `can_encode`."""
        if self._encoding[0].encode(budget_ms):
            self._encoding.popleft()

    def add(self, execution: ExecutionId, snapshot: SubtaskSnapshot) -> None:
        """A subtask was cut; `finish` is to be started for it."""
        self._encoding.append(snapshot)
        self._by_execution.setdefault(execution, {})[snapshot.checkpoint] = snapshot
        self._wake()

    def under_way(self, execution: ExecutionId, checkpoint: CheckpointId) -> bool:
        """Whether a subtask's share of a checkpoint is cut and not acknowledged."""
        return checkpoint in self._by_execution.get(execution, ())

    def stop(self, execution: ExecutionId, checkpoint: CheckpointId) -> None:
        """Nobody waits for it any more."""
        if (snapshot := self._removed(execution, checkpoint)) is not None:
            snapshot.cancel()

    def forget(self, execution: ExecutionId) -> None:
        """The subtask is over."""
        for snapshot in self._by_execution.pop(execution, {}).values():
            snapshot.cancel()

    async def finish(
        self, view: CheckpointStorageWorkerView, hosted: Hosted, snapshot: SubtaskSnapshot
    ) -> None:
        """Have a subtask's share written and acknowledged. To be cancelled with the subtask."""
        world, barrier = self._world, snapshot.barrier
        execution = hosted.subtask.execution
        try:
            # What the driver can open may be closed to this process.
            merging = view.storage.merge_files(barrier.checkpoint, target=barrier.options.target)
            place = CheckpointPlace(view, barrier, execution, world.chance.bits64, merging)
            await snapshot.ready(place, world.run_blocking, self._wake)
        except asyncio.CancelledError:
            self._give_up(snapshot)
            raise
        except Exception as error:
            self._decline(hosted, snapshot, error)
            self._give_up(snapshot)
        else:
            writing = self._beside(self._write(hosted, snapshot, place))
            await asyncio.shield(writing)

    def _give_up(self, snapshot: SubtaskSnapshot) -> None:
        snapshot.cancel()
        self._wake()
        self._beside(snapshot.discard(self._world.run_blocking))

    async def _write(
        self, hosted: Hosted, snapshot: SubtaskSnapshot, place: CheckpointPlace
    ) -> None:
        """Write and acknowledge; goes on to its end even where the subtask is over."""
        world, execution = self._world, hosted.subtask.execution
        try:
            states = await snapshot.write(place, world.run_blocking)
        except Exception as error:
            self._decline(hosted, snapshot, error)
            return
        self._removed(execution, snapshot.checkpoint)
        if states is not None:
            self._send(
                CheckpointAcknowledged(
                    execution,
                    snapshot.checkpoint,
                    states or None,
                    snapshot.figures(world.clock.precise_s(), place),
                    finished_on_restore=hosted.subtask.finished_on_restore,
                    finished_operators=snapshot.after_finish,
                )
            )

    def _decline(self, hosted: Hosted, snapshot: SubtaskSnapshot, error: Exception) -> None:
        execution = hosted.subtask.execution
        self._removed(execution, snapshot.checkpoint)
        if not snapshot.cancelled:
            ours = as_ours(error, hosted.surroundings.task_name)
            reason = (
                FailureReason.of(ours)
                if isinstance(ours, CheckpointAborted)
                else FailureReason.CHECKPOINT_ASYNC_EXCEPTION
            )
            self._send(CheckpointDeclined(execution, snapshot.checkpoint, reason, str(ours)))

    def _removed(self, execution: ExecutionId, checkpoint: CheckpointId) -> SubtaskSnapshot | None:
        return self._by_execution.get(execution, {}).pop(checkpoint, None)
