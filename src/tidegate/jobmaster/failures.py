"""Failures of a job: their history, and their consequence, which as a rule is a restart.

Failures that depend on data or on the outside world may not recur, so the restart strategy decides.
Failures of the program or its options recur at each start, so they end a job that has not run yet.
A checkpoint that is refused for what it is stays so: nothing is gained by reading it again, and
nothing lost by waiting for somebody who can put it right.

Source: Flink's exception history and restart back-off strategies; checkpoint coordination §18.2,
§18.3.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.frozen import frozen
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
from tidegate.jobmaster.life import (
    Ending,
    failed_for_good,
    output_closed,
    refused,
    repeated,
    suspended_by,
)
from tidegate.jobmaster.view import FailureView
from tidegate.model.settings import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartSettings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.coordinator.commands import CheckpointEnded
    from tidegate.errors import TidegateError
    from tidegate.model.chance import Chance
    from tidegate.model.ids import CheckpointId, SlotId
    from tidegate.model.settings import JobSettings

CONCURRENT_MAX: Final = 64

KNOWN_MAX: Final = 64
"""Number of different failures that are counted separately."""

# Two runs of one function differ in where its objects lie, which is no other failure.
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]+\b")


@frozen
class Failure:
    """An error and where it happened. task: its name; "" where it is the job's or a slot's.

    restores: whether it happened while a subtask was being restored.
    """

    error: TidegateError
    task: str = ""
    slot: SlotId | None = None
    restores: bool = False


class FailureHistory:
    """The newest failures, at most so many, newest first."""

    def __init__(self, entries_max: int) -> None:
        self._entries: deque[dict[int, FailureView]] = deque(maxlen=entries_max)
        self._number = 0

    def add(self, failure: Failure, wall_ms: int, *, root: bool) -> int | None:
        """Keep a failure, by the number that is given back; None if there is no room for it.

        root: the job has to be restarted for it; else it happened while that was under way.
        """
        if not self._entries.maxlen:
            return None
        if root:
            self._entries.appendleft({})
        elif not self._entries or len(self._entries[0]) > CONCURRENT_MAX:
            return None
        assert root or self._entries[0], "a consequence stands behind its root failure"
        self._number += 1
        error = failure.error
        view = FailureView(wall_ms, str(error), failure.task, failure.slot, type(error).__name__)
        self._entries[0][self._number] = view
        return self._number

    def label(self, number: int, labels: Mapping[str, str]) -> None:
        """Note labels of a failure; it may be forgotten already."""
        for entry in self._entries:
            if number in entry:
                entry[number] = replace(entry[number], labels=labels)

    def view(self) -> tuple[FailureView, ...]:
        return tuple(
            replace(root, concurrent=tuple(others))
            for root, *others in (entry.values() for entry in self._entries)
        )


class RestartStrategy(Protocol):
    """Counts failures, and decides about restarts."""

    @property
    def gave_up(self) -> str:
        """Reason for no further restart, as a sentence of the error that ends the job."""
        ...

    def failed(self, now_ms: int) -> int | None:
        """A failure has happened: milliseconds to wait before the restart, None for no restart."""
        ...


def make_strategy(settings: RestartSettings, chance: Chance) -> RestartStrategy:
    """The strategy that the settings describe."""
    match settings:
        case NoRestart():
            return _None()
        case FixedDelay():
            return _Fixed(settings)
        case FailureRate():
            return _Rate(settings)
        case ExponentialDelay():
            return _Exponential(settings, chance)


class _None:
    gave_up = "It was not restarted: it has no restart strategy (restart-strategy.type)."

    def failed(self, now_ms: int) -> int | None:
        return None


class _Fixed:
    def __init__(self, settings: FixedDelay) -> None:
        self._settings = settings
        self._failures = 0

    @property
    def gave_up(self) -> str:
        return (
            f"It was not restarted again: fixed-delay allows {_times(self._settings.attempts)} "
            "(restart-strategy.fixed-delay.attempts)."
        )

    def failed(self, now_ms: int) -> int | None:
        self._failures += 1
        return self._settings.delay_ms if self._failures <= self._settings.attempts else None


class _Rate:
    def __init__(self, settings: FailureRate) -> None:
        self._settings = settings
        self._times: deque[int] = deque(maxlen=settings.failures_max + 1)

    @property
    def gave_up(self) -> str:
        made = self._settings
        return (
            f"It was not restarted again: failure-rate allows {_times(made.failures_max)} within "
            f"{made.interval_ms} ms (restart-strategy.failure-rate.max-failures-per-interval)."
        )

    def failed(self, now_ms: int) -> int | None:
        self._times.append(now_ms)
        full = len(self._times) > self._settings.failures_max
        if full and now_ms - self._times[0] <= self._settings.interval_ms:
            return None
        return self._settings.delay_ms


class _Exponential:
    """A failure before the restart that is already planned is merged into it."""

    def __init__(self, settings: ExponentialDelay, chance: Chance) -> None:
        self._settings = settings
        self._chance = chance
        self._attempts = 0
        self._planned_ms: int | None = None

    @property
    def gave_up(self) -> str:
        return (
            "It was not restarted again: exponential-delay allows "
            f"{_times(self._settings.attempts_before_reset)} in a row "
            "(restart-strategy.exponential-delay.attempts-before-reset-backoff)."
        )

    def failed(self, now_ms: int) -> int | None:
        made, planned = self._settings, self._planned_ms
        if planned is not None and now_ms < planned:
            return planned - now_ms
        if planned is not None and now_ms - planned >= made.reset_threshold_ms:
            self._attempts = 0
        if self._attempts >= made.attempts_before_reset:
            return None
        delay = self._delay_ms()
        self._attempts += 1
        self._planned_ms = now_ms + delay
        return delay

    def _delay_ms(self) -> int:
        made = self._settings
        try:
            plain = min(float(made.max_ms), made.initial_ms * made.multiplier**self._attempts)
        except OverflowError:
            plain = float(made.max_ms)
        spread = int(plain * made.jitter)
        drawn = int(plain) + self._chance.uniform_ms(-spread, spread)
        return max(made.initial_ms, min(made.max_ms, drawn))


def _times(count: int) -> str:
    return "one restart" if count == 1 else f"{count} restarts"


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
        assert delay_ms >= 0, "a restart is planned for the future"
        self.restarts += 1
        return Restarting(self.restarts, delay_ms, error, times)

    def final(self, failure: Failure, restored: CheckpointId | None) -> Ending | None:
        """How the job ends, where the restart strategy has no say in it."""
        error = failure.error
        if restored is not None and (isinstance(error, RestoreRefused) or is_damage(failure)):
            return refused(self._job, error, restored)
        if isinstance(error, OutputClosed):
            return output_closed(self._job, error)
        # A bad row is an error of the user's too, but another start may not meet it.
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
            strategy = self._strategy.gave_up if self.ran else None
            return self.without_slots(error, strategy, lasting=lasting)
        self.restarts += 1
        return Restarting(self.restarts, delay_ms, error)

    def without_slots(
        self, error: TidegateError, gave_up: str | None = None, *, lasting: bool
    ) -> Ending:
        """How a job ends that has nowhere to run. gave_up: as of `suspended_by`."""
        end = suspended_by if lasting else failed_for_good
        return end(self._job, error, gave_up)

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
        self._stuck.clear()


def _counted(counts: dict[tuple[str, ...], int], key: tuple[str, ...]) -> int:
    if key not in counts and len(counts) >= KNOWN_MAX:
        del counts[next(iter(counts))]
    counts[key] = counts.get(key, 0) + 1
    return counts[key]
