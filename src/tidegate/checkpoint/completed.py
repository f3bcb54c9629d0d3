"""The completed checkpoints that are kept: which make room, which outlive the job.

Source: checkpoint coordination §10.3, §10.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from flinkformat.snapshots import FINISHED
from flinkformat.state_streams import files_of, private_paths, shared_handles
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flinkformat.snapshots import (
        CheckpointMetadata,
        CheckpointProperties,
        OperatorState,
        SubtaskState,
    )
    from tidegate.model.ids import CheckpointId


@frozen
class CompletedCheckpoint:
    """A snapshot that is durable and pointed at.

    pointer: what to restore from. location: folder of its ``_metadata``; None if there is none.
    properties: those that hold now, which differ from the metadata's after a restore.
    foreign: files that it names outside of the folders that are the job's; nobody deletes them.
    """

    checkpoint: CheckpointId
    pointer: str
    location: str | None
    metadata: CheckpointMetadata
    properties: CheckpointProperties
    foreign: frozenset[str] = frozenset()

    @property
    def is_savepoint(self) -> bool:
        return self.properties.is_savepoint

    @property
    def ours(self) -> bool:
        """True if the job may delete its files."""
        return self.properties.discard_subsumed

    @property
    def state_size(self) -> int:
        return sum(operator.state_size for operator in self.metadata.operators)

    def discarded_on(self, status: JobStatus) -> bool:
        """True if such an end of the job deletes it.

        SUSPENDED deletes nothing, whatever the properties say: the job is to go on. Flink has a
        flag for it that counts only where no HA store is.
        """
        match status:
            case JobStatus.FINISHED:
                return self.properties.discard_finished
            case JobStatus.CANCELED:
                return self.properties.discard_cancelled
            case JobStatus.FAILED:
                return self.properties.discard_failed
            case JobStatus.SUSPENDED:
                return False
            case _:
                raise AssertionError(f"a job does not end in {status}")

    def private_paths(self) -> tuple[str, ...]:
        """Paths of the files that belong to it alone, each once."""
        return tuple(
            dict.fromkeys(path for _, state in self._states() for path in private_paths(state))
        )

    def deletable_paths(self) -> tuple[str, ...]:
        """Its private files that are deleted with it."""
        return tuple(path for path in self.private_paths() if path not in self.foreign)

    def paths(self) -> dict[str, OperatorState]:
        """Paths of all files that its metadata names, shared ones included; with an operator each.

        A file that holds state of several operators is with the last of them.
        """
        return {
            path: operator
            for operator, state in self._states()
            for path in (
                *private_paths(state),
                *(path for handle in shared_handles(state) for path in files_of(handle)),
            )
        }

    def _states(self) -> Iterator[tuple[OperatorState, SubtaskState]]:
        for operator in self.metadata.operators:
            for state in operator.subtasks.values():
                if state is not FINISHED:
                    yield operator, state


class CompletedCheckpoints:
    """The newest completed checkpoints, oldest first, at most so many.

    retained: those that were found at the start, oldest first. A savepoint that the job starts
    from is one of them, a savepoint that it takes is not, save the one with which it stops.
    damaged: numbers of those that were found there and could not be read.
    """

    def __init__(
        self,
        retained_max: int,
        retained: Iterable[CompletedCheckpoint] = (),
        *,
        damaged: Iterable[CheckpointId] = (),
    ) -> None:
        self._retained_max = max(retained_max, 1)
        self._retained = list(retained)
        self._given_up: list[CompletedCheckpoint] = []
        self._has_own = False
        self._dropped: tuple[CompletedCheckpoint, ...] = ()
        self._damaged = tuple(damaged)
        assert not any(map(self.find, self._damaged)), "what is damaged is not restored from"

    @property
    def dropped(self) -> tuple[CompletedCheckpoint, ...]:
        """Checkpoints dropped at the job's end, oldest first."""
        return self._dropped

    @property
    def damaged(self) -> tuple[CheckpointId, ...]:
        """Numbers of checkpoints that could not be read at the start, and may be mended yet."""
        return self._damaged

    @property
    def retained(self) -> tuple[CompletedCheckpoint, ...]:
        return tuple(self._retained)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The checkpoint to restore from; None if there is none."""
        return self._retained[-1] if self._retained else None

    @property
    def latest_id(self) -> CheckpointId | None:
        return self._retained[-1].checkpoint if self._retained else None

    @property
    def lowest_checkpoint(self) -> CheckpointId | None:
        """The oldest kept checkpoint that is not a savepoint, for the registry of shared files."""
        return next((c.checkpoint for c in self._retained if not c.is_savepoint), None)

    def find(self, checkpoint: CheckpointId) -> CompletedCheckpoint | None:
        return next((c for c in self._retained if c.checkpoint == checkpoint), None)

    def retained_with(self, newest: CompletedCheckpoint) -> tuple[CheckpointId, ...]:
        """Checkpoints that would be kept if this one were added."""
        return tuple(c.checkpoint for c in self._split(newest)[0])

    def add(self, newest: CompletedCheckpoint) -> list[CompletedCheckpoint]:
        """Adds a checkpoint; returns those it replaces, oldest first."""
        assert self.find(newest.checkpoint) is None, "a checkpoint completes once"
        self._retained, subsumed = self._split(newest)
        self._given_up.clear()
        self._damaged = ()
        self._has_own = True
        assert self.latest is newest, "the newest is never what makes room"
        assert len(self._retained) <= self._retained_max, "what is kept has a bound"
        return subsumed

    def give_up(self, checkpoint: CheckpointId) -> CompletedCheckpoint | None:
        """Restore no more from one that is damaged. The result is the next older one.

        It is forgotten with the next one that completes, and its files stay. The only one is not
        given up.
        """
        left = [each for each in self._retained if each.checkpoint != checkpoint]
        if left:
            self._given_up = [*(c for c in self._retained if c not in left), *self._given_up]
            self._retained = left
        return left[-1] if left else None

    def take_back(self) -> None:
        """Takes back checkpoints dropped since the last completion: the damage may be repaired."""
        self._retained, self._given_up = [*self._retained, *self._given_up], []

    def end(self, status: JobStatus) -> list[CompletedCheckpoint]:
        """Drop what does not outlive a job that ends so; the result is what was dropped.

        What the job started from is all that there is of it until it has completed a checkpoint
        itself: until then only a finished job drops it.
        """
        if self._has_own or status is JobStatus.FINISHED:
            self._dropped = tuple(c for c in self._retained if c.discarded_on(status))
            self._retained = [c for c in self._retained if not c.discarded_on(status)]
            self._damaged = ()
        return list(self._dropped)

    def _split(
        self, newest: CompletedCheckpoint
    ) -> tuple[list[CompletedCheckpoint], list[CompletedCheckpoint]]:
        # The oldest go, whatever they are. The newest is a checkpoint, and so a base for those to
        # come, or the savepoint of a stop, which stands alone.
        candidates = [*self._retained, newest]
        return candidates[-self._retained_max :], candidates[: -self._retained_max]
