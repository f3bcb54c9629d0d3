"""From the last acknowledgement to the pointer, one checkpoint at a time.

    all acknowledged → metadata written → pointer added

Savepoints get no pointer, save the one with which the job stops: sinks commit on it, so a later
failure has to restore from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.checkpoint.coordinator.commands import AddPointer, WriteMetadata
from tidegate.checkpoint.coordinator.pending import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.checkpoint.completed import CompletedCheckpoints
    from tidegate.checkpoint.coordinator.events import MetadataWritten
    from tidegate.checkpoint.coordinator.pending import PendingCheckpoint
    from tidegate.checkpoint.registry import SharedStateRegistry
    from tidegate.model.ids import CheckpointId


@frozen
class Finished:
    """A checkpoint that exists now, or a savepoint that is durable."""

    pending: PendingCheckpoint
    completed: CompletedCheckpoint
    metadata_size: int


@dataclass(slots=True)
class _Current:
    pending: PendingCheckpoint
    metadata: CheckpointMetadata
    finished: Finished | None = None


class Finisher:
    """Takes checkpoints that all have acknowledged through storage, in the order they came."""

    def __init__(
        self,
        completed: CompletedCheckpoints,
        registry: SharedStateRegistry,
        facts: Mapping[str, object],
    ) -> None:
        self._completed = completed
        self._registry = registry
        self._facts = facts
        self._waiting: list[PendingCheckpoint] = []
        self._current: _Current | None = None

    @property
    def settled(self) -> bool:
        """True if it is known which checkpoint is the latest: no pointer is being added."""
        return self._current is None or self._current.pending.stage is not Stage.ADDING

    def all_acknowledged(self, pending: PendingCheckpoint) -> None:
        """This one is next, or waits for those before it."""
        pending.enter(Stage.WAITING)
        assert pending not in self._waiting, "the last acknowledgement comes once"
        self._waiting.append(pending)

    def next(self) -> PendingCheckpoint | None:
        """The next checkpoint; None if there is none, or one is in progress."""
        return self._waiting.pop(0) if self._waiting and self._current is None else None

    def write(self, pending: PendingCheckpoint) -> WriteMetadata:
        """Begin with it. Raises `CheckpointAborted` where it cannot become a snapshot."""
        told = pending.acknowledgements
        for state in told.states():
            told.checksums.update(self._registry.checksums(state))
        metadata = pending.metadata(self._facts)
        assert pending.location is not None, "the folder comes first"
        assert self._current is None, "one checkpoint is finished at a time"
        pending.enter(Stage.WRITING)
        self._current = _Current(pending, metadata)
        return WriteMetadata(pending.checkpoint, metadata, pending.location)

    def written(self, event: MetadataWritten) -> AddPointer | Finished:
        """Its metadata is durable: returns the next command, or what exists now."""
        current = self._expect(event.checkpoint, Stage.WRITING)
        pending = current.pending
        completed = CompletedCheckpoint(
            pending.checkpoint,
            event.pointer,
            pending.location,
            current.metadata,
            pending.request.properties,
        )
        current.finished = Finished(pending, completed, event.size_bytes)
        if pending.is_savepoint and not pending.is_synchronous:
            return current.finished
        pending.enter(Stage.ADDING)
        retained = self._completed.retained_with(completed)
        return AddPointer(pending.checkpoint, event.pointer, retained)

    def added(self, checkpoint: CheckpointId) -> Finished:
        finished = self._expect(checkpoint, Stage.ADDING).finished
        assert finished is not None, "the metadata comes first"
        assert finished.completed.checkpoint == checkpoint, "the pointer is another's"
        return finished

    def failed(self, checkpoint: CheckpointId, stage: Stage) -> PendingCheckpoint:
        """This step of it has failed; the checkpoint is to be given up."""
        return self._expect(checkpoint, stage).pending

    def remove(self, pending: PendingCheckpoint) -> None:
        if pending in self._waiting:
            self._waiting.remove(pending)
        if self._current is not None and self._current.pending is pending:
            self._current = None

    def _expect(self, checkpoint: CheckpointId, stage: Stage) -> _Current:
        current = self._current
        assert current is not None, "no checkpoint is being finished"
        assert current.pending.checkpoint == checkpoint, "another checkpoint is being finished"
        assert current.pending.stage is stage, current.pending.stage.value
        return current
