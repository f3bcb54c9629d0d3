"""Spans of what a job does: one for each checkpoint, and one for each start of its subtasks.

A span has a name, a time from and to, and attributes; names are Flink's. `Tracing` looks at what
the job master said and at the job's view, so nothing is measured twice. Reporters write spans down.

Source: checkpoint coordination §12.2.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.checkpoint.coordinator.commands import CheckpointEnded
from tidegate.jobmaster.commands import Deployed
from tidegate.model.control import ExecutionState, JobStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    import structlog

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, SubtaskStatistics
    from tidegate.jobmaster.commands import JobCommand
    from tidegate.jobmaster.view import JobView
    from tidegate.model.settings import JobSettings

Attribute = int | str


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took its time; wall clock milliseconds. job: its id."""

    name: str
    job: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Attribute]


class TraceReporter(Protocol):
    """Takes spans to where they are looked at."""

    def report(self, span: Span) -> None:
        """Write a span down. May block; StorageFailed and OSError are logged."""
        ...


class FileTraceReporter:
    """Appends each span to a file, as a line of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def report(self, span: Span) -> None:
        line = json.dumps(asdict(span)) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode())


def trace_reporters(settings: JobSettings) -> tuple[TraceReporter, ...]:
    """The reporters that a job's settings ask for."""
    return () if settings.trace_file is None else (FileTraceReporter(Path(settings.trace_file)),)


class Tracing:
    """Makes spans of one job and has them reported, in order.

    spawn: runs a coroutine beside; its end is waited for at the end of the job.
    """

    def __init__(
        self,
        reporters: Sequence[TraceReporter],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        spawn: Callable[[Coroutine[object, object, None]], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._reporters = reporters
        self._run_blocking = run_blocking
        self._spawn = spawn
        self._log = log
        self._turn = asyncio.Lock()
        self._starting = False

    def follow(self, commands: Iterable[JobCommand], view: Callable[[], JobView]) -> None:
        """Follows the job master's messages. view: the job's current state."""
        if not self._reporters:
            return
        for command in commands:
            match command:
                case CheckpointEnded(checkpoint) if checkpoint is not None:
                    seen = view()
                    final = seen.checkpoints.find(checkpoint)
                    if final is not None:
                        self._report(checkpoint_span(seen.job, final))
                case Deployed():
                    self._starting = True
                case _:
                    pass
        if self._starting and (span := initialization_span(view())) is not None:
            self._starting = False
            self._report(span)

    def _report(self, span: Span) -> None:
        self._spawn(self._write(span))

    async def _write(self, span: Span) -> None:
        async with self._turn:
            for reporter in self._reporters:
                try:
                    await self._run_blocking(lambda to=reporter: to.report(span))
                except Exception as error:
                    self._log.warning("a span could not be reported", error=repr(error))


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
