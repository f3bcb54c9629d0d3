"""Events of a job; each is an argument of `JobMaster.handle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.checkpoint.coordinator.events import CheckpointEvent
from tidegate.model.control import Offer, Pulse, SubtaskChanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.errors import TidegateError
    from tidegate.model.ids import OperatorId, SlotId


@frozen
class JobStarted:
    """The driver leads the job and has read what it starts from: begin. wall_ms: now."""

    wall_ms: int


@frozen
class StartFailed:
    """Preparation of the job has failed for good."""

    error: TidegateError


@frozen
class SlotLeft:
    """A slot is gone: its link broke, or it said so. error: None if it was asked to go."""

    slot: SlotId
    error: TidegateError | None


@frozen
class SlotRequestFailed:
    """A slot that was asked for will not come. final: asking again would not help."""

    error: TidegateError
    final: bool = False


@frozen
class CoordinatorFailed:
    """An operator's coordinator has failed."""

    operator: OperatorId
    error: TidegateError


@frozen
class DriverHindered:
    """The driver could not do what it had to: a failure of the job, as it cannot be of a task."""

    error: TidegateError


@frozen
class FailureLabelled:
    """Labels of the job's enrichers for the failure of that number."""

    number: int
    labels: Mapping[str, str]


@frozen
class HooksRestored:
    """`RestoreHooks` went well."""


@frozen
class HooksNotRestored:
    """`RestoreHooks` failed: a hook raised, or one is missing."""

    error: TidegateError


@frozen
class SuspendRequested:
    """Somebody stops the job so that it can go on later. reason: who or why, for messages."""

    reason: str


@frozen
class CancelRequested:
    """Somebody ends the job. reason: who, where it was not the program itself."""

    reason: str = ""


@frozen
class RescaleRequested:
    """Somebody wants the job at another parallelism; `RescaleDone` answers it, once."""

    request: int
    parallelism: int


JobEvent = (
    CheckpointEvent
    | JobStarted
    | StartFailed
    | FailureLabelled
    | HooksRestored
    | HooksNotRestored
    | Offer
    | Pulse
    | SlotLeft
    | SlotRequestFailed
    | SubtaskChanged
    | CoordinatorFailed
    | DriverHindered
    | CancelRequested
    | SuspendRequested
    | RescaleRequested
)
