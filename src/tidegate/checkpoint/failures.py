"""Why checkpoints fail, and how many failures a job bears.

Source: checkpoint coordination §8.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.commands import FailExecution, FailJob
from tidegate.errors import CheckpointAborted, StorageFailed

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.ids import CheckpointId, ExecutionId


class FailureReason(Enum):
    """Flink's ``CheckpointFailureReason``; a reason travels between processes by its name.

    Each says its message, whether no subtask has seen the checkpoint, and whether it counts.
    """

    PERIODIC_SCHEDULER_SHUTDOWN = ("Periodic checkpoint scheduler is shut down.", True, False)
    TOO_MANY_CHECKPOINT_REQUESTS = (
        "The maximum number of queued checkpoint requests exceeded",
        True,
        False,
    )
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = (
        "The minimum time between checkpoints is still pending. "
        "Checkpoint will be triggered after the minimum time.",
        True,
        False,
    )
    NOT_ALL_REQUIRED_TASKS_RUNNING = (
        "Not all required tasks are currently running.",
        True,
        False,
    )
    IO_EXCEPTION = (
        "An Exception occurred while triggering the checkpoint. IO-problem detected.",
        True,
        True,
    )
    BLOCKING_OUTPUT_EXIST = ("Blocking output edge exists in running tasks.", True, False)
    CHECKPOINT_ASYNC_EXCEPTION = ("Asynchronous task checkpoint failed.", False, True)
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = (
        "The checkpoint was aborted due to exception of other subtasks sharing the "
        "ChannelState file.",
        False,
        False,
    )
    CHECKPOINT_EXPIRED = ("Checkpoint expired before completing.", False, True)
    CHECKPOINT_SUBSUMED = ("Checkpoint has been subsumed.", False, False)
    CHECKPOINT_DECLINED = ("Checkpoint was declined.", False, True)
    CHECKPOINT_DECLINED_TASK_NOT_READY = (
        "Checkpoint was declined (tasks not ready)",
        False,
        False,
    )
    CHECKPOINT_DECLINED_TASK_CLOSING = (
        "Checkpoint was declined (task is closing)",
        False,
        False,
    )
    CHECKPOINT_DECLINED_SUBSUMED = (
        "Checkpoint was canceled because a barrier from newer checkpoint was received.",
        False,
        False,
    )
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = (
        "Task received cancellation from one of its inputs",
        False,
        False,
    )
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = (
        "Checkpoint was declined because one input stream is finished",
        False,
        False,
    )
    CHECKPOINT_COORDINATOR_SHUTDOWN = ("CheckpointCoordinator shutdown.", False, False)
    CHECKPOINT_COORDINATOR_SUSPEND = ("Checkpoint Coordinator is suspending.", False, False)
    JOB_FAILOVER_REGION = ("FailoverRegion is restarting.", False, False)
    TASK_FAILURE = ("Task has failed.", False, False)
    TASK_CHECKPOINT_FAILURE = ("Task local checkpoint failure.", False, False)
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = (
        "Unknown task for the checkpoint to notify.",
        False,
        False,
    )
    FINALIZE_CHECKPOINT_FAILURE = ("Failure to finalize checkpoint.", False, True)
    TRIGGER_CHECKPOINT_FAILURE = ("Trigger checkpoint failure.", False, False)

    def __init__(self, message: str, pre_flight: bool, counts: bool) -> None:
        self.message = message
        self.pre_flight = pre_flight
        self.counts = counts

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

    checkpoint: None where it failed before it had an id. execution: the attempt that declined;
    None where no attempt is to blame.
    """

    reason: FailureReason
    message: str
    checkpoint: CheckpointId | None = None
    execution: ExecutionId | None = None
    savepoint: bool = False
    synchronous: bool = False


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
        execution = None if failure.reason.pre_flight else failure.execution
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
    number = "" if failure.checkpoint is None else f"checkpoint {failure.checkpoint}"
    return CheckpointAborted(
        failure.reason.name,
        f"{what}. The latest checkpoint failed due to {failure.message or failure.reason.message}",
        where=number,
        remedy="See the history of checkpoints for why each failed. "
        "execution.checkpointing.tolerable-failed-checkpoints says how many failures in a row "
        "the job bears.",
    )
