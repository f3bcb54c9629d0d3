"""Sinks: writers in the slots, and a committer for what a completed checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from tidegate.api.coordinator import CoordinatorContext, OperatorCoordinator
    from tidegate.model.elements import Batch, OperatorEvent
    from tidegate.model.ids import CheckpointId, JobId


@frozen
class CommittableMessage:
    """A committable for the committer. subtask: its writer's.

    checkpoint: the first that may commit it; 0 for whichever comes next. Where barriers do not
    align, it may come before the barrier of an earlier one.
    """

    committable: bytes
    subtask: int
    checkpoint: int = 0


@frozen
class Prepared:
    """Prepared output of a writer, cut at a barrier.

    committables: self-contained bytes, enough for any other process to make the records visible.
    durable: done when the records are durable; None if they are already. It runs on while later
    batches are written, so the writer must have cut its output.
    """

    committables: Sequence[bytes] = ()
    durable: Awaitable[object] | None = None


class WriterContext(Protocol):
    """Surroundings of a writer."""

    @property
    def subtask(self) -> int:
        """Index of the subtask, from 0."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of the sink's subtasks."""
        ...

    @property
    def job(self) -> JobId:
        """Id of the job, 32 hexadecimal digits."""
        ...

    @property
    def operator(self) -> str:
        """Name of the sink, for messages."""
        ...

    @property
    def attempt_name(self) -> str:
        """``<8 digits for the sink>-<epoch>-<attempt>-<subtask>``, unique within the job."""
        ...

    @property
    def restored_checkpoint(self) -> CheckpointId | None:
        """Checkpoint that the job was restored from; None without one."""
        ...

    @property
    def checkpointing(self) -> bool:
        """True if checkpoints are taken; else ``prepare_commit`` is called at the end only."""
        ...

    @property
    def answers(self) -> bool:
        """True if the sink's coordinator answers while the job runs; a batch's hears all later."""
        ...

    def processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        """Runs a blocking call on the slot's pool."""
        ...

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Runs a coroutine on the slot's loop; its failure is the subtask's."""
        ...

    def to_coordinator(self, event: OperatorEvent) -> None:
        """Sends an event to the sink's coordinator, if it has one."""
        ...


class SinkWriter(Protocol):
    """Writes one subtask's share. Called on the slot's loop."""

    def write(self, batch: Batch) -> Awaitable[object] | None:
        """Takes a batch; returns an awaitable to pause input until it is done.

        The subtask then waits for it, and so does everything upstream; its failure is the
        subtask's.
        """
        ...

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        """Cuts the output: everything written until now belongs to this checkpoint."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        """State of the writer apart from committables; restored through ``Sink.writer``."""
        ...

    def close(self) -> None:
        """Frees resources; output that was never prepared may be discarded.

        No call that went through ``run_blocking`` is under way any more.
        """
        ...


@runtime_checkable
class NotifiedWriter(Protocol):
    """A writer that must know of completed checkpoints implements this beside ``SinkWriter``."""

    def on_complete(self, checkpoint: CheckpointId) -> None: ...


@runtime_checkable
class CoordinatedWriter(Protocol):
    """A writer of a ``CoordinatedSink`` implements this beside ``SinkWriter``."""

    def on_event(self, event: OperatorEvent) -> None:
        """Receives an event from the sink's coordinator."""
        ...


class Committer(Protocol):
    """Makes committables visible. Blocking; called on the slot's pool. Must be idempotent."""

    def commit(self, committables: Sequence[bytes]) -> None:
        """Makes all committables visible; skips those already committed.

        Raises CommitFailed if trying again cannot help, another WorldError or an OSError where it
        may; any other exception fails the job at once.
        """
        ...

    def close(self) -> None:
        """Frees the committer's resources."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A picklable description of a destination of records.

    It may have a method ``check``, which does what ``Operator.check`` does, and attributes
    ``delivery`` (``Delivery``), what it promises; without one a sink that commits is taken for
    exactly-once, any other for at-least-once. ``waits_for_checkpoints`` is true of a sink without
    a committer whose writer holds records back until a checkpoint is complete.
    ``commits_within_ms`` is the time after which output that is not committed is lost, None for no
    limit: a longer interval of checkpoints is refused.
    """

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        """Writer of a subtask, with the writer states assigned to it.

        Called after what the restored checkpoint held was committed. On the slot's loop. It is then
        told of the barriers that have passed meanwhile, by ``prepare_commit`` and ``snapshot``,
        whose state is not used: these checkpoints have the restored one.
        """
        ...

    def committer(self) -> Committer | None:
        """The committer; None if records are visible once written (at-least-once)."""
        ...


@runtime_checkable
class CoordinatedSink(Protocol):
    """A sink with a driver-side half implements this beside ``Sink``."""

    def coordinator(self, context: CoordinatorContext) -> OperatorCoordinator:
        """Makes the driver-side half."""
        ...
