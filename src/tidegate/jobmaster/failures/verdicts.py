"""Consequence of a failure: as a rule, a restart.

Failures that depend on data or on the outside world may not recur, so the restart strategy decides.
Failures of the program or its options recur at each start, so they end a job that has not run yet.
A checkpoint that is refused for what it is stays so: nothing is gained by reading it again, and
nothing lost by waiting for somebody who can put it right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidegate.errors import (
    BadRecord,
    FileMissing,
    FormatError,
    OutputClosed,
    RestoreRefused,
    UnsupportedKey,
    UserCodeFailed,
    UserError,
)
from tidegate.jobmaster.commands import Restarting
from tidegate.jobmaster.ending import (
    Ending,
    failed_for_good,
    output_closed,
    refused,
    repeated,
    suspended_by,
)
from tidegate.jobmaster.failures.restarts import make_strategy

if TYPE_CHECKING:
    from tidegate.checkpoint.coordinator.commands import CheckpointEnded
    from tidegate.errors import TidegateError
    from tidegate.jobmaster.failures.history import Failure
    from tidegate.model.chance import Chance
    from tidegate.model.ids import CheckpointId
    from tidegate.model.settings import JobSettings

KNOWN_MAX: Final = 64
"""Number of different failures that are counted separately."""

_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+\b")


class Judge:
    """Decides about one failure after the other. ran: whether the whole job has run before."""

    def __init__(self, job: str, settings: JobSettings, chance: Chance) -> None:
        self._job = job
        self._strategy = make_strategy(settings.restart, chance)
        self._repeats = Repeats()
        self._repeats_max = settings.repeats_max
        self.ran = False
        self.restarts = 0

    def judge(
        self, failure: Failure, restored: CheckpointId | None, now_ms: int
    ) -> Ending | Restarting:
        """Verdict on the job. restored: the checkpoint that it was restored from last."""
        final = self.final(failure, restored)
        if final is not None:
            return final
        error, (times, stuck) = failure.error, self._repeats.count(failure)
        if self._repeats_max is not None and stuck >= self._repeats_max:
            return repeated(self._job, error, stuck)
        delay_ms = self._strategy.failed(now_ms)
        if delay_ms is None:
            return failed_for_good(self._job, error, self._strategy.gave_up)
        self.restarts += 1
        return Restarting(self.restarts, delay_ms, error, times)

    def final(self, failure: Failure, restored: CheckpointId | None) -> Ending | None:
        """How the job ends, where the restart strategy has no say in it."""
        error = failure.error
        if restored is not None and (isinstance(error, RestoreRefused) or is_damage(failure)):
            return refused(self._job, error, restored)
        if isinstance(error, OutputClosed):
            return output_closed(self._job, error)
        of_data = isinstance(error, BadRecord | UnsupportedKey)
        if isinstance(error, UserError) and not (self.ran or of_data):
            return failed_for_good(self._job, error)
        return None

    def slots_missing(
        self, error: TidegateError, now_ms: int, *, lasting: bool
    ) -> Ending | Restarting:
        """Verdict on a job whose slots did not come in time.

        lasting: whether there is a checkpoint to go on from. A job that has not run yet is given
        up: whoever has started it is there to hear why.
        """
        delay_ms = self._strategy.failed(now_ms) if self.ran else None
        if delay_ms is None:
            return self.without_slots(error, lasting=lasting)
        self.restarts += 1
        return Restarting(self.restarts, delay_ms, error)

    def without_slots(self, error: TidegateError, *, lasting: bool) -> Ending:
        """How a job ends that has nowhere to run."""
        strategy = self._strategy.gave_up if self.ran else None
        end = suspended_by if lasting else failed_for_good
        return end(self._job, error, strategy)

    def checkpoint_ended(self, ended: CheckpointEnded) -> None:
        """Forgets failures before a completed checkpoint."""
        if ended.reason is None and not ended.kind.is_savepoint:
            self._repeats.forget()


def is_damage(failure: Failure) -> bool:
    """True if a restore failed because the checkpoint's files are damaged."""
    damage = isinstance(failure.error, FormatError | FileMissing)
    return failure.restores and (damage or type(failure.error) is RestoreRefused)


class Repeats:
    """Counts failures that are the same: of one task, at one row, with one exception.

    A checkpoint between two of them may lie behind the row, or still ahead of it: so each failure
    has two counts, of all the times and of those since the last completed checkpoint.
    """

    def __init__(self) -> None:
        self._ever: dict[tuple[str, ...], int] = {}
        self._stuck: dict[tuple[str, ...], int] = {}

    def count(self, failure: Failure) -> tuple[int, int]:
        """How often this one has been there, itself included; 1 where it is of no row's making."""
        error = failure.error
        if not failure.task or not isinstance(error, UserCodeFailed | BadRecord | UnsupportedKey):
            return 1, 1
        texts = (failure.task, type(error).__name__, error.what, error.where)
        key = tuple(_ADDRESS.sub("0x", text) for text in texts)
        return _counted(self._ever, key), _counted(self._stuck, key)

    def forget(self) -> None:
        """A checkpoint is complete."""
        self._stuck.clear()


def _counted(counts: dict[tuple[str, ...], int], key: tuple[str, ...]) -> int:
    if key not in counts and len(counts) >= KNOWN_MAX:
        del counts[next(iter(counts))]
    counts[key] = counts.get(key, 0) + 1
    return counts[key]
