"""The job master's commands, told: in the log for people, and as spans for reporters.

A span has a name, a time from and to, and attributes; names are Flink's. `Tracing` looks at what
the job master said and at the job's view, so nothing is measured twice.

Source: checkpoint coordination §12.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.checkpoint.coordinator.commands import CheckpointEnded, MessageIgnored
from tidegate.jobmaster.commands import (
    Deployed,
    FallingBack,
    GuestsDeployed,
    GuestsReturn,
    GuestsStay,
    RescaleDone,
    Rescaling,
    Restarting,
    SlotsAwaited,
    StatusChanged,
)
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.failure_reason import FailureReason
from tidegate.model.metrics import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import structlog

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, SubtaskStatistics
    from tidegate.jobmaster.commands import Guests, JobCommand
    from tidegate.jobmaster.view import JobView
    from tidegate.telemetry.span_reporting import SpanReporting

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
    | GuestsDeployed
    | GuestsReturn
    | GuestsStay
    | CheckpointEnded
    | MessageIgnored
)


def tell(command: Told, log: structlog.typing.FilteringBoundLogger, *, hint: str = "") -> None:
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
        case GuestsDeployed(guests):
            log.info("subtasks without a slot of their own run in others", guests=_listed(guests))
        case GuestsReturn(guests=guests):
            log.info("subtasks return to slots of their own", guests=_listed(guests))
        case GuestsStay(guests, error):
            log.warning(
                "no further slot will come: subtasks stay in the slots of others, which work for "
                "both. Rescale the job to the slots that it has, or mend what the error names",
                guests=_listed(guests),
                error=str(error),
            )
        case CheckpointEnded():
            _tell_checkpoint(command, log)
        case MessageIgnored(execution, checkpoint, why):
            log.debug(why.value, checkpoint=checkpoint, attempt=execution.attempt)


def _listed(guests: Guests) -> dict[str, list[str]]:
    return {slot: list(names) for slot, names in guests.items()}


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


Attribute = int | str


class Tracing:
    """Makes spans of one job and has them reported, in order.

    reporting: gets them; None where nobody does.
    """

    def __init__(self, reporting: SpanReporting | None) -> None:
        self._reporting = reporting
        self._starting = False

    def follow(self, commands: Iterable[JobCommand], view: Callable[[], JobView]) -> None:
        """Follows the job master's messages. view: the job's current state."""
        reporting = self._reporting
        if reporting is None:
            return
        for command in commands:
            match command:
                case CheckpointEnded(checkpoint) if checkpoint is not None:
                    seen = view()
                    final = seen.checkpoints.find(checkpoint)
                    if final is not None:
                        reporting.add(checkpoint_span(seen.job, final))
                case Deployed():
                    self._starting = True
                case _:
                    pass
        if self._starting and (span := initialization_span(view())) is not None:
            self._starting = False
            reporting.add(span)


_FIGURES: Final[Mapping[str, Callable[[SubtaskStatistics], int]]] = {
    "StateSizeBytes": lambda share: share.state_size,
    "CheckpointedSizeBytes": lambda share: share.checkpointed_size,
    "CheckpointStartDelayMs": lambda share: share.start_delay_ms,
    "AlignmentDurationMs": lambda share: share.alignment_ms,
    "SyncCheckpointDurationMs": lambda share: share.sync_ms,
    "AsyncCheckpointDurationMs": lambda share: share.async_ms,
    "ProcessedDataBytes": lambda share: share.processed_bytes,
    "PersistedDataBytes": lambda share: share.persisted_bytes,
}


def checkpoint_span(job: str, final: CheckpointStatistics) -> Span:
    shares = [share for vertex in final.vertices for share in vertex.acknowledged]
    attributes: dict[str, Attribute] = {
        "checkpointId": final.checkpoint,
        "fullSize": final.state_size,
        "checkpointedSize": final.checkpointed_size,
        "metadataSize": final.metadata_size,
        "checkpointStatus": final.status.value,
        "isUnaligned": str(final.unaligned).lower(),
        "checkpointType": final.kind.value,
    }
    for name, figure in _FIGURES.items():
        attributes |= _spread(name, [figure(share) for share in shares])
    ended_ms = max(final.latest_ack_ms, final.failed_ms)
    return Span("Checkpoint", job, final.trigger_ms, ended_ms, attributes)


def initialization_span(view: JobView) -> Span | None:
    """The span of the newest start of subtasks, all or a region; None while it is under way."""
    known = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    began_ms = max(subtask.timestamps_ms[ExecutionState.CREATED] for subtask in known)
    subtasks = [s for s in known if s.timestamps_ms[ExecutionState.CREATED] == began_ms]
    running = all(ExecutionState.RUNNING in subtask.timestamps_ms for subtask in subtasks)
    if not running and view.status is JobStatus.RUNNING:
        return None
    attributes: dict[str, Attribute] = {
        "initializationStatus": "COMPLETED" if running else "FAILED"
    }
    restored = view.checkpoints.latest_restored
    if view.restored is not None and restored is not None:
        attributes |= {"checkpointId": view.restored, "fullSize": restored.state_size}
    durations = [subtask.restore_ms for subtask in subtasks]
    attributes |= _spread("InitializeStateDurationMs", durations)
    stamps = [ms for subtask in subtasks for ms in subtask.timestamps_ms.values()]
    ready = [subtask.timestamps_ms[ExecutionState.RUNNING] for subtask in subtasks if running]
    return Span("JobInitialization", view.job, began_ms, max(ready or stamps), attributes)


def _spread(name: str, values: Sequence[int]) -> dict[str, Attribute]:
    return {f"max{name}": max(values, default=0), f"sum{name}": sum(values)}
