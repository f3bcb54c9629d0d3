"""The ways in which a job is brought to an end before its input is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import JobCanceled, JobFailed, JobSuspended, TidegateError
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from tidegate.model.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends. until_then: its status until all has stopped, where it gets another one.

    error: what it ends with. cause: the failure behind that, if there is one.
    """

    status: JobStatus
    error: TidegateError
    until_then: JobStatus | None = None
    cause: TidegateError | None = None


def cancelled(job: str, reason: str) -> Ending:
    """Somebody has ended the job. reason: who or why, for messages; may be empty."""
    error = JobCanceled(f"job '{job}' was cancelled{reason and f': {reason}'}")
    return Ending(JobStatus.CANCELED, error, JobStatus.CANCELLING)


def output_closed(job: str, error: TidegateError) -> Ending:
    """The reader of the job's output has gone, as ``head`` does."""
    made = JobCanceled(f"job '{job}' was cancelled: {error.what}", output_closed=True)
    return Ending(JobStatus.CANCELED, made, JobStatus.CANCELLING, error)


def suspended(job: str, reason: str) -> Ending:
    """The job stops under this driver, and may go on under another one."""
    return Ending(JobStatus.SUSPENDED, JobSuspended(f"job '{job}' was suspended: {reason}"))


def suspended_by(job: str, error: TidegateError, gave_up: str | None = None) -> Ending:
    """The world does not let the job run; it goes on from its checkpoint when that is mended.

    gave_up: what the restart strategy says of it, if that was asked.
    """
    made = JobSuspended(
        f"job '{job}' was suspended: {error.what}{_line(gave_up)}",
        where=error.where,
        remedy=error.remedy,
    )
    return Ending(JobStatus.SUSPENDED, made, cause=error)


def refused(job: str, error: TidegateError, checkpoint: CheckpointId) -> Ending:
    """The snapshot cannot be used, now or later."""
    suspended = JobSuspended(
        f"job '{job}' was suspended, for checkpoint {checkpoint} cannot be restored: {error.what}",
        where=error.where,
        remedy=error.remedy,
        refused=checkpoint,
    )
    return Ending(JobStatus.SUSPENDED, suspended, cause=error)


def repeated(job: str, error: TidegateError, times: int) -> Ending:
    return _failed(
        job,
        error,
        f"\nThe same has failed {times} times with no checkpoint completed between: a restart does "
        "not help (restart-strategy.type has it go on all the same)",
    )


def failed_for_good(job: str, error: TidegateError, gave_up: str | None = None) -> Ending:
    """A failure ends the job. gave_up: what the restart strategy says of it, if that was asked."""
    return _failed(job, error, _line(gave_up))


def _line(text: str | None) -> str:
    return f"\n{text}" if text else ""


def _failed(job: str, error: TidegateError, why: str) -> Ending:
    failed = JobFailed(
        f"job '{job}' failed: {error.what}{why}",
        where=error.where,
        remedy=error.remedy,
        cause_text=getattr(error, "trace", ""),
    )
    return Ending(JobStatus.FAILED, failed, JobStatus.FAILING, error)
