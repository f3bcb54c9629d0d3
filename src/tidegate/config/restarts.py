"""Restarts after a failure, and rescales: the options, and the settings made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import ChoiceType, DurationType, IntegerType, NumberType
from tidegate.errors import ConfigError
from tidegate.model.settings import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RescaleSettings,
    RestartSettings,
)

if TYPE_CHECKING:
    from tidegate.model.settings import CheckpointSettings

_DURATION: Final = DurationType()
_COUNT: Final = IntegerType(at_least=0)
_POSITIVE: Final = IntegerType(at_least=1)
_MINUTE_MS: Final = 60_000

RESTART_STRATEGY: Final[ConfigOption[str | None]] = ConfigOption(
    "restart-strategy.type",
    ChoiceType(
        ("disable", "fixed-delay", "failure-rate", "exponential-delay"),
        aliases=(
            ("none", "disable"),
            ("off", "disable"),
            ("fixeddelay", "fixed-delay"),
            ("failurerate", "failure-rate"),
            ("exponentialdelay", "exponential-delay"),
        ),
    ),
    None,
    "When a failed job is restarted; unset means exponential delay with checkpointing, never "
    "without.",
    old_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    _COUNT,
    1,
    "Restarts before the job fails for good.",
)
FIXED_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", _DURATION, 1_000, "Wait before each restart."
)
FAILURE_RATE_MAX: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    _POSITIVE,
    1,
    "Failures allowed within the interval.",
)
FAILURE_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    DurationType(at_least_ms=1),
    _MINUTE_MS,
    "Length of the interval in which failures are counted.",
)
FAILURE_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay", _DURATION, 1_000, "Wait before each restart."
)
EXPONENTIAL_INITIAL: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    DurationType(at_least_ms=1),
    1_000,
    "First wait.",
)
EXPONENTIAL_MAX: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    DurationType(at_least_ms=1),
    _MINUTE_MS,
    "Longest wait.",
)
EXPONENTIAL_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    NumberType(above=1.0),
    1.5,
    "Growth of the wait from failure to failure.",
)
EXPONENTIAL_RESET_THRESHOLD: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DurationType(at_least_ms=1),
    60 * _MINUTE_MS,
    "Time without failure after which the wait is the first one again.",
)
EXPONENTIAL_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    NumberType(at_least=0.0, at_most=1.0),
    0.1,
    "Random share by which the wait is lengthened or shortened.",
)
EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    _POSITIVE,
    2**31 - 1,
    "Restarts without a reset of the wait before the job fails for good.",
)
FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    ChoiceType(("region", "full")),
    "region",
    "What a failed subtask takes along in a restart: the subtasks that it is connected with, or "
    "all.",
)
RESCALE_MAX_DELAY: Final[ConfigOption[int | None]] = ConfigOption(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
    DurationType(),
    None,
    "Longest wait of a rescale for the next checkpoint; then it starts from the newest there is. "
    "Unset, it is the interval of checkpoints times one more than "
    "`jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures`; without periodic "
    "checkpoints it is 0.",
)
RESCALE_CHECKPOINT_FAILURES: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
    IntegerType(at_least=1),
    2,
    "Failed checkpoints after which a rescale waits no longer and starts from the newest there is.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    RESTART_STRATEGY,
    FIXED_DELAY_ATTEMPTS,
    FIXED_DELAY,
    FAILURE_RATE_MAX,
    FAILURE_RATE_INTERVAL,
    FAILURE_RATE_DELAY,
    EXPONENTIAL_INITIAL,
    EXPONENTIAL_MAX,
    EXPONENTIAL_MULTIPLIER,
    EXPONENTIAL_RESET_THRESHOLD,
    EXPONENTIAL_JITTER,
    EXPONENTIAL_ATTEMPTS,
    FAILOVER_STRATEGY,
    RESCALE_MAX_DELAY,
    RESCALE_CHECKPOINT_FAILURES,
)


def restart_settings(configuration: ReadableConfig, *, checkpointing: bool) -> RestartSettings:
    """Restart strategy; if unset, it depends on whether the job is checkpointed."""
    default = "exponential-delay" if checkpointing else "disable"
    match configuration.get(RESTART_STRATEGY) or default:
        case "fixed-delay":
            return FixedDelay(
                attempts=configuration.get(FIXED_DELAY_ATTEMPTS),
                delay_ms=configuration.get(FIXED_DELAY),
            )
        case "failure-rate":
            return FailureRate(
                failures_max=configuration.get(FAILURE_RATE_MAX),
                interval_ms=configuration.get(FAILURE_RATE_INTERVAL),
                delay_ms=configuration.get(FAILURE_RATE_DELAY),
            )
        case "exponential-delay":
            return _exponential_delay(configuration)
        case _:
            return NoRestart()


def _exponential_delay(configuration: ReadableConfig) -> ExponentialDelay:
    initial_ms = configuration.get(EXPONENTIAL_INITIAL)
    max_ms = configuration.get(EXPONENTIAL_MAX)
    if initial_ms > max_ms:
        raise ConfigError(
            f"The first wait before a restart is {initial_ms} ms, longer than the longest, "
            f"{max_ms} ms",
            where=configuration.where_set(EXPONENTIAL_INITIAL),
            remedy=f"Lower {EXPONENTIAL_INITIAL.key} or raise {EXPONENTIAL_MAX.key}.",
        )
    return ExponentialDelay(
        initial_ms=initial_ms,
        max_ms=max_ms,
        multiplier=configuration.get(EXPONENTIAL_MULTIPLIER),
        reset_threshold_ms=configuration.get(EXPONENTIAL_RESET_THRESHOLD),
        jitter=configuration.get(EXPONENTIAL_JITTER),
        attempts_before_reset=configuration.get(EXPONENTIAL_ATTEMPTS),
    )


def rescale_settings(
    configuration: ReadableConfig, checkpoints: CheckpointSettings
) -> RescaleSettings:
    """Longest wait of a rescale for a checkpoint; by default, from the checkpoint interval."""
    failures_max = configuration.get(RESCALE_CHECKPOINT_FAILURES)
    max_delay_ms = configuration.get(RESCALE_MAX_DELAY)
    if max_delay_ms is None:
        max_delay_ms = (checkpoints.interval_ms or 0) * (failures_max + 1)
    return RescaleSettings(max_delay_ms, failures_max)
