"""Events of a job; each is an argument of `JobMaster.handle`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.checkpoint.coordinator.events import CheckpointEvent
from tidegate.model.control import Offer, Pulse, SubtaskChanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.errors import TidegateError
    from tidegate.model.ids import OperatorId, SlotId


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The driver leads the job and has read what it starts from: begin. wall_ms: now."""

    wall_ms: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Preparation of the job has failed for good."""

    error: TidegateError


@dataclass(frozen=True, slots=True)
class SlotLeft:
    """A slot is gone: its link broke, or it said so. error: None if it was asked to go."""

    slot: SlotId
    error: TidegateError | None


@dataclass(frozen=True, slots=True)
class SlotRequestFailed:
    """A slot that was asked for will not come. final: asking again would not help."""

    error: TidegateError
    final: bool = False


@dataclass(frozen=True, slots=True)
class CoordinatorFailed:
    """An operator's coordinator has failed."""

    operator: OperatorId
    error: TidegateError


@dataclass(frozen=True, slots=True)
class DriverHindered:
    """The driver could not do what it had to: a failure of the job, as it cannot be of a task."""

    error: TidegateError


@dataclass(frozen=True, slots=True)
class FailureLabelled:
    """Labels of the job's enrichers for the failure of that number."""

    number: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HooksRestored:
    """`RestoreHooks` went well."""


@dataclass(frozen=True, slots=True)
class HooksNotRestored:
    """`RestoreHooks` failed: a hook raised, or one is missing."""

    error: TidegateError


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    """Somebody stops the job so that it can go on later. reason: who or why, for messages."""

    reason: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody ends the job. reason: who, where it was not the program itself."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
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
