"""How many failed checkpoints a job bears, and what happens after one too many.

Source: checkpoint coordination §8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.commands import FailExecution, FailJob
from tidegate.errors import CheckpointAborted, StorageFailed
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.ids import CheckpointId, ExecutionId


UNLIMITED: Final = 2**31 - 1
"""Tolerable failures that are never counted."""


@dataclass(frozen=True, slots=True)
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
        """True if this failure exceeds the limit."""
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
    cause: BaseException | None = error
    inner: FailureReason | None = None
    while cause is not None:
        if isinstance(cause, StorageFailed):
            return FailureReason.IO_EXCEPTION
        if inner is None and isinstance(cause, CheckpointAborted):
            inner = FailureReason.of(cause)
        cause = cause.__cause__
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
