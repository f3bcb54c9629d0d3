"""State in snapshots: of one subtask, one operator, and a whole checkpoint."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.handles import (
        ByteStreamStateHandle,
        InputStateHandle,
        KeyedStateHandle,
        OperatorStateHandle,
        OutputStateHandle,
    )
    from flinkformat.ids import CheckpointId, OperatorId


@frozen(kw_only=True)
class SubtaskState:
    """State of one operator in one subtask: at most one handle of each kind."""

    managed_operator: OperatorStateHandle | None = None
    raw_operator: OperatorStateHandle | None = None
    managed_keyed: KeyedStateHandle | None = None
    raw_keyed: KeyedStateHandle | None = None
    input_channel: tuple[InputStateHandle, ...] = ()
    result_subpartition: tuple[OutputStateHandle, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == EMPTY

    @property
    def state_size(self) -> int:
        single = (self.managed_operator, self.raw_operator, self.managed_keyed, self.raw_keyed)
        return (
            sum(handle.state_size for handle in single if handle is not None)
            + sum(handle.state_size for handle in self.input_channel)
            + sum(handle.state_size for handle in self.result_subpartition)
        )


EMPTY: Final = SubtaskState()
"""A subtask that runs and has no state."""


class Finished(Enum):
    """The type of `FINISHED`."""

    FINISHED = "finished"


FINISHED: Final = Finished.FINISHED
"""Stands for the state of a subtask that had reached its end before the checkpoint."""


@frozen(kw_only=True)
class OperatorState:
    """State of one operator in all subtasks.

    subtasks: by index, in the order of the file; one that is left out runs and has no state.
    fully_finished: all subtasks had reached their end; then there is neither coordinator state
    nor an entry in `subtasks`.
    """

    operator_id: OperatorId
    parallelism: int
    max_parallelism: int
    name: str | None = None
    uid: str | None = None
    coordinator_state: ByteStreamStateHandle | None = None
    subtasks: Mapping[int, SubtaskState | Finished]
    fully_finished: bool = False

    def __post_init__(self) -> None:
        assert len(self.operator_id) == 16, "an operator id has 16 bytes"
        assert self.parallelism <= self.max_parallelism, "parallelism is above max parallelism"
        assert all(0 <= index < self.parallelism for index in self.subtasks), "no such subtask"
        assert not (self.fully_finished and (self.subtasks or self.coordinator_state)), (
            "a fully finished operator has no state"
        )

    @property
    def has_state(self) -> bool:
        """True if dropping this operator would lose anything."""
        return self.coordinator_state is not None or any(
            state is not FINISHED and not state.is_empty for state in self.subtasks.values()
        )

    @property
    def state_size(self) -> int:
        coordinator = 0 if self.coordinator_state is None else self.coordinator_state.state_size
        subtasks = (state for state in self.subtasks.values() if state is not FINISHED)
        return coordinator + sum(state.state_size for state in subtasks)


@frozen
class MasterState:
    """State of one hook. version: of the payload's layout, as the hook counts them."""

    name: str
    version: int
    payload: bytes


class SharingFilesStrategy(Enum):
    """Files that a snapshot may share with others; names as in Flink."""

    FORWARD_BACKWARD = "FORWARD_BACKWARD"
    FORWARD = "FORWARD"
    NO_SHARING = "NO_SHARING"


class SavepointFormatType(Enum):
    """Format of a savepoint: readable by every backend, or in the backend's own form."""

    CANONICAL = "CANONICAL"
    NATIVE = "NATIVE"


class PostCheckpointAction(Enum):
    """Fate of the job after a savepoint: it goes on, stops, or ends its input and stops."""

    NONE = "NONE"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"


@frozen
class CheckpointType:
    """An automatic snapshot; see `CHECKPOINT` and `FULL_CHECKPOINT`."""

    name: str
    sharing: SharingFilesStrategy

    @property
    def is_savepoint(self) -> bool:
        return False


@frozen
class SavepointType:
    """A snapshot that somebody asked for; made by `savepoint`, `suspend` or `terminate`."""

    name: str
    format: SavepointFormatType
    action: PostCheckpointAction

    @staticmethod
    def savepoint(format: SavepointFormatType) -> SavepointType:
        """A savepoint after which the job goes on."""
        return SavepointType("Savepoint", format, PostCheckpointAction.NONE)

    @staticmethod
    def suspend(format: SavepointFormatType) -> SavepointType:
        """The savepoint of a stop without drain."""
        return SavepointType("Suspend Savepoint", format, PostCheckpointAction.SUSPEND)

    @staticmethod
    def terminate(format: SavepointFormatType) -> SavepointType:
        """The savepoint of a stop with drain."""
        return SavepointType("Terminate Savepoint", format, PostCheckpointAction.TERMINATE)

    @property
    def is_savepoint(self) -> bool:
        return True

    @property
    def sharing(self) -> SharingFilesStrategy:
        """None are shared: a savepoint stands alone."""
        return SharingFilesStrategy.NO_SHARING

    @property
    def is_synchronous(self) -> bool:
        """True if subtasks wait for its completion before they go on."""
        return self.action is not PostCheckpointAction.NONE

    @property
    def should_drain(self) -> bool:
        return self.action is PostCheckpointAction.TERMINATE


class RetentionPolicy(Enum):
    """Fate of checkpoints when the job ends (``ExternalizedCheckpointRetention``)."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


SnapshotType = CheckpointType | SavepointType

CHECKPOINT: Final = CheckpointType("Checkpoint", SharingFilesStrategy.FORWARD_BACKWARD)
"""Automatic; may use files of older checkpoints."""

FULL_CHECKPOINT: Final = CheckpointType("Full Checkpoint", SharingFilesStrategy.FORWARD)
"""Automatic; writes every file anew."""


@frozen(kw_only=True)
class CheckpointProperties:
    """Kind of a snapshot, and the cases in which it is deleted.

    forced: triggered whatever else is under way. discard_…: deleted when a newer one has subsumed
    it, or when the job has finished, was cancelled, has failed, was suspended.
    unclaimed: somebody else's files, from which this job was restored.
    """

    snapshot_type: SnapshotType
    forced: bool = False
    discard_subsumed: bool
    discard_finished: bool
    discard_cancelled: bool
    discard_failed: bool
    discard_suspended: bool
    unclaimed: bool = False

    @staticmethod
    def for_checkpoint(
        retention: RetentionPolicy, *, snapshot_type: CheckpointType = CHECKPOINT
    ) -> CheckpointProperties:
        keep_cancelled = retention is RetentionPolicy.RETAIN_ON_CANCELLATION
        keep_failed = retention is not RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS
        return CheckpointProperties(
            snapshot_type=snapshot_type,
            discard_subsumed=True,
            discard_finished=True,
            discard_cancelled=not keep_cancelled,
            discard_failed=not keep_failed,
            discard_suspended=not keep_cancelled,
        )

    @staticmethod
    def for_savepoint(savepoint: SavepointType, *, forced: bool) -> CheckpointProperties:
        """Properties of a savepoint. forced: no checkpoint of the job may be unaligned."""
        return CheckpointProperties(
            snapshot_type=savepoint,
            forced=forced,
            discard_subsumed=False,
            discard_finished=False,
            discard_cancelled=False,
            discard_failed=False,
            discard_suspended=False,
        )

    @staticmethod
    def for_unclaimed_snapshot() -> CheckpointProperties:
        """Properties of a restored snapshot that stays its owner's."""
        savepoint = SavepointType.savepoint(SavepointFormatType.CANONICAL)
        kept = CheckpointProperties.for_savepoint(savepoint, forced=False)
        return replace(kept, unclaimed=True)

    @property
    def is_savepoint(self) -> bool:
        """True if somebody asked for the snapshot."""
        return self.snapshot_type.is_savepoint


@frozen(kw_only=True)
class CheckpointMetadata:
    """Content of a ``_metadata`` file.

    properties: None in files that carry none, which are treated as an old version's.
    """

    checkpoint_id: CheckpointId
    operators: tuple[OperatorState, ...]
    master_states: tuple[MasterState, ...] = ()
    properties: CheckpointProperties | None = None

    @property
    def state_size(self) -> int:
        """Bytes of all state; shared files count once for each name."""
        hooks = sum(len(state.payload) for state in self.master_states)
        return hooks + sum(operator.state_size for operator in self.operators)
