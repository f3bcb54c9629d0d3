"""How requests and checkpoints ended: told to whoever asked, to the log, and to the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.checkpoint.coordinator.commands import (
    CheckpointEnded,
    FailExecution,
    FailJob,
    RequestDone,
)
from tidegate.checkpoint.coordinator.failures import Failure, FailureCounter
from tidegate.errors import CheckpointAborted, ConfigError

if TYPE_CHECKING:
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.checkpoint.coordinator.pending import PendingCheckpoint
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
    from tidegate.model.failure_reason import FailureReason
    from tidegate.model.ids import ExecutionId, JobId

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
        """Nothing is restarted from now on."""
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
        """A checkpoint or savepoint is complete."""
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
