"""Commands of the checkpoint coordinator, in order; results of its ``handle``.

What goes to subtasks are the messages of ``model.control`` themselves: `TriggerCheckpoint`,
`CheckpointComplete`, `CheckpointAborted`, `ToOperator`. A message to an attempt that is gone is
dropped; the next one covers it.

A command is answered by the events that its docstring names, always and just once, if it names
any. All may be performed side by side, save that the messages to one slot keep their order.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    JobStatus,
    ToOperator,
    TriggerCheckpoint,
)

if TYPE_CHECKING:
    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.errors import TidegateError
    from tidegate.model.elements import SnapshotKind
    from tidegate.model.failure_reason import FailureReason
    from tidegate.model.ids import Attempt, CheckpointId, ExecutionId, OperatorId


@frozen
class TakeNextId:
    """Take the next checkpoint id, above ``above``; `NextIdTaken` or `NextIdFailed`.

    trigger: number of this trigger, to be given back.
    """

    trigger: int
    above: CheckpointId


@frozen
class PrepareLocation:
    """Make the folder of a snapshot; `LocationReady` or `LocationFailed`.

    savepoint: whether it gets a folder of its own below target, None being the configured one;
    else it is the checkpoint's own place.
    """

    checkpoint: CheckpointId
    savepoint: bool = False
    target: str | None = None


@frozen
class SnapshotCoordinator:
    """Ask an operator's coordinator for its state.

    `CoordinatorSnapshotTaken` or `CoordinatorSnapshotFailed`. What the coordinator sends to its
    subtasks after this snapshot has to become an event after the answer.
    """

    checkpoint: CheckpointId
    operator: OperatorId


@frozen
class TriggerHooks:
    """Call every hook of the job; `HooksTriggered` or `HookFailed`. wall_ms: the trigger's."""

    checkpoint: CheckpointId
    wall_ms: int


@frozen
class WriteMetadata:
    """Write ``_metadata`` into the folder, durably; `MetadataWritten` or `MetadataFailed`."""

    checkpoint: CheckpointId
    metadata: CheckpointMetadata
    location: str


@frozen
class AddPointer:
    """Make the checkpoint exist in the record chain; `PointerAdded` or `PointerFailed`.

    retained: the checkpoints whose pointers stand from then on, oldest first, this one last;
    every other pointer goes in the same step.
    """

    checkpoint: CheckpointId
    pointer: str
    retained: tuple[CheckpointId, ...]


@frozen
class ForgetPointers:
    """The job has ended, or is SUSPENDED: keep these pointers, drop the others.

    `PointersForgotten` or `PointersNotForgotten`.
    """

    status: JobStatus
    retained: tuple[CheckpointId, ...]


@frozen
class DiscardCheckpoint:
    """Delete a snapshot that no pointer names: ``_metadata`` first, then files, then the folder.

    files: paths of its own state, wherever they lie; shared files are not among them. Answered by
    `Cleaned`, whatever could be deleted: a failure is only logged.
    """

    checkpoint: CheckpointId
    location: str | None
    files: tuple[str, ...]


@frozen
class DeleteFiles:
    """Delete files that nothing needs any more; a failure is only logged."""

    files: tuple[str, ...]


@frozen
class SweepShared:
    """Delete shared files that attempts below this one have left; a failure is only logged.

    used: paths of those that are needed; whatever else such an attempt has written is an orphan.
    """

    below: Attempt
    used: tuple[str, ...]


@frozen
class NotifyCoordinatorComplete:
    """Tell an operator's coordinator that the checkpoint is complete."""

    operator: OperatorId
    checkpoint: CheckpointId


@frozen
class NotifyCoordinatorAborted:
    """Tell an operator's coordinator that the checkpoint was given up."""

    operator: OperatorId
    checkpoint: CheckpointId


@frozen
class FailJob:
    """Restart the whole job: too many checkpoints failed."""

    error: TidegateError


@frozen
class FailExecution:
    """Restart the region of this attempt: too many checkpoints failed on it."""

    execution: ExecutionId
    error: TidegateError


@frozen
class RequestDone:
    """The answer to a `CheckpointRequested`; error is None if it went well."""

    request: int
    checkpoint: CheckpointId | None = None
    pointer: str | None = None
    error: TidegateError | None = None


@frozen
class CheckpointEnded:
    """A snapshot is complete or has failed: to be logged and measured.

    duration_ms: from its trigger. size_bytes: all state. written_bytes: what this one has written
    anew. reason: None if it is complete. message: that of the reason, and its cause. where: name
    of the subtask at which it failed, "" for none. checkpoint: None if it failed before it had
    an id.
    """

    checkpoint: CheckpointId | None
    kind: SnapshotKind
    duration_ms: int
    size_bytes: int = 0
    written_bytes: int = 0
    pointer: str | None = None
    reason: FailureReason | None = None
    message: str = ""
    where: str = ""


class Ignored(Enum):
    """Reason why a subtask's message had no effect."""

    LATE = "late message for a checkpoint that has expired"
    UNKNOWN_CHECKPOINT = "message for an unknown checkpoint"
    UNKNOWN_EXECUTION = "message from an attempt that takes no part"
    DUPLICATE = "acknowledged before"


@frozen
class MessageIgnored:
    """A subtask's acknowledgement or decline changed nothing: to be logged."""

    execution: ExecutionId
    checkpoint: CheckpointId
    why: Ignored


CheckpointCommand = (
    TakeNextId
    | PrepareLocation
    | SnapshotCoordinator
    | TriggerHooks
    | TriggerCheckpoint
    | WriteMetadata
    | AddPointer
    | CheckpointComplete
    | CheckpointAborted
    | ToOperator
    | NotifyCoordinatorComplete
    | NotifyCoordinatorAborted
    | ForgetPointers
    | DiscardCheckpoint
    | DeleteFiles
    | SweepShared
    | FailJob
    | FailExecution
    | RequestDone
    | CheckpointEnded
    | MessageIgnored
)
