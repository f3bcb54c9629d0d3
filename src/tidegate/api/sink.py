"""Sinks: writers in the slots, and a committer for what a completed checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from tidegate.api.coordinator import CoordinatorContext, OperatorCoordinator
    from tidegate.model.elements import Batch, OperatorEvent
    from tidegate.model.ids import CheckpointId, JobId


@dataclass(frozen=True, slots=True)
class CommittableMessage:
    """A committable on its way from a writer to a committer. subtask: of the writer."""

    committable: bytes
    subtask: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a writer has prepared at a barrier.

    committables: self-contained bytes, enough for any other process to make the records visible.
    durable: done when the records are durable; None where they are already. It runs on while later
    batches are written, so the writer must have cut its output.
    """

    committables: Sequence[bytes] = ()
    durable: Awaitable[object] | None = None


class WriterContext(Protocol):
    """What a writer may know of where it runs."""

    @property
    def subtask(self) -> int:
        """Index of the subtask."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of subtasks."""
        ...

    @property
    def job(self) -> JobId:
        """Id of the job."""
        ...

    @property
    def operator(self) -> str:
        """Name of the sink, for messages."""
        ...

    @property
    def attempt_name(self) -> str:
        """``<8 digits for the sink>-<epoch>-<attempt>-<subtask>``, unlike any other of the job."""
        ...

    @property
    def restored_checkpoint(self) -> CheckpointId | None:
        """The checkpoint that the job was restored from."""
        ...

    @property
    def checkpointing(self) -> bool:
        """Whether checkpoints are taken; without, ``prepare_commit`` is called at the end only."""
        ...

    def processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        """Run a call that blocks on the slot's pool."""
        ...

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a coroutine on the slot's loop; its failure is the subtask's."""
        ...

    def to_coordinator(self, event: OperatorEvent) -> None:
        """Send an event to the sink's coordinator, where it has one."""
        ...


class SinkWriter(Protocol):
    """Writes one subtask's share. Called on the slot's loop."""

    def write(self, batch: Batch) -> Awaitable[object] | None:
        """Take a batch; an awaitable where no more is wanted before it is done.

        The subtask then waits for it, and so does everything upstream; its failure is the
        subtask's.
        """
        ...

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        """Cut the output: what was written until now belongs to this checkpoint."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        """State of the writer that is not a committable; restored through ``Sink.writer``."""
        ...

    def close(self) -> None:
        """Free what is held; what was never prepared may be thrown away.

        No call that went through ``run_blocking`` is under way any more.
        """
        ...


@runtime_checkable
class NotifiedWriter(Protocol):
    """A writer that is told of completed checkpoints implements this beside ``SinkWriter``."""

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        ...


@runtime_checkable
class CoordinatedWriter(Protocol):
    """A writer of a ``CoordinatedSink`` implements this beside ``SinkWriter``."""

    def on_event(self, event: OperatorEvent) -> None:
        """An event from the sink's coordinator."""
        ...


class Committer(Protocol):
    """Makes committables visible. Blocking; called on the slot's pool. Must be idempotent."""

    def commit(self, committables: Sequence[bytes]) -> None:
        """Make them visible, all; those already committed are passed over.

        Raises CommitFailed where trying again cannot help, another WorldError where it may.
        """
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A picklable description of where records go.

    It may have a method ``check``, which does what ``Operator.check`` does.
    """

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        """A subtask's writer, with the writer states that fell to it.

        Called after what the restored checkpoint held was committed. On the slot's loop.
        """
        ...

    def committer(self) -> Committer | None:
        """What commits; None where records are visible once written (at-least-once)."""
        ...


@runtime_checkable
class CoordinatedSink(Protocol):
    """A sink with a driver-side half implements this beside ``Sink``."""

    def coordinator(self, context: CoordinatorContext) -> OperatorCoordinator:
        """Make the driver-side half."""
        ...
