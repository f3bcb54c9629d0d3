"""Failure enrichers: user code that labels failures with what they are about.

An enricher lives in the driver. It gets each failure of the job and gives labels, which stand
beside it in ``JobView.failures``. Its calls may block, for they are made on the driver's pool; the
restart does not wait for them. Source: Flink, ``FailureEnricher``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from flinkformat.frozen import frozen
from flinkformat.snapshots import SavepointFormatType
from tidegate.errors import Guiding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set
    from concurrent.futures import Future
    from os import PathLike

    import pyarrow as pa

    from tidegate.errors import TidegateError
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import JobStatus, RowCounts, Samples, ThreadStack
    from tidegate.model.ids import CheckpointId, JobId, SlotId, VertexId
    from tidegate.model.logs import LogFilter, LogPage


class FailureKind(Enum):
    """Source of a failure: a subtask, the slot that hosted some, or the job in its driver."""

    TASK = "TASK"
    SLOT = "SLOT"
    GLOBAL = "GLOBAL"


@frozen
class FailureContext:
    """Place of a failure. task: the vertex, "" if it is of none; slot: None likewise."""

    kind: FailureKind
    job: JobId
    job_name: str
    task: str
    slot: SlotId | None


class FailureEnricher(ABC):
    """Labels failures; register it with ``env.add_failure_enricher``."""

    @abstractmethod
    def get_output_keys(self) -> Set[str]:
        """Keys of its labels; no two enrichers of a job share one."""

    @abstractmethod
    def process_failure(self, cause: TidegateError, context: FailureContext) -> Mapping[str, str]:
        """Labels for a failure; empty if it has nothing to say.

        cause: what a user's function raised is a ``UserCodeFailed``, with its traceback as
        ``trace``.
        """


T = TypeVar("T")


class MasterStateSerializer(Protocol[T]):
    """Encodes the state of a hook."""

    @property
    def version(self) -> int:
        """Version of the encoding of ``serialize``; kept beside the bytes in ``_metadata``."""
        ...

    def serialize(self, state: T) -> bytes:
        """Encodes the state of the hook."""
        ...

    def deserialize(self, version: int, data: bytes) -> T:
        """Decodes a state that was written with that version."""
        ...


class MasterTriggerRestoreHook(ABC, Generic[T]):
    """A hook; register it with ``env.add_master_hook``."""

    @abstractmethod
    def get_identifier(self) -> str:
        """Id under which the hook's state is found: unique in the job, the same in each version."""

    @abstractmethod
    def trigger_checkpoint(
        self, checkpoint_id: CheckpointId, timestamp_ms: int
    ) -> T | Future[T | None] | None:
        """Starts a checkpoint; the result, or the future's, is the hook's state in it.

        timestamp_ms: of the trigger, wall clock. None: no state. An exception fails the checkpoint.
        """

    @abstractmethod
    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: T | None) -> None:
        """The job resumes from a checkpoint. state: None if the hook has none in it."""

    def reset(self) -> None:
        """The job starts from nothing, since there is no checkpoint."""

    def close(self) -> None:
        """Called at the end of the job."""

    def create_checkpoint_data_serializer(self) -> MasterStateSerializer[T] | None:
        """Serializer of the state; None for a hook that never has any."""
        return None


@frozen
class JobExecutionStatusEvent:
    """A change of a job's status.

    timestamp_ms: when, wall clock; the same as in ``JobView.timestamps_ms``, and never less than in
    the event before. error: the failure behind it; None if there is none.
    """

    job_id: JobId
    job_name: str
    old_status: JobStatus
    new_status: JobStatus
    timestamp_ms: int
    error: TidegateError | None = None


class JobStatusChangedListener(ABC):
    """Learns of a job's status changes; register it with ``env.register_job_listener``."""

    @abstractmethod
    def on_event(self, event: JobExecutionStatusEvent) -> None:
        """Called when the job's status has changed.

        Called for the next change only when this one's call is over. An exception is logged. The
        last call, for a job that has ended, is over before its result is given out.
        """


@frozen
class JobSummary:
    """Work of a job from its submission to its end; as text, a few lines.

    rows: repeats after restarts count each time; of a slot that was killed, the last second may be
    missing. checkpoints: completed ones, savepoints among them.
    """

    name: str
    status: JobStatus
    runtime_ms: int
    rows: RowCounts
    checkpoints: int = 0
    checkpoints_failed: int = 0
    restarts: int = 0

    def __str__(self) -> str:
        rows = self.rows
        repeats = ", repeats included" if self.restarts else ""
        first = (
            f"job '{self.name}' is {self.status.value} after {self.runtime_ms / 1_000:.1f} s: "
            f"{_many(rows.read, 'row')} read, {rows.written:,} written{repeats}"
        )
        lost = [
            f"{_many(count, 'row')} {what}"
            for count, what in (
                (rows.late, "too late and dropped"),
                (rows.skipped, "skipped as unreadable"),
                (rows.dead_letters, "sent to dead letters"),
            )
            if count
        ]
        ran: list[str] = []
        if self.checkpoints or self.checkpoints_failed:
            failed = (
                f" ({self.checkpoints_failed:,} more given up)" if self.checkpoints_failed else ""
            )
            ran.append(_many(self.checkpoints, "checkpoint") + failed)
        if self.restarts:
            ran.append(_many(self.restarts, "restart"))
        return "\n  ".join(filter(None, (first, ", ".join(lost), ", ".join(ran))))


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


_ACCUMULATORS: Final = (
    "count with get_metrics_group().counter(name) in a function, or emit to a side output"
)
NOT_OF_A_JOB: Final = {
    "get_accumulators": _ACCUMULATORS,
    "get_accumulator_result": _ACCUMULATORS,
    "get_all_accumulator_results": _ACCUMULATORS,
}
"""Calls of PyFlink that jobs and their results lack, and what is there instead."""


@frozen(repr=False)
class JobExecutionResult(Guiding):
    """End of a job. runtime_ms: from submission to the end. savepoint: that it has ended with."""

    _instead = NOT_OF_A_JOB

    job_id: JobId
    runtime_ms: int
    summary: JobSummary | None = None
    savepoint: str | None = None

    def __repr__(self) -> str:
        told = f"job {self.job_id} ended after {self.runtime_ms / 1_000:.1f} s"
        return f"<JobExecutionResult: {self.summary or told}>"

    def get_job_id(self) -> JobId:
        """Id of the job, 32 hexadecimal digits."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Milliseconds from submission to the end."""
        return self.runtime_ms

    def get_savepoint(self) -> str | None:
        """Path of the savepoint that a batch was to end with; None of any other job."""
        return self.savepoint

    def get_summary(self) -> JobSummary | None:
        """Rows, checkpoints and restarts of the job; None if it had ended in an earlier run."""
        return self.summary


@frozen
class CheckpointDone:
    """A checkpoint that was requested. pointer: its directory, or "" in the driver's memory."""

    checkpoint: int
    pointer: str


class JobClient(Protocol):
    """A handle on a submitted job; methods may be called from any thread.

    Futures fail with the ``TidegateError`` that says why.
    """

    def get_job_id(self) -> JobId:
        """Id of the job, 32 hexadecimal digits."""
        ...

    def get_web_interface_url(self) -> str | None:
        """Address of the job's REST interface, such as ``http://localhost:8081``.

        None if it has none: see ``rest.port``.
        """
        ...

    def get_job_status(self) -> Future[JobStatus]:
        """Current status of the job."""
        ...

    def cancel(self) -> Future[None]:
        """Cancels the job; done when it has ended. Without effect on an ended job."""
        ...

    def suspend(self, reason: str = "somebody asked for it") -> Future[None]:
        """Stops the job so that it can be resumed later; done when it has ended.

        A last checkpoint is taken before, unless that takes longer than
        ``tidegate.interrupt.checkpoint-timeout``. A job without checkpoints is cancelled.
        """
        ...

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Done when the job has finished; fails with JobFailed, JobCanceled or JobSuspended."""
        ...

    def trigger_checkpoint(self, *, full: bool = False) -> Future[CheckpointDone]:
        """Takes a checkpoint now. full: references nothing of older ones."""
        ...

    def trigger_savepoint(
        self,
        savepoint_directory: str | PathLike[str] | None = None,
        *,
        format: SavepointFormatType = SavepointFormatType.CANONICAL,
        trigger_id: str | None = None,
    ) -> Future[str]:
        """Takes a savepoint of the running job, which goes on; the result is its path.

        savepoint_directory: where it gets a folder of its own; unless given, that of
        ``execution.checkpointing.savepoint-dir``. It belongs to whoever asked: no job deletes it.
        Sinks do not commit on it. trigger_id: asking again with the same one takes no second
        savepoint but gives the first one's result. Fails with CheckpointAborted, ConfigError.
        """
        ...

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool,
        savepoint_directory: str | PathLike[str] | None = None,
        *,
        format: SavepointFormatType = SavepointFormatType.CANONICAL,
        trigger_id: str | None = None,
    ) -> Future[str]:
        """Stops the sources, takes a savepoint, commits its output and finishes; gives its path.

        advance_to_end_of_event_time: drain the job before, so that all windows and event-time
        timers fire; for a job that is not to go on. Without, they stay in the savepoint. The other
        arguments are those of `trigger_savepoint`. If the savepoint fails, the job continues. Fails
        with StopWithSavepointFailed where the job failed behind the savepoint.
        """
        ...

    def cancel_with_savepoint(
        self,
        savepoint_directory: str | PathLike[str] | None = None,
        *,
        format: SavepointFormatType = SavepointFormatType.CANONICAL,
        trigger_id: str | None = None,
    ) -> Future[str]:
        """Takes a savepoint, then cancels the job; the result is the savepoint's path.

        Arguments as of `trigger_savepoint`. Sinks do not commit on it: what they held is committed
        by whoever starts from it. If the savepoint fails, the job continues.
        """
        ...

    def rescale(self, parallelism: int) -> Future[None]:
        """Changes the parallelism of the running job; done when all its subtasks run at it.

        Steps whose parallelism the program has set keep it. The job runs on until a checkpoint has
        completed, and starts from that one. Fails with RescaleRefused where it cannot be, or
        SlotsMissing where the slots for it do not come; the job then runs on as it is.
        """
        ...

    def thread_dump(self, slot: SlotId | None = None) -> Future[tuple[ThreadStack, ...]]:
        """Stacks of all threads of a slot, or of the driver, as they are now.

        Fails with PeerLost if the slot does not answer within five seconds, as while it is in a
        call of a function that does not return.
        """
        ...

    def call_samples(self, slot: SlotId, vertex: VertexId) -> Future[Samples]:
        """Where the time of a vertex's subtasks in a slot goes, by Python frames and by keys.

        The slot samples them for a minute from this call on, and answers with what it has: nothing
        at first. Fails as `thread_dump`.
        """
        ...

    def log(
        self,
        wanted: LogFilter | None = None,
        *,
        after: int | None = None,
        limit: int = 1_000,
    ) -> LogPage:
        """Newest records of the job's log, or the next ones after those of an earlier page.

        Records are those of the driver, of the slots and of functions in them, with the step that
        was at work. wanted: chooses some. after: of the earlier page. limit: at most 1,000.
        """
        ...

    def view(self) -> JobView:
        """State of the job as a frozen value."""
        ...

    def collected(self, name: str) -> Iterator[object]:
        """Records that the collect sink of that name has made available."""
        ...

    def collected_waiting(self, name: str, count: int) -> list[object]:
        """The oldest records of a collect sink that nobody has taken, so many at most."""
        ...

    def collected_chunks(self, name: str) -> Iterator[list[object] | pa.RecordBatch]:
        """Results of a collect sink in pieces, as they came: lists of rows, or Arrow batches."""
        ...
