"""How requests and checkpoints ended: told to whoever asked, to the log, and to the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.checkpoint.commands import (
    CheckpointEnded,
    FailExecution,
    FailJob,
    RequestDone,
)
from tidegate.checkpoint.failures import Failure, FailureCounter
from tidegate.errors import CheckpointAborted, ConfigError

if TYPE_CHECKING:
    from tidegate.checkpoint.failures import FailureReason
    from tidegate.checkpoint.finishing import Finished
    from tidegate.checkpoint.pending import PendingCheckpoint
    from tidegate.checkpoint.requests import Request
    from tidegate.checkpoint.statistics import StatisticsTracker
    from tidegate.model.ids import CheckpointId, ExecutionId, JobId

Report = CheckpointEnded | RequestDone | FailJob | FailExecution


class Reports:
    """Says how things ended; counts failures, and asks for a restart after too many."""

    def __init__(self, job: JobId, tolerable_failures: int, statistics: StatisticsTracker) -> None:
        self._job = job
        self._failures = FailureCounter(tolerable_failures)
        self._statistics = statistics
        self._job_ended = False

    def job_ended(self) -> None:
        """Nothing is restarted from now on."""
        self._job_ended = True

    def refused(self, request: Request, reason: FailureReason, message: str = "") -> list[Report]:
        """A request was answered without having been begun."""
        if request.number is None:
            return []
        return [RequestDone(request.number, error=self._error(reason, message, None))]

    def no_folder(self, number: int) -> RequestDone:
        """A savepoint was asked for, and nobody says where it is to be."""
        error = ConfigError(
            "There is no folder for the savepoint",
            where=f"job {self._job}",
            remedy="Name one, or set execution.checkpointing.savepoint-dir.",
        )
        return RequestDone(number, error=error)

    def failed_before(self, request: Request, reason: FailureReason, message: str) -> list[Report]:
        """A trigger was given up before it had a checkpoint id."""
        self._statistics.failed_before()
        text = _text(reason, message)
        return [
            CheckpointEnded(None, request.kind, 0, reason=reason.name, message=text),
            *self.refused(request, reason, message),
            *self._count(Failure(reason, text, savepoint=request.properties.is_savepoint)),
        ]

    def failed(
        self,
        pending: PendingCheckpoint,
        reason: FailureReason,
        message: str,
        execution: ExecutionId | None,
        now_ms: int,
    ) -> list[Report]:
        """A checkpoint was given up. execution: the attempt that is to blame."""
        text = _text(reason, message)
        checkpoint, request = pending.checkpoint, pending.request
        final = self._statistics.failed(checkpoint, text, now_ms)
        ended = CheckpointEnded(
            checkpoint,
            request.kind,
            final.duration_ms,
            final.state_size,
            final.checkpointed_size,
            reason=reason.name,
            message=text,
        )
        failure = Failure(
            reason, text, checkpoint, execution, pending.is_savepoint, pending.is_synchronous
        )
        reports: list[Report] = [ended]
        if request.number is not None:
            error = self._error(reason, message, checkpoint)
            reports.append(RequestDone(request.number, error=error))
        return [*reports, *self._count(failure)]

    def completed(self, finished: Finished, now_ms: int) -> list[Report]:
        """A checkpoint or savepoint is complete."""
        pending, completed = finished.pending, finished.completed
        checkpoint, request = pending.checkpoint, pending.request
        self._failures.succeeded(checkpoint)
        size_bytes = completed.state_size
        final = self._statistics.completed(checkpoint, completed.pointer, finished.metadata_size)
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

    def _count(self, failure: Failure) -> list[Report]:
        command = self._failures.failed(failure)
        return [] if command is None or self._job_ended else [command]

    def _error(
        self, reason: FailureReason, message: str, checkpoint: CheckpointId | None
    ) -> CheckpointAborted:
        number = "" if checkpoint is None else f", checkpoint {checkpoint}"
        return CheckpointAborted(
            reason.name, _text(reason, message), where=f"job {self._job}{number}"
        )


def _text(reason: FailureReason, message: str) -> str:
    return f"{reason.message} {message}" if message else reason.message
