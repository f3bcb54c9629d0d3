"""Decides if and when a failed job is restarted.

Source: Flink's restart back-off strategies; checkpoint coordination §18.2.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from tidegate.model.settings import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartSettings,
)

if TYPE_CHECKING:
    from tidegate.model.chance import Chance


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
        if self._attempts * made.multiplier > 1e6:
            plain = float(made.max_ms)
        else:
            plain = min(float(made.max_ms), made.initial_ms * made.multiplier**self._attempts)
        spread = int(plain * made.jitter)
        drawn = int(plain) + self._chance.uniform_ms(-spread, spread)
        return max(made.initial_ms, min(made.max_ms, drawn))


def _times(count: int) -> str:
    return "one restart" if count == 1 else f"{count} restarts"
