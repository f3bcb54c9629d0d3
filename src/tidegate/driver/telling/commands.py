"""What an operator of the job would tell a colleague: the job master's commands in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.commands import CheckpointEnded, MessageIgnored
from tidegate.jobmaster.commands import (
    Deployed,
    FallingBack,
    RescaleDone,
    Rescaling,
    Restarting,
    SlotsAwaited,
    StatusChanged,
)
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    import structlog

REPEATS_TOLD: Final = 3
"""The same failure so many times is no accident."""

Told = (
    StatusChanged
    | SlotsAwaited
    | Restarting
    | FallingBack
    | Rescaling
    | RescaleDone
    | Deployed
    | CheckpointEnded
    | MessageIgnored
)


def tell(command: Told, log: structlog.typing.FilteringBoundLogger, hint: str) -> None:
    """Logs one of them. hint: what may be the matter where slots do not come."""
    match command:
        case StatusChanged(status=status, error=error):
            log.info("job status", status=status.value, error=error and error.what)
        case SlotsAwaited(have, want, waited_ms):
            log.warning("waiting for slots", have=have, want=want, waited_ms=waited_ms, hint=hint)
        case Restarting():
            _tell_restart(command, log)
        case FallingBack(damaged, older, error):
            log.warning(
                "the newest checkpoint is damaged, and the job falls back to an older one: "
                "output that sinks have committed since is written again",
                damaged=damaged,
                checkpoint=older,
                error=str(error),
            )
        case Rescaling(parallelism):
            log.info("job rescales", parallelism=parallelism)
        case RescaleDone(parallelism=parallelism, error=None):
            log.info("job rescaled", parallelism=parallelism)
        case RescaleDone(parallelism=parallelism, error=error):
            log.warning("job not rescaled", parallelism=parallelism, error=str(error))
        case Deployed(attempt, restored, subtasks):
            log.info("subtasks deployed", subtasks=subtasks, attempt=attempt, restored=restored)
        case CheckpointEnded():
            _tell_checkpoint(command, log)
        case MessageIgnored(execution, checkpoint, why):
            log.debug(why.value, checkpoint=checkpoint, attempt=execution.attempt)


def _tell_restart(command: Restarting, log: structlog.typing.FilteringBoundLogger) -> None:
    times, error = command.times, command.error
    again = times > 1
    log.warning(
        "job restarts",
        restart=command.restart,
        delay_ms=command.delay_ms,
        error=f"the same again ({times}): {error.what}" if again else str(error),
    )
    if times == REPEATS_TOLD:
        log.warning(
            "the same failure occurs again and again. If a row causes it, a restart does not "
            "help: fix the function, or make it skip the row",
            times=times,
            where=error.where,
        )


def _tell_checkpoint(ended: CheckpointEnded, log: structlog.typing.FilteringBoundLogger) -> None:
    if ended.reason is None:
        log.info(
            "checkpoint completed",
            checkpoint=ended.checkpoint,
            duration_ms=ended.duration_ms,
            size_bytes=ended.size_bytes,
            written_bytes=ended.written_bytes,
        )
        return
    reason = ended.reason
    tell = log.info  # what does not count is part of a job's life: a restart, an end
    if reason.counts:
        tell = log.warning
    elif reason is FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS:
        tell = log.debug  # put off, as the settings ask for: no failure
    tell(
        "checkpoint failed",
        checkpoint=ended.checkpoint,
        reason=reason.name,
        message=ended.message,
        where=ended.where,
        remedy=reason.remedy,
    )
