"""Sinks: writers in the slots, and a committer for what a completed checkpoint holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId, Epoch, JobId


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
    def attempt_name(self) -> str:
        """A file-name-safe word that no other attempt of any subtask of the job has ever had."""
        ...

    @property
    def restored_checkpoint(self) -> CheckpointId | None:
        """The checkpoint that the job was restored from."""
        ...

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        """Run a call that blocks on the slot's pool."""
        ...


class SinkWriter(Protocol):
    """Writes one subtask's share. Called on the slot's loop.

    ``write`` returns an awaitable where it has handed work to the pool and wants no more for now;
    the subtask then waits for it, and so does everything upstream.
    """

    def write(self, batch: Batch) -> Awaitable[object] | None:
        """Take a batch."""
        ...

    def prepare_commit(self, *, end_of_input: bool) -> Awaitable[Sequence[bytes]] | Sequence[bytes]:
        """Make durable all that was written, as committables: picklable, self-contained bytes.

        An awaitable is awaited in the asynchronous part of the snapshot, while later batches are
        already written: the writer must have cut its output at this call.
        """
        ...

    def snapshot(self) -> Sequence[bytes]:
        """State of the writer that is not a committable; restored through ``Sink.writer``."""
        ...

    def close(self) -> None:
        """Free what is held; what was never prepared may be thrown away."""
        ...


class Committer(Protocol):
    """Makes committables visible. Blocking; called on the slot's pool. Must be idempotent."""

    def commit(self, committables: Sequence[bytes]) -> None:
        """Make them visible, all; those already committed are passed over. Raises CommitFailed."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


class Sink(Protocol):
    """A picklable description of where records go."""

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        """A subtask's writer, with the writer states that fell to it."""
        ...

    def committer(self) -> Committer | None:
        """What commits; None where records are visible once written (at-least-once)."""
        ...
