"""Snapshot that a job starts from, restarts after a failure, and rescales: options and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    DurationType,
    EnumType,
    IntegerType,
    NumberType,
    TextType,
)
from tidegate.errors import ConfigError
from tidegate.model.settings import (
    ClaimMode,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RescaleSettings,
    RestartSettings,
    RestoreSettings,
)

if TYPE_CHECKING:
    from tidegate.model.settings import CheckpointSettings

_TEXT: Final = TextType()
_BOOLEAN: Final = BooleanType()

RESTORE_PATH: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.state-recovery.path",
    _TEXT,
    None,
    "Checkpoint or savepoint to start from.",
    old_keys=("execution.savepoint.path",),
)
RESTORE_CLAIM_MODE: Final = ConfigOption(
    "execution.state-recovery.claim-mode",
    EnumType(ClaimMode),
    ClaimMode.NO_CLAIM,
    "Ownership of the files of the snapshot that the job starts from.",
    old_keys=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE: Final = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    _BOOLEAN,
    False,
    "Ignore state in that snapshot that no operator takes.",
    old_keys=("execution.savepoint.ignore-unclaimed-state",),
)
RESTORE_WITHOUT_IN_FLIGHT_DATA: Final = ConfigOption(
    "execution.state-recovery.without-channel-state.checkpoint-id",
    IntegerType(-1),
    -1,
    "If this checkpoint is restored, drop its in-flight data; -1 for none.",
    old_keys=("execution.checkpointing.recover-without-channel-state.checkpoint-id",),
)
RESTORE_FALL_BACK: Final = ConfigOption(
    "tidegate.restore.fall-back",
    _BOOLEAN,
    False,
    "If the newest checkpoint is damaged, fall back to an older one; everything after it is read "
    "and written again. Otherwise the job is suspended.",
)
FORK_NAME: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.fork.name",
    _TEXT,
    None,
    "Run the program as a fork, under this name, of the job whose snapshot it starts from. Its "
    "sinks start empty, so the original job commits what it has not committed yet. Set by "
    "`tidegate fork`.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    RESTORE_PATH,
    RESTORE_CLAIM_MODE,
    IGNORE_UNCLAIMED_STATE,
    RESTORE_WITHOUT_IN_FLIGHT_DATA,
    RESTORE_FALL_BACK,
    FORK_NAME,
)


def restore_settings(configuration: ReadableConfig) -> RestoreSettings:
    without = configuration.get(RESTORE_WITHOUT_IN_FLIGHT_DATA)
    return RestoreSettings(
        path=configuration.get(RESTORE_PATH),
        allow_non_restored=configuration.get(IGNORE_UNCLAIMED_STATE),
        claim_mode=configuration.get(RESTORE_CLAIM_MODE),
        without_in_flight_of=None if without < 0 else without,
        fork=configuration.get(FORK_NAME),
        fall_back=configuration.get(RESTORE_FALL_BACK),
    )


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
    "Restart strategy of a failed job; by default, exponential delay with checkpointing, never "
    "without.",
    old_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    _COUNT,
    1,
    "Number of restarts before the job fails for good.",
)
FIXED_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", _DURATION, 1_000, "Wait before each restart."
)
FAILURE_RATE_MAX: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    _POSITIVE,
    1,
    "Number of failures allowed within the interval.",
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
    "Factor by which the wait grows with each failure.",
)
EXPONENTIAL_RESET_THRESHOLD: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DurationType(at_least_ms=1),
    60 * _MINUTE_MS,
    "Time without failures after which the wait is reset to the first one.",
)
EXPONENTIAL_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    NumberType(at_least=0.0, at_most=1.0),
    0.1,
    "Random share by which the wait is made longer or shorter.",
)
EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    _POSITIVE,
    2**31 - 1,
    "Number of restarts without a reset of the wait before the job fails for good.",
)
FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    ChoiceType(("region", "full")),
    "region",
    "Extent of a restart after a subtask fails: the subtasks connected with it, or all.",
)
ON_SURVIVORS: Final = ConfigOption(
    "tidegate.recovery.on-survivors",
    _BOOLEAN,
    False,
    "When a slot is lost, have the slots that live host its subtasks at once, as long as half of "
    "the job's slots live. They return to a slot of their own with the next completed checkpoint "
    "after one has come. Until then a slot may need twice the memory and the processor time.",
)
RESCALE_MAX_DELAY: Final[ConfigOption[int | None]] = ConfigOption(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
    DurationType(),
    None,
    "Longest time that a rescale waits for the next checkpoint; after that it starts from the "
    "newest one. By default, the interval of checkpoints times one more than "
    "`jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures`; 0 without periodic "
    "checkpoints.",
)
RESCALE_CHECKPOINT_FAILURES: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
    IntegerType(at_least=1),
    2,
    "Number of failed checkpoints after which a rescale stops waiting and starts from the newest "
    "one.",
)

RESTART_OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
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
    ON_SURVIVORS,
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
