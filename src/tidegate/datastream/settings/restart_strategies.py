"""PyFlink's ``RestartStrategies``: when a failed job is restarted, as values that set options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegate.config import restarts

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.config.spans import Span


class RestartStrategyConfiguration(Protocol):
    """A restart strategy with its numbers."""

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same. Raises ConfigError for a number out of bounds."""
        ...


@dataclass(frozen=True, slots=True)
class NoRestartStrategyConfiguration:
    """The first failure fails the job."""

    def apply_to(self, configuration: Configuration) -> None:
        configuration.set(restarts.RESTART_STRATEGY, "disable")


@dataclass(frozen=True, slots=True)
class FixedDelayRestartStrategyConfiguration:
    """A limited number of restarts, each after a wait; a number is milliseconds."""

    restart_attempts: int
    delay_between_attempts: Span

    def apply_to(self, configuration: Configuration) -> None:
        configuration.set(restarts.FIXED_DELAY_ATTEMPTS, self.restart_attempts)
        configuration.set(restarts.FIXED_DELAY, self.delay_between_attempts)
        configuration.set(restarts.RESTART_STRATEGY, "fixed-delay")


@dataclass(frozen=True, slots=True)
class FailureRateRestartStrategyConfiguration:
    """Restarts while no more failures fall into an interval; numbers are milliseconds."""

    failure_rate: int
    failure_interval: Span
    delay_interval: Span

    def apply_to(self, configuration: Configuration) -> None:
        configuration.set(restarts.FAILURE_RATE_MAX, self.failure_rate)
        configuration.set(restarts.FAILURE_RATE_INTERVAL, self.failure_interval)
        configuration.set(restarts.FAILURE_RATE_DELAY, self.delay_interval)
        configuration.set(restarts.RESTART_STRATEGY, "failure-rate")


@dataclass(frozen=True, slots=True)
class FallbackRestartStrategyConfiguration:
    """The default: exponential delay with checkpoints, no restarts without."""

    def apply_to(self, configuration: Configuration) -> None:
        configuration.unset(restarts.RESTART_STRATEGY)


class RestartStrategies:
    """The strategies, for ``StreamExecutionEnvironment.set_restart_strategy``.

    >>> env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1_000))
    """

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """The first failure fails the job."""
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: Span
    ) -> FixedDelayRestartStrategyConfiguration:
        """A limited number of restarts, each after a wait; a number is milliseconds."""
        return FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Span, delay_interval: Span
    ) -> FailureRateRestartStrategyConfiguration:
        """Restarts, each after a wait, while no more failures fall into an interval."""
        return FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """The configuration's strategy, else the default."""
        return FallbackRestartStrategyConfiguration()
