"""Why checkpoints fail, and how many failures a job bears.

Source: checkpoint coordination §8.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.commands import FailExecution, FailJob
from tidegate.errors import CheckpointAborted, StorageFailed

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.ids import CheckpointId, ExecutionId


class FailureReason(Enum):
    """Flink's ``CheckpointFailureReason``; a reason travels between processes by its name.

    Each says its message, whether no subtask has seen the checkpoint, whether it counts, and what
    the reader can do. docs/guides/failed-checkpoints.md shows them as a table.
    """

    PERIODIC_SCHEDULER_SHUTDOWN = (
        "Periodic checkpoint scheduler is shut down.",
        True,
        False,
        "Nothing: the job restarts or ends. Periodic checkpoints begin again when all subtasks "
        "run.",
    )
    TOO_MANY_CHECKPOINT_REQUESTS = (
        "The maximum number of queued checkpoint requests exceeded",
        True,
        False,
        "Wait for the checkpoints that were asked for before; 1,000 of them may wait at a time.",
    )
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = (
        "The minimum time between checkpoints is still pending. "
        "Checkpoint will be triggered after the minimum time.",
        True,
        False,
        "Nothing: the next one is taken when execution.checkpointing.min-pause is over.",
    )
    NOT_ALL_REQUIRED_TASKS_RUNNING = (
        "Not all required tasks are currently running.",
        True,
        False,
        "Ask again when all subtasks run. Where some have finished, set "
        "execution.checkpointing.checkpoints-after-tasks-finish to true.",
    )
    IO_EXCEPTION = (
        "An Exception occurred while triggering the checkpoint. IO-problem detected.",
        True,
        True,
        "Check that the folder in execution.checkpointing.dir, or the savepoint's, answers, has "
        "room, and may be written by the driver.",
    )
    BLOCKING_OUTPUT_EXIST = (
        "Blocking output edge exists in running tasks.",
        True,
        False,
        "Ask again when the stages that hand their rows over all at once have finished.",
    )
    CHECKPOINT_ASYNC_EXCEPTION = (
        "Asynchronous task checkpoint failed.",
        False,
        True,
        "See the cause: state that could not become bytes, or a file that the slot could not "
        "write to execution.checkpointing.dir.",
    )
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = (
        "The checkpoint was aborted due to exception of other subtasks sharing the "
        "ChannelState file.",
        False,
        False,
        "See the cause at the subtask that failed first; the next checkpoint is tried anew.",
    )
    CHECKPOINT_EXPIRED = (
        "Checkpoint expired before completing.",
        False,
        True,
        "See which subtasks are missing in this checkpoint's figures. Where barriers wait behind "
        "slow rows, set execution.checkpointing.unaligned.enabled; where the state is large, raise "
        "execution.checkpointing.timeout.",
    )
    CHECKPOINT_SUBSUMED = (
        "Checkpoint has been subsumed.",
        False,
        False,
        "Nothing: a newer checkpoint has completed before this one.",
    )
    CHECKPOINT_DECLINED = (
        "Checkpoint was declined.",
        False,
        True,
        "See the cause at the subtask that declined.",
    )
    CHECKPOINT_DECLINED_TASK_NOT_READY = (
        "Checkpoint was declined (tasks not ready)",
        False,
        False,
        "Nothing: the subtask was just starting or ending; the next checkpoint is tried anew.",
    )
    CHECKPOINT_DECLINED_TASK_CLOSING = (
        "Checkpoint was declined (task is closing)",
        False,
        False,
        "Nothing where a source ends: the next checkpoint is tried anew. With union list state it "
        "succeeds once all subtasks of the vertex have finished.",
    )
    CHECKPOINT_DECLINED_SUBSUMED = (
        "Checkpoint was canceled because a barrier from newer checkpoint was received.",
        False,
        False,
        "Nothing where it is rare. Else let checkpoints overlap less: a lower "
        "execution.checkpointing.max-concurrent-checkpoints or a longer interval.",
    )
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = (
        "Task received cancellation from one of its inputs",
        False,
        False,
        "See why the subtask upstream has given this checkpoint up.",
    )
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = (
        "Checkpoint was declined because one input stream is finished",
        False,
        False,
        "Nothing: an input has just ended; the next checkpoint is tried anew.",
    )
    CHECKPOINT_COORDINATOR_SHUTDOWN = (
        "CheckpointCoordinator shutdown.",
        False,
        False,
        "Nothing: the job has ended.",
    )
    CHECKPOINT_COORDINATOR_SUSPEND = (
        "Checkpoint Coordinator is suspending.",
        False,
        False,
        "Nothing: the job restarts or stops. Ask again when all subtasks run.",
    )
    JOB_FAILOVER_REGION = (
        "FailoverRegion is restarting.",
        False,
        False,
        "See the failure that the job restarts for; checkpoints go on when all subtasks run.",
    )
    TASK_FAILURE = (
        "Task has failed.",
        False,
        False,
        "See the failure of the subtask; checkpoints go on when it runs again.",
    )
    TASK_CHECKPOINT_FAILURE = (
        "Task local checkpoint failure.",
        False,
        False,
        "Nothing where the job has just restarted: the subtask was not there yet, or no more.",
    )
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = (
        "Unknown task for the checkpoint to notify.",
        False,
        False,
        "Nothing: the subtask is gone; what it missed, the next checkpoint tells its successor.",
    )
    FINALIZE_CHECKPOINT_FAILURE = (
        "Failure to finalize checkpoint.",
        False,
        True,
        "Check that the driver can write _metadata to the checkpoint's folder, and reach the "
        "store that keeps the record of completed checkpoints.",
    )
    TRIGGER_CHECKPOINT_FAILURE = (
        "Trigger checkpoint failure.",
        False,
        False,
        "See the cause: a master hook, a source's enumerator or another coordinator has failed.",
    )

    def __init__(self, message: str, pre_flight: bool, counts: bool, remedy: str) -> None:
        self.message = message
        self.pre_flight = pre_flight
        self.counts = counts
        self.remedy = remedy

    def told(self, cause: str) -> str:
        """The message, and the cause where there is one; one of several lines begins below."""
        if "\n" in cause:
            return "\n  ".join((self.message, *f"cause: {cause}".splitlines()))
        return f"{self.message} {cause}" if cause else self.message

    @staticmethod
    def named(name: str) -> FailureReason:
        """The reason of that name; a fault of our own where there is none."""
        assert name in FailureReason.__members__, f"there is no failure reason {name!r}"
        return FailureReason[name]


UNLIMITED: Final = 2**31 - 1
"""Tolerable failures that are never counted."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One snapshot that failed.

    cause: "" where the reason says it all. checkpoint: None where it failed before it had an id.
    execution: the attempt at which it failed, and ``where`` its name; None where it was none's.
    """

    reason: FailureReason
    cause: str
    checkpoint: CheckpointId | None = None
    execution: ExecutionId | None = None
    where: str = ""
    savepoint: bool = False
    synchronous: bool = False


_BLAMELESS: Final = (FailureReason.TASK_FAILURE, FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING)


class FailureCounter:
    """Counts failures in a row, and says when the job or an attempt has to be restarted."""

    def __init__(self, tolerable: int) -> None:
        assert tolerable >= 0, "a number of tolerable failures is 0 or more"
        self._tolerable = tolerable
        self._counted: dict[CheckpointId, None] = {}
        self._last_succeeded = 0
        self.in_a_row = 0

    def failed(self, failure: Failure) -> FailJob | FailExecution | None:
        """What the failure asks for; to be called for each failure of any kind."""
        # An attempt that has failed is restarted for that; one that ends is none the worse for it,
        # and those that had stopped for a savepoint fail by themselves when it is given up.
        blameless = failure.reason.pre_flight or failure.reason in _BLAMELESS
        execution = None if blameless else failure.execution
        if execution is None and failure.savepoint:
            return None
        if execution is not None and failure.synchronous:
            # Its sources have stopped already: the job can't go on without a restart.
            return FailJob(_error(failure, "A savepoint that stops the job failed"))
        if not self._count(failure):
            return None
        self._clear()
        error = _error(failure, "Exceeded checkpoint tolerable failure threshold")
        return FailJob(error) if execution is None else FailExecution(execution, error)

    def succeeded(self, checkpoint: CheckpointId) -> None:
        """A snapshot is complete: what failed before it is forgiven."""
        if checkpoint > self._last_succeeded:
            self._last_succeeded = checkpoint
            self._clear()

    def _count(self, failure: Failure) -> bool:
        """Whether this failure is one too many."""
        if not failure.reason.counts or self._tolerable == UNLIMITED:
            return False
        checkpoint = failure.checkpoint
        if checkpoint is not None:
            if checkpoint <= self._last_succeeded or checkpoint in self._counted:
                return False
            self._counted[checkpoint] = None
        self.in_a_row += 1
        return self.in_a_row > self._tolerable

    def _clear(self) -> None:
        self.in_a_row = 0
        self._counted.clear()


def reason_of(error: TidegateError, otherwise: FailureReason) -> FailureReason:
    """The reason behind an error met while a checkpoint was triggered.

    A failure of storage anywhere among the causes is ``IO_EXCEPTION``; an inner
    `CheckpointAborted` keeps its reason; anything else is ``otherwise``.
    """
    cause: BaseException | None = error
    inner: FailureReason | None = None
    while cause is not None:
        if isinstance(cause, StorageFailed):
            return FailureReason.IO_EXCEPTION
        if inner is None and isinstance(cause, CheckpointAborted):
            inner = FailureReason.named(cause.reason)
        cause = cause.__cause__
    return otherwise if inner is None else inner


def _error(failure: Failure, what: str) -> CheckpointAborted:
    reason = failure.reason
    number = None if failure.checkpoint is None else f"checkpoint {failure.checkpoint}"
    return CheckpointAborted(
        reason.name,
        f"{what}. The latest checkpoint failed due to {reason.name}: {reason.told(failure.cause)}",
        where=", ".join(part for part in (number, failure.where) if part),
        remedy=f"{reason.remedy} The history of checkpoints says why others failed; "
        "execution.checkpointing.tolerable-failed-checkpoints, how many in a row the job bears.",
    )
