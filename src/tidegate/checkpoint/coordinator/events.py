"""Events of the checkpoint coordinator; each is an argument of its ``handle``.

Three kinds: what the job does (states, requests, failures), what subtasks answer (the messages of
``model.control`` themselves), and how the coordinator's own commands went. A command that is
answered says by which events in its docstring.

Only `NextIdTaken` and `Restored` carry wall time. Every other time of a checkpoint is reckoned
from its trigger on the monotonic clock, so that no duration is ever negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from flinkformat.snapshots import MasterState, SavepointFormatType
from tidegate.model.control import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    ExecutionState,
    JobStatus,
)
from tidegate.model.elements import OperatorEvent, SnapshotKind

if TYPE_CHECKING:
    from tidegate.errors import TidegateError
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId
    from tidegate.model.topology import Topology


@frozen
class Woke:
    """The clock has reached ``wake_at_ms``."""


@frozen
class JobStatusChanged:
    """The job is in another status. Its end is said by `JobEnded`."""

    status: JobStatus


@frozen
class ExecutionChanged:
    """An attempt at running a subtask is in another state. error: why it has FAILED.

    The newest attempt is the subtask's current one from its first mention, CREATED, on.
    """

    execution: ExecutionId
    state: ExecutionState
    error: TidegateError | None = None


@frozen
class FailoverStarted:
    """Subtasks are about to be restored: no checkpoint that is under way may complete.

    Whoever restores waits until ``settled``, then asks for ``latest_completed``.
    """


@frozen
class Restored:
    """The job is being restored from this checkpoint or savepoint; None: it starts empty."""

    checkpoint: CheckpointId | None
    wall_ms: int


@frozen
class Rescaled:
    """No subtask lives, `Restored` comes next, and the job has another shape."""

    topology: Topology


@frozen
class BacklogReported:
    """The source of this operator does, or no longer does, catch up with old data."""

    operator: OperatorId
    backlog: bool


@frozen
class OperatorEventSent:
    """An operator's coordinator wants this brought to one of its subtasks.

    It has to reach the inbox in order with the answer to `SnapshotCoordinator`.
    """

    execution: ExecutionId
    operator: OperatorId
    event: OperatorEvent


@frozen
class CheckpointRequested:
    """Somebody asks for a checkpoint or a savepoint; answered by one `RequestDone`.

    request: the asker's number for it. target: folder in which a savepoint gets its own folder;
    None for the configured one. format: of a savepoint. cancels: the job is cancelled once the
    savepoint is complete, so nothing else may be triggered from now on. urgent: it does not wait
    for checkpoints that are under way, where none of them may be unaligned.
    """

    request: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    target: str | None = None
    format: SavepointFormatType = SavepointFormatType.CANONICAL
    cancels: bool = False
    urgent: bool = False


@frozen
class JobEnded:
    """The job is over, for good or (SUSPENDED) under this leader. Nothing is taken after it."""

    status: JobStatus


@frozen
class NextIdTaken:
    """`TakeNextId` went well. wall_ms: the time of the trigger."""

    trigger: int
    checkpoint: CheckpointId
    wall_ms: int


@frozen
class NextIdFailed:
    """`TakeNextId` has failed."""

    trigger: int
    error: TidegateError


@frozen
class LocationReady:
    """`PrepareLocation` went well. location: the folder of this checkpoint or savepoint."""

    checkpoint: CheckpointId
    location: str


@frozen
class LocationFailed:
    """`PrepareLocation` failed."""

    checkpoint: CheckpointId
    error: TidegateError


@frozen
class CoordinatorSnapshotTaken:
    """`SnapshotCoordinator` went well."""

    checkpoint: CheckpointId
    operator: OperatorId
    data: bytes


@frozen
class CoordinatorSnapshotFailed:
    """`SnapshotCoordinator` failed."""

    checkpoint: CheckpointId
    operator: OperatorId
    error: TidegateError


@frozen
class HooksTriggered:
    """`TriggerHooks` went well. states: of those hooks that have some."""

    checkpoint: CheckpointId
    states: tuple[MasterState, ...] = ()


@frozen
class HookFailed:
    """`TriggerHooks` failed: a hook raised, or has state and no serializer for it."""

    checkpoint: CheckpointId
    error: TidegateError


@frozen
class TriggerFailed:
    """A `TriggerCheckpoint` could not be sent."""

    checkpoint: CheckpointId
    execution: ExecutionId
    error: TidegateError


@frozen
class MetadataWritten:
    """`WriteMetadata` went well: the file is durable. pointer: what to restore from."""

    checkpoint: CheckpointId
    pointer: str
    size_bytes: int


@frozen
class MetadataFailed:
    """`WriteMetadata` failed."""

    checkpoint: CheckpointId
    error: TidegateError


@frozen
class PointerAdded:
    """`AddPointer` went well: from now on the checkpoint exists."""

    checkpoint: CheckpointId


@frozen
class PointerFailed:
    """`AddPointer` failed. outcome_unknown: the pointer may stand, so it is added again."""

    checkpoint: CheckpointId
    error: TidegateError
    outcome_unknown: bool = False


@frozen
class PointersForgotten:
    """`ForgetPointers` went well: what they named may be deleted."""


@frozen
class PointersNotForgotten:
    """`ForgetPointers` failed, or may have: nothing is deleted."""

    error: TidegateError


@frozen
class Cleaned:
    """`DiscardCheckpoint` is over, whether or not each file could be deleted."""

    checkpoint: CheckpointId


JobEvent = (
    Woke
    | JobStatusChanged
    | ExecutionChanged
    | FailoverStarted
    | Restored
    | Rescaled
    | BacklogReported
    | OperatorEventSent
    | CheckpointRequested
    | JobEnded
)
"""What the job does."""

TriggerAnswer = (
    LocationReady
    | LocationFailed
    | CoordinatorSnapshotTaken
    | CoordinatorSnapshotFailed
    | HooksTriggered
    | HookFailed
    | TriggerFailed
)
"""How the steps of a trigger went, once it has an id."""

StoreAnswer = (
    MetadataWritten
    | MetadataFailed
    | PointerAdded
    | PointerFailed
    | PointersForgotten
    | PointersNotForgotten
    | Cleaned
)
"""How the steps of a completion went."""

CheckpointEvent = (
    JobEvent
    | NextIdTaken
    | NextIdFailed
    | TriggerAnswer
    | CheckpointAcknowledged
    | CheckpointDeclined
    | StoreAnswer
)
