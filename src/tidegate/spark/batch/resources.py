"""The things that a subtask in a task of Spark has of its own, or does not need."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tidegate.model.control import Accepted
from tidegate.model.ids import Epoch, SlotId
from tidegate.slot.channel_state import ChannelStateStorage
from tidegate.slot.job import LocalState
from tidegate.slot.loop.beside import BlockingCalls, DaemonThreads
from tidegate.slot.subtask.hosted import close_after_calls
from tidegate.state.backend import OperatorBackend, keyed_backend
from tidegate.storage.checkpoints import CheckpointStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from tidegate.model.deployment import Deployment
    from tidegate.model.ids import CheckpointId, ExecutionId, JobId
    from tidegate.slot.channel_state import ChannelStateWriter
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.host import Host
    from tidegate.state.scope import StateScope

_CALLS_AT_ONCE: Final = 4


class TaskResources:
    """The loop, the threads, the disk and the storage of a task of Spark. calls: on the threads.

    job: for whom files are kept. Whoever has made it closes the loop, behind all else.
    """

    def __init__(self, deployment: Deployment, job: JobId, draw: Callable[[], int]) -> None:
        settings = deployment.settings
        self.loop: Final = asyncio.new_event_loop()
        self._threads = DaemonThreads(_CALLS_AT_ONCE)
        self.calls = BlockingCalls(self._threads.run)
        self.storage = CheckpointStorage(job, settings.checkpoints)
        slot = SlotId(f"task-{deployment.execution.attempt}")  # no two tasks have the same
        task = Accepted(slot, job, Epoch(1), settings)
        self._local = LocalState(task, draw, self.calls.run, self.loop.create_task)

    def backend(self, scope: StateScope, deployment: Deployment, host: Host) -> OperatorBackend:
        """State in memory or on the disk; there is nothing that its changes would be logged for."""
        place = self._local.place(deployment.settings.slot)
        return OperatorBackend(scope, keyed_backend(scope, local=place))

    def restored(self, checkpoint: CheckpointId | None) -> None:
        """State has come from that snapshot: copies of older ones are needless. Blocking."""
        if checkpoint is not None and self._local.folders.in_use:
            self._local.folders.on_complete(checkpoint)

    async def close(
        self,
        chain: Chain,
        log: structlog.typing.FilteringBoundLogger,
        failed: Callable[[Exception], object],
    ) -> None:
        """Close the operators once their calls have ended; copies of their state stay.

        failed: gets what closing raises.
        """
        self.calls.give_up()
        await close_after_calls(lambda: chain.close(failed), self.calls, log, failed)
        self._threads.close()
        self._local.folders.close(over=False)


def no_channel_state(execution: ExecutionId, draw: Callable[[], int]) -> ChannelStateWriter:
    """For a subtask whose barriers overtake nothing."""
    return ChannelStateStorage(_nothing, _never, draw, _never).writer(execution, 1)


def _nothing() -> None:
    return None


def _never(work: object) -> Any:
    raise AssertionError("a task of Spark keeps no in-flight data")
