"""Why checkpoints fail: Flink's reasons, which subtasks, driver and job master name to each other.

Source: checkpoint coordination §8.
"""

from __future__ import annotations

from enum import Enum

from tidegate.errors import CheckpointAborted


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
        "See the cause at the subtask that failed first; the next checkpoint is tried again.",
    )
    CHECKPOINT_EXPIRED = (
        "Checkpoint expired before completing.",
        False,
        True,
        "See which subtasks are missing in this checkpoint's figures. If barriers wait behind "
        "slow rows, set execution.checkpointing.unaligned.enabled; if the state is large, raise "
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
        "Do nothing: the subtask was just starting or ending; the next checkpoint is tried again.",
    )
    CHECKPOINT_DECLINED_TASK_CLOSING = (
        "Checkpoint was declined (task is closing)",
        False,
        False,
        "Do nothing if a source ends: the next checkpoint is tried again. With union list state it "
        "succeeds once all subtasks of the vertex have finished.",
    )
    CHECKPOINT_DECLINED_SUBSUMED = (
        "Checkpoint was canceled because a barrier from newer checkpoint was received.",
        False,
        False,
        "Do nothing if it is rare. Else let checkpoints overlap less: a lower "
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
        "Do nothing: an input has just ended; the next checkpoint is tried again.",
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
        "Do nothing if the job has just restarted: the subtask was not there yet, or no more.",
    )
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = (
        "Unknown task for the checkpoint to notify.",
        False,
        False,
        "Do nothing: the subtask is gone, and its successor learns of it with the next checkpoint.",
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

    def aborted(self, what: str, *, where: str = "", remedy: str = "") -> CheckpointAborted:
        """The error that gives a checkpoint up for this reason."""
        return CheckpointAborted(self.name, what, where=where, remedy=remedy)

    @staticmethod
    def of(aborted: CheckpointAborted) -> FailureReason:
        """The reason that the error names; a name that does not exist is a fault of our own."""
        assert aborted.reason in FailureReason.__members__, f"no failure reason {aborted.reason!r}"
        return FailureReason[aborted.reason]
