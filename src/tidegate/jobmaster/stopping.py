"""A job ends with a savepoint: it stops, or is cancelled behind one.

    asked → the savepoint is complete → the job has ended

Whoever asked is answered at the end of that way: at once where there is no savepoint, else when the
job has ended. A savepoint that stops the job is durable before any sink commits on it. So where a
subtask fails behind it, the whole job is restored from that savepoint and goes on, and the answer
is an error that names it.

Source: Flink's StopWithSavepointTerminationHandler; checkpoint coordination §9.3, §9.4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import StopWithSavepointFailed
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.checkpoint.coordinator.commands import RequestDone
    from tidegate.checkpoint.coordinator.events import CheckpointRequested
    from tidegate.errors import TidegateError
    from tidegate.jobmaster.commands import JobCommand
    from tidegate.jobmaster.failures import Failure


class Stopper:
    """Ends a job with a savepoint, one at a time: the checkpoint coordinator refuses a second.

    tell: takes the commands, in order.
    """

    def __init__(self, job_name: str, tell: Callable[[JobCommand], None]) -> None:
        self._job_name = job_name
        self._tell = tell
        self._asked: dict[int, CheckpointRequested] = {}
        self._saved: RequestDone | None = None
        self._cancels = False
        self._since_ms = 0
        self._status: JobStatus | None = None

    def requested(self, asked: CheckpointRequested, now_ms: int) -> None:
        """Somebody asks for a snapshot; it is remembered where the job is to end with it."""
        if asked.kind.is_synchronous or asked.cancels:
            self._since_ms = self._since_ms if self.under_way else now_ms
            assert asked.request not in self._asked, "each request has a number of its own"
            self._asked[asked.request] = asked

    @property
    def under_way(self) -> bool:
        """True if the job ends with a savepoint that is being taken, or was."""
        return bool(self._asked) or self._saved is not None

    @property
    def since_ms(self) -> int | None:
        """Time at which the job was asked to end; None if it was not."""
        return self._since_ms if self.under_way else None

    @property
    def saved(self) -> str | None:
        """The savepoint with which it ends; None before that is complete."""
        return None if self._saved is None else self._saved.pointer

    def answered(self, done: RequestDone, *, restarting: bool) -> bool:
        """A request has its answer, which is kept where it has to wait for the job's end.

        restarting: something has failed already while the savepoint was being made durable. Then
        the whole job has to be restored, which is returned: what has not failed ends behind it.
        """
        asked = self._asked.pop(done.request, None)
        if asked is None or done.error is not None:
            self._tell(done)
            return False
        assert self._saved is None, "a job ends with one savepoint"
        self._saved, self._cancels = done, asked.cancels
        if self._status is not None:
            self._answer_at_the_end(self._status)  # it became durable while the job was ending
        elif restarting and not self._cancels:
            self._give_up(self._interrupted(None))
            return True
        return False

    @property
    def cancels(self) -> bool:
        """True if the savepoint before a cancellation is complete."""
        return self._saved is not None and self._cancels

    def failed(self, failure: Failure) -> Failure | None:
        """Something has failed: as what it counts, and then for the whole job.

        None if the job was not stopping, and the failure is one like any other.
        """
        if self._saved is None or self._cancels:
            return None
        interrupted = self._interrupted(failure.error)
        self._give_up(interrupted)
        return replace(failure, error=interrupted)

    def ended(self, status: JobStatus) -> None:
        assert status.is_terminal_state(), "a job that has ended is asked for nothing more"
        self._status = status
        if self._saved is not None:
            self._answer_at_the_end(status)

    def _answer_at_the_end(self, status: JobStatus) -> None:
        wanted = JobStatus.CANCELED if self._cancels else JobStatus.FINISHED
        if status is wanted and self._saved is not None:
            self._tell(self._saved)
            self._saved = None
        else:
            self._give_up(self._interrupted(None))

    def _give_up(self, error: TidegateError) -> None:
        saved, self._saved = self._saved, None
        assert saved is not None, "its savepoint is complete"
        self._tell(replace(saved, error=error))

    def _interrupted(self, cause: TidegateError | None) -> StopWithSavepointFailed:
        saved = self._saved
        assert saved is not None and saved.pointer is not None, "its savepoint is complete"
        return StopWithSavepointFailed(
            f"Job '{self._job_name}' failed after its savepoint "
            f"{saved.pointer}{f': {cause.what}' if cause else ''}",
            where=cause.where if cause else "",
            remedy="The savepoint is whole, and sinks commit on it: if the job may restart, it "
            "goes on from there, and can be asked to stop again; if not, start from it.",
            savepoint=saved.pointer,
        )
