"""Commands of the job master, in order; results of `JobMaster.handle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.checkpoint.coordinator.commands import CheckpointCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import MasterState
    from tidegate.errors import TidegateError
    from tidegate.model.control import JobStatus, ToSlot
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId, SlotId, SubtaskId

    Guests = Mapping[SlotId, tuple[str, ...]]


@frozen
class RequestSlots:
    """Bring that many more slots; each offers itself, or `SlotRequestFailed` says it will not."""

    count: int


@frozen
class ReleaseSlots:
    """The job needs no slots any more: let all go, those not yet come included."""

    reason: str


@frozen
class DropSlot:
    """End the link to a slot that is given up. The machine has forgotten it already."""

    slot: SlotId
    reason: str


@frozen
class SendToSlot:
    """Bring a message to a slot."""

    slot: SlotId
    message: ToSlot


@frozen
class StartCoordinators:
    """Make and start the operators' coordinators. states: None if one starts from nothing.

    executions: per operator its subtasks' attempts, by index, whom its events go to.
    """

    checkpoint: CheckpointId | None
    states: Mapping[OperatorId, bytes | None]
    executions: Mapping[OperatorId, tuple[ExecutionId, ...]]


@frozen
class ResetSubtasks:
    """Tell the coordinators which of their subtasks alone are restored, as new attempts.

    checkpoint: from which; None: these subtasks start empty.
    """

    checkpoint: CheckpointId | None
    executions: Mapping[OperatorId, tuple[ExecutionId, ...]]


@frozen
class RestoreHooks:
    """Restore the master hooks, before anything is deployed: `HooksRestored`, `HooksNotRestored`.

    checkpoint: what the states are of; None: reset the hooks, for there is none.
    """

    checkpoint: CheckpointId | None
    states: tuple[MasterState, ...]
    allow_unmatched: bool


@frozen
class SubtaskReady:
    """A subtask runs: tell the coordinators of its operators."""

    execution: ExecutionId
    operators: tuple[OperatorId, ...]


@frozen
class CloseCoordinators:
    """Close the operators' coordinators; what they still send is dropped."""


@frozen
class StatusChanged:
    """The job is in another status. error: the failure behind it, where there is one."""

    former: JobStatus
    status: JobStatus
    wall_ms: int
    error: TidegateError | None = None


@frozen
class SlotsAwaited:
    """Slots are still missing: to be shown to whoever waits."""

    have: int
    want: int
    waited_ms: int


@frozen
class Restarting:
    """The job will be restored after a wait. restart: the how-manieth. error: what failed.

    times: how often just that has failed.
    """

    restart: int
    delay_ms: int
    error: TidegateError
    times: int = 1


@frozen
class FallingBack:
    """A checkpoint is damaged; the job is restored from an older one."""

    damaged: CheckpointId
    older: CheckpointId
    error: TidegateError


@frozen
class Rescaling:
    """All is being stopped, to be deployed at that parallelism."""

    parallelism: int


@frozen
class RescaleDone:
    """A rescale is over. error: why the job was not brought to that parallelism; None: it runs."""

    request: int
    parallelism: int
    error: TidegateError | None = None


@frozen
class Deployed:
    """Subtasks are being deployed. restored: from which checkpoint; None: they start empty.

    attempt: the highest of theirs. subtasks: how many.
    """

    attempt: int
    restored: CheckpointId | None
    subtasks: int


@frozen
class GuestsDeployed:
    """Slots host subtasks that have no slot of their own now. guests: their names, by slot."""

    guests: Guests


@frozen
class GuestsReturn:
    """Subtasks are being stopped, to be deployed on slots of their own.

    guests: their names, by the slot that has hosted them.
    """

    subtasks: tuple[SubtaskId, ...]
    guests: Guests


@frozen
class GuestsStay:
    """Subtasks stay guests, for no further slot will come. guests: as in `GuestsDeployed`."""

    guests: Guests
    error: TidegateError


@frozen
class LabelFailure:
    """Have the job's enrichers label a failure; `FailureLabelled` where they gave any label.

    number: the failure's, to be given back. task, slot: where; "" and None for the job.
    """

    number: int
    error: TidegateError
    task: str
    slot: SlotId | None


@frozen
class JobOver:
    """The job has ended, and all that was to be done for it has been asked for."""

    status: JobStatus
    error: TidegateError | None = None


JobCommand = (
    CheckpointCommand
    | RequestSlots
    | ReleaseSlots
    | DropSlot
    | SendToSlot
    | StartCoordinators
    | ResetSubtasks
    | RestoreHooks
    | SubtaskReady
    | CloseCoordinators
    | StatusChanged
    | SlotsAwaited
    | Restarting
    | FallingBack
    | Rescaling
    | RescaleDone
    | Deployed
    | GuestsDeployed
    | GuestsReturn
    | GuestsStay
    | LabelFailure
    | JobOver
)
