"""The life of a job: its status, and the ways in which it ends before its input does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.errors import JobCanceled, JobFailed, JobSuspended, TidegateError
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from tidegate.model.ids import CheckpointId


class Life:
    """Begins when the driver leads the job; monotonic time becomes that of the wall clock here."""

    def __init__(self) -> None:
        self.status = JobStatus.INITIALIZING
        self._entered_ms: dict[JobStatus, int] = {}
        self._wall_offset_ms = 0

    def start(self, wall_ms: int, now_ms: int) -> None:
        assert not self._entered_ms, "a job starts once"
        self._wall_offset_ms = wall_ms - now_ms
        self._entered_ms[JobStatus.INITIALIZING] = now_ms

    def enter(self, status: JobStatus, now_ms: int) -> JobStatus:
        """Changes the status; the result is the former one."""
        assert not self.over, f"a job that is {self.status.value} becomes nothing else"
        assert status not in (self.status, JobStatus.INITIALIZING), "a status is entered anew"
        assert now_ms >= max(self._entered_ms.values(), default=now_ms), "time never goes back"
        former, self.status = self.status, status
        self._entered_ms[status] = now_ms
        return former

    @property
    def begun(self) -> bool:
        return self.status is not JobStatus.INITIALIZING

    @property
    def over(self) -> bool:
        """True if nothing more happens to the job under this driver."""
        return self.status.is_terminal_state()

    def wall_ms(self, now_ms: int) -> int:
        return now_ms + self._wall_offset_ms

    @property
    def timestamps_ms(self) -> dict[JobStatus, int]:
        """When the job last entered each status, by the wall clock."""
        return {status: self.wall_ms(at_ms) for status, at_ms in self._entered_ms.items()}


@frozen
class Ending:
    """How a job ends. until_then: its status until all has stopped, where it gets another one.

    error: what it ends with. cause: the failure behind that, if there is one.
    """

    status: JobStatus
    error: TidegateError
    until_then: JobStatus | None = None
    cause: TidegateError | None = None

    def __post_init__(self) -> None:
        assert self.status.is_terminal_state(), "a job ends in a status that it stays in"
        assert self.status is not JobStatus.FINISHED, "a job finishes by itself, not by a decision"
        stops = self.until_then is None or not self.until_then.is_terminal_state()
        assert stops, "a job that is still being stopped has not ended"


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
