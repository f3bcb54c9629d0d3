"""Decides what is deleted, and when: the only place that does so.

No file goes while a pointer needs it. Private state goes with its checkpoint; shared files when no
retained checkpoint uses them; the state of a late acknowledgement at once, if its checkpoint is
known to be given up. What is in doubt stays, for the sweep of orphans to judge.

Source: checkpoint coordination §6.1, §10.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from flinkformat.state_streams import files_of, private_paths, shared_handles
from tidegate.checkpoint.coordinator.commands import (
    DeleteFiles,
    DiscardCheckpoint,
    ForgetPointers,
    Ignored,
    SweepShared,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import SubtaskState
    from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
    from tidegate.checkpoint.coordinator.pending import PendingCheckpoint
    from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
    from tidegate.checkpoint.registry import SharedStateRegistry
    from tidegate.model.control import CheckpointAcknowledged, JobStatus
    from tidegate.model.ids import CheckpointId, OperatorId

EXPIRED_MAX: Final = 16
"""Expired checkpoints that are remembered to tell late messages from bogus ones."""

GIVEN_UP_MAX: Final = 1_000
"""Given-up checkpoints whose late acknowledgements still have their files deleted."""


class Disposal:
    """Decides about deletion; its methods return commands to perform at once."""

    def __init__(
        self,
        completed: CompletedCheckpoints,
        registry: SharedStateRegistry,
        statistics: StatisticsTracker,
    ) -> None:
        self._completed = completed
        self._registry = registry
        self._statistics = statistics
        self._expired: deque[CheckpointId] = deque(maxlen=EXPIRED_MAX)
        # Whether it was a savepoint.
        self._given_up: dict[CheckpointId, bool] = {}
        # Given up while a folder was being made or metadata written: deleted once that is over.
        self._unanswered: dict[CheckpointId, PendingCheckpoint] = {}
        # Subsumed, but files in their folders are still used.
        self._retired: list[CompletedCheckpoint] = []
        self._cleaning: dict[CheckpointId, None] = {}
        self._dropped: list[CompletedCheckpoint] = []
        self._swept_below = Attempt(0)
        self._ends: JobStatus | None = None
        self._in_doubt: CompletedCheckpoint | None = None
        self._answered = False
        self._releases_all = False

    @property
    def cleaning(self) -> int:
        """Checkpoints that are being deleted, or will be once their store answers."""
        return len(self._cleaning) + len(self._unanswered)

    @property
    def ending(self) -> bool:
        """True once it was asked to keep what outlives the job."""
        return self._ends is not None

    @property
    def ended(self) -> bool:
        """True once that is done, and nothing is being deleted, or waits for it."""
        return self._answered and not self._cleaning and not self._unanswered

    def register(
        self, message: CheckpointAcknowledged, *, savepoint: bool
    ) -> Mapping[OperatorId, SubtaskState] | None:
        """The states of an acknowledgement, without placeholders; a savepoint shares no files.

        Raises `CheckpointAborted` where they name files that nobody has.
        """
        if message.state is None or savepoint:
            return message.state
        checksums = dict(message.figures.checksums)
        return {
            operator: self._registry.register_state(state, message.checkpoint, checksums)
            for operator, state in message.state.items()
        }

    def give_up(
        self, pending: PendingCheckpoint, reason: FailureReason, *, unanswered: bool
    ) -> list[DiscardCheckpoint]:
        """A checkpoint is given up.

        unanswered: its folder is just being made or its metadata written; it is deleted after.
        """
        if reason is FailureReason.CHECKPOINT_EXPIRED:
            self._expired.append(pending.checkpoint)
        assert pending.checkpoint not in self._given_up, "a checkpoint is given up once"
        self._given_up[pending.checkpoint] = pending.is_savepoint
        if len(self._given_up) > GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]
        if unanswered:
            self._unanswered[pending.checkpoint] = pending
            return []
        return self._discard_pending(pending)

    def answered(self, checkpoint: CheckpointId, location: str | None) -> list[DiscardCheckpoint]:
        """An aborted checkpoint's step has ended. location: its folder, if made."""
        pending = self._unanswered.pop(checkpoint, None)
        if pending is None:
            return []
        pending.location = location or pending.location
        return self._discard_pending(pending)

    def why_in_vain(self, checkpoint: CheckpointId, pending: PendingCheckpoint | None) -> Ignored:
        """Name for a message without effect. pending: its checkpoint, if in progress."""
        if pending is not None:
            return Ignored.UNKNOWN_EXECUTION
        return Ignored.LATE if checkpoint in self._expired else Ignored.UNKNOWN_CHECKPOINT

    def acknowledged_in_vain(
        self, message: CheckpointAcknowledged, pending: PendingCheckpoint | None
    ) -> list[DeleteFiles]:
        """An acknowledgement of an attempt, or for a checkpoint, that does not count.

        pending: the checkpoint, if it is under way. Its private files are deleted; shared ones
        wait until a later checkpoint is complete without them.
        """
        savepoint = self._given_up.get(message.checkpoint)
        if pending is not None:
            savepoint = pending.is_savepoint
        if savepoint is None:
            # It may be a completed one's, said twice: nothing may be deleted.
            return []
        paths: dict[str, None] = {}
        for state in (message.state or {}).values():
            paths.update(dict.fromkeys(private_paths(state)))
            if savepoint:
                for handle in shared_handles(state):
                    paths.update(dict.fromkeys(files_of(handle)))
            else:
                self._registry.register_late(state, message.checkpoint)
        deleted = [DeleteFiles(tuple(paths))] if paths else []
        return [*deleted, *self._release_at_the_end()]

    def subsumed(
        self, subsumed: list[CompletedCheckpoint], oldest: Attempt
    ) -> list[DiscardCheckpoint | DeleteFiles | SweepShared]:
        """A checkpoint is complete that makes these needless. oldest: attempt that any subtask has.

        Attempts below it are over, and what the killed among them were writing is named by nobody.
        """
        retired = self.retire(subsumed)
        if oldest <= self._swept_below:
            return [*retired]
        self._swept_below = oldest
        return [*retired, SweepShared(oldest, self._registry.paths())]

    def retire(self, subsumed: list[CompletedCheckpoint]) -> list[DiscardCheckpoint | DeleteFiles]:
        """No pointer names these any more: deletes our files, and those they shared."""
        self._retired.extend(completed for completed in subsumed if completed.ours)
        released = self._registry.release_below(self._completed.lowest_checkpoint)
        in_use = self._registry.folders_in_use()
        kept = {one.checkpoint for one in self._completed.retained}
        assert not kept & {one.checkpoint for one in self._retired}, "a pointer stands: it stays"
        commands: list[DiscardCheckpoint | DeleteFiles] = []
        for completed in [one for one in self._retired if one.checkpoint not in in_use]:
            self._retired.remove(completed)
            self._statistics.discarded(completed.checkpoint)
            commands.extend(
                self._discard(completed.checkpoint, completed.location, completed.deletable_paths())
            )
        if released:
            commands.append(DeleteFiles(tuple(released)))
        return commands

    def end(self, status: JobStatus) -> ForgetPointers:
        """The job is over, for good or under this leader: keep what outlives that."""
        assert not self.ending, "a job ends once"
        self._completed.take_back()
        newest = self._completed.latest
        self._dropped = self._completed.end(status)
        self._ends = status
        # Nobody may go on from an older one: what came up to the newest is committed. A snapshot
        # that the job started from stays its owner's, but is none of the job's any more.
        kept: list[CheckpointId] = []
        if self._completed.latest is newest:
            # Somebody may mend what was damaged at the start: it is the newest all the same.
            own = (one.checkpoint for one in self._completed.retained)
            kept = [*own, *self._completed.damaged]
        if self._in_doubt is not None and self._in_doubt.discarded_on(status):
            self._in_doubt = None
        if self._in_doubt is not None:
            kept.append(self._in_doubt.checkpoint)
        return ForgetPointers(status, tuple(kept))

    def doubted(self, completed: CompletedCheckpoint) -> None:
        """The job ends, and nobody knows whether the pointer of its newest checkpoint stands.

        If it does, it outlives the job as others do: whoever goes on may find it first.
        """
        self._in_doubt = completed

    def forgotten(self) -> list[DiscardCheckpoint | DeleteFiles]:
        """The pointers of what does not outlive the job are gone."""
        assert self._ends is not None and not self._answered, "one answer to one question"
        self._answered = True
        dropped, self._dropped = self._dropped, []
        # Who goes on with a suspended job sees to what its given-up checkpoints have left.
        self._releases_all = self._ends.is_terminal
        return [*self.retire(dropped), *self._release_at_the_end()]

    def not_forgotten(self) -> None:
        """Nobody knows which pointers stand: nothing that they may name is deleted."""
        assert self._ends is not None and not self._answered, "one answer to one question"
        self._answered = True

    def _release_at_the_end(self) -> list[DeleteFiles]:
        """Delete what checkpoints shared that were given up, for none will follow them."""
        if not self._releases_all:
            return []
        doubted = () if self._in_doubt is None else (self._in_doubt,)
        kept = (*self._completed.retained, *doubted)
        released = self._registry.release_all_but(each.metadata for each in kept)
        return [DeleteFiles(tuple(released))] if released else []

    def cleaned(self, checkpoint: CheckpointId) -> None:
        self._cleaning.pop(checkpoint, None)

    def _discard_pending(self, pending: PendingCheckpoint) -> list[DiscardCheckpoint]:
        if pending.location is None:
            return []
        return self._discard(pending.checkpoint, pending.location, pending.private_paths())

    def _discard(
        self, checkpoint: CheckpointId, location: str | None, paths: tuple[str, ...]
    ) -> list[DiscardCheckpoint]:
        assert checkpoint not in self._cleaning, "a folder is deleted once"
        self._cleaning[checkpoint] = None
        return [DiscardCheckpoint(checkpoint, location, paths)]
