"""From the last acknowledgement to the pointer, one checkpoint at a time.

    all acknowledged → metadata written → pointer added

Savepoints get no pointer, save the one with which the job stops: sinks commit on it, so a later
failure has to restore from it.

Where nobody knows whether the pointer was added, it is added again until that is known: a restore
from an older checkpoint would have sinks undo what a later restore from this one counts on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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

AGAIN_MS: Final = 1_000
"""How long after an unknown outcome the pointer is added again; doubled from then on."""

AGAIN_MAX_MS: Final = 10_000


@frozen
class Finished:
    """A checkpoint that exists now, or a savepoint that is durable."""

    pending: PendingCheckpoint
    completed: CompletedCheckpoint
    metadata_size: int


@dataclass(slots=True)
class _Current:
    """again_ms: when the pointer is added again; None unless that is next. wait_ms: before it."""

    pending: PendingCheckpoint
    metadata: CheckpointMetadata
    finished: Finished | None = None
    wait_ms: int = 0
    again_ms: int | None = None


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
        return self._add(completed)

    def _add(self, completed: CompletedCheckpoint) -> AddPointer:
        retained = self._completed.retained_with(completed)
        return AddPointer(completed.checkpoint, completed.pointer, retained)

    @property
    def may_stand(self) -> bool:
        """True if a former try to add the pointer had an unknown outcome."""
        return self._current is not None and self._current.wait_ms > 0

    @property
    def again_ms(self) -> int | None:
        """Time at which the pointer is added again; None if it is not."""
        return None if self._current is None else self._current.again_ms

    def in_doubt(self, checkpoint: CheckpointId, now_ms: int) -> None:
        """Its pointer may stand: it is added again a while later."""
        current = self._expect(checkpoint, Stage.ADDING)
        current.wait_ms = min(2 * current.wait_ms or AGAIN_MS, AGAIN_MAX_MS)
        current.again_ms = now_ms + current.wait_ms

    def add_again(self) -> AddPointer:
        current = self._current
        assert current is not None and current.again_ms is not None, "no pointer is in doubt"
        current.again_ms = None
        return self._add(self.in_question)

    @property
    def in_question(self) -> CompletedCheckpoint:
        """The checkpoint whose pointer is being added."""
        assert self._current is not None and self._current.finished is not None, "none is"
        return self._current.finished.completed

    def doubtful(self) -> PendingCheckpoint | None:
        """The checkpoint whose pointer would be added again; None while an answer is awaited."""
        return None if self.again_ms is None or self._current is None else self._current.pending

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
