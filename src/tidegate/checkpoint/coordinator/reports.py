"""How requests and checkpoints ended: told to whoever asked, to the log, and to the figures.

Failed ones are counted: after more in a row than a job bears, it or an attempt is restarted.

Source: checkpoint coordination §8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.checkpoint.coordinator.commands import (
    CheckpointEnded,
    FailExecution,
    FailJob,
    RequestDone,
)
from tidegate.errors import CheckpointAborted, ConfigError, StorageFailed, causes
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.checkpoint.coordinator.pending import PendingCheckpoint
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
    from tidegate.errors import TidegateError
    from tidegate.model.ids import CheckpointId, ExecutionId, JobId

UNLIMITED: Final = 2**31 - 1
"""Tolerable failures that are never counted."""


@frozen
class Failure:
    """One snapshot that failed.

    cause: "" where the reason says it all. checkpoint: None if it failed before it had an id.
    execution: the attempt at which it failed, and ``where`` its name; None if it was none's.
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
        """Consequence of a failure; called for each failure of any kind."""
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
        """A snapshot is complete: earlier failures are forgiven."""
        if checkpoint > self._last_succeeded:
            self._last_succeeded = checkpoint
            self._clear()

    def _count(self, failure: Failure) -> bool:
        if not failure.reason.counts or self._tolerable == UNLIMITED:
            return False
        checkpoint = failure.checkpoint
        if checkpoint is not None:
            if checkpoint <= self._last_succeeded or checkpoint in self._counted:
                return False
            self._counted[checkpoint] = None
        assert self.in_a_row <= self._tolerable, "after one too many the count begins anew"
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
    inner: FailureReason | None = None
    for cause in causes(error):
        if isinstance(cause, StorageFailed):
            return FailureReason.IO_EXCEPTION
        if inner is None and isinstance(cause, CheckpointAborted):
            inner = FailureReason.of(cause)
    return otherwise if inner is None else inner


def _error(failure: Failure, what: str) -> CheckpointAborted:
    reason = failure.reason
    number = None if failure.checkpoint is None else f"checkpoint {failure.checkpoint}"
    return reason.aborted(
        f"{what}. The latest checkpoint failed due to {reason.name}: {reason.told(failure.cause)}",
        where=", ".join(part for part in (number, failure.where) if part),
        remedy=f"{reason.remedy} The history of checkpoints says why others failed; "
        "execution.checkpointing.tolerable-failed-checkpoints, how many in a row the job bears.",
    )


Report = CheckpointEnded | RequestDone


class Reports:
    """Says how things ended; counts failures, and asks for a restart after too many."""

    def __init__(self, job: JobId, tolerable_failures: int, statistics: StatisticsTracker) -> None:
        self._job = job
        self._failures = FailureCounter(tolerable_failures)
        self._statistics = statistics
        self._job_ended = False
        self._restarts: list[FailJob | FailExecution] = []

    def job_ended(self) -> None:
        self._job_ended = True

    def refused(self, request: Request, reason: FailureReason, cause: str = "") -> list[Report]:
        """A request was answered without having been begun."""
        failure = Failure(reason, cause)
        if request.number is None:
            return [self._ended(request, failure)]
        return [RequestDone(request.number, error=self._error(failure))]

    def no_folder(self, number: int) -> RequestDone:
        """A savepoint was asked for, and nobody says where it is to be."""
        error = ConfigError(
            "There is no folder for the savepoint",
            where=f"job {self._job}",
            remedy="Name one, or set execution.checkpointing.savepoint-dir.",
        )
        return RequestDone(number, error=error)

    def failed_before(self, request: Request, reason: FailureReason, cause: str) -> list[Report]:
        """A trigger was given up before it had a checkpoint id."""
        self._statistics.failed_before()
        failure = Failure(reason, cause, savepoint=request.properties.is_savepoint)
        return [self._ended(request, failure), *self._answer(request, failure)]

    def failed(
        self,
        pending: PendingCheckpoint,
        reason: FailureReason,
        cause: str,
        execution: ExecutionId | None,
        now_ms: int,
    ) -> list[Report]:
        """A checkpoint was given up. execution: the attempt at which it failed."""
        failure = Failure(
            reason,
            cause,
            pending.checkpoint,
            execution,
            "" if execution is None else pending.topology.name_of(execution.subtask),
            pending.is_savepoint,
            pending.is_synchronous,
        )
        final = self._statistics.failed(
            pending.checkpoint, reason, reason.told(cause), failure.where, now_ms
        )
        ended = replace(
            self._ended(pending.request, failure),
            duration_ms=final.duration_ms,
            size_bytes=final.state_size,
            written_bytes=final.checkpointed_size,
        )
        return [ended, *self._answer(pending.request, failure)]

    def completed(
        self,
        pending: PendingCheckpoint,
        completed: CompletedCheckpoint,
        metadata_size: int,
        now_ms: int,
    ) -> list[Report]:
        assert completed.checkpoint == pending.checkpoint, "another checkpoint is complete"
        checkpoint, request = pending.checkpoint, pending.request
        self._failures.succeeded(checkpoint)
        size_bytes = completed.state_size
        final = self._statistics.completed(
            checkpoint, completed.pointer, pending.written_bytes, metadata_size
        )
        ended = CheckpointEnded(
            checkpoint,
            request.kind,
            now_ms - pending.begun_ms,
            size_bytes,
            final.checkpointed_size,
            completed.pointer,
        )
        if request.number is None:
            return [ended]
        return [ended, RequestDone(request.number, checkpoint, completed.pointer)]

    def take_restarts(self) -> list[FailJob | FailExecution]:
        """The restarts that the failures since the last call ask for."""
        restarts, self._restarts = self._restarts, []
        assert not (restarts and self._job_ended), "nothing is restarted after the end"
        return restarts

    def _ended(self, request: Request, failure: Failure) -> CheckpointEnded:
        return CheckpointEnded(
            failure.checkpoint,
            request.kind,
            0,
            reason=failure.reason,
            message=failure.reason.told(failure.cause),
            where=failure.where,
        )

    def _answer(self, request: Request, failure: Failure) -> list[Report]:
        """Tell whoever asked, and note a restart after too many."""
        command = self._failures.failed(failure)
        if command is not None and not self._job_ended:
            self._restarts.append(command)
        if request.number is None:
            return []
        return [RequestDone(request.number, error=self._error(failure))]

    def _error(self, failure: Failure) -> CheckpointAborted:
        number = None if failure.checkpoint is None else f"checkpoint {failure.checkpoint}"
        parts = (f"job {self._job}", number, failure.where)
        return failure.reason.aborted(
            failure.reason.told(failure.cause),
            where=", ".join(part for part in parts if part),
            remedy=failure.reason.remedy,
        )
