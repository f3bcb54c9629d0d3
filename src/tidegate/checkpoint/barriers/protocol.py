"""Barrier handling of one subtask as others see it: what it hears, what it wants done, its face.

`checkpoint.barriers.modes` makes the handler that a job's settings ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flinkformat.frozen import frozen
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from tidegate.model.elements import Barrier
    from tidegate.model.failure_reason import FailureReason
    from tidegate.model.ids import ChannelId


@frozen
class BarrierArrived:
    """A barrier is the next element of this channel."""

    channel: ChannelId
    barrier: Barrier


@frozen
class BarrierAnnounced:
    """A barrier is coming on this channel, behind data that may take its time.

    queued: it has come, with what it is to overtake. age_ms: time since the trigger.
    """

    channel: ChannelId
    barrier: Barrier
    queued: bool
    age_ms: int


@frozen
class EndAnnounced:
    """The end of the partition has come on this channel, behind data."""

    channel: ChannelId


@frozen
class CancelArrived:
    """A cancel barrier is the next element of this channel."""

    channel: ChannelId
    checkpoint: CheckpointId


@frozen
class ChannelEnded:
    """The end of the partition has come on this channel: nothing follows."""

    channel: ChannelId


@frozen
class TriggeredByDriver:
    """The driver asks for a checkpoint: of a source, or where all producers have finished.

    age_ms: time since the trigger.
    """

    barrier: Barrier
    age_ms: int = 0


@frozen
class AbortedByDriver:
    """The driver has given this checkpoint up."""

    checkpoint: CheckpointId


@frozen
class TimeReached:
    """The clock has reached ``wake_at_ms``."""


BarrierEvent = (
    BarrierArrived
    | BarrierAnnounced
    | EndAnnounced
    | CancelArrived
    | ChannelEnded
    | TriggeredByDriver
    | AbortedByDriver
    | TimeReached
)


@frozen
class Block:
    """Read no more from this channel; not even what has arrived already."""

    channel: ChannelId


@frozen
class Unblock:
    """Read these channels again, in the order in which they were blocked."""

    channels: tuple[ChannelId, ...]


@frozen
class Snapshot:
    """Broadcast the barrier and take the snapshot, before anything else is read.

    alignment_ms: time since the first barrier of this checkpoint came, so the start delay is
    wall clock now − alignment_ms − barrier.triggered_ms.
    """

    barrier: Barrier
    alignment_ms: int


@frozen
class Persist:
    """Data that wait in these channels, or still come, also belong to the checkpoint.

    Up to the barrier of the checkpoint, or the channel's end, wherever in the queue that stands.
    """

    checkpoint: CheckpointId
    channels: tuple[ChannelId, ...]


@frozen
class FinishPersisting:
    """The barrier has come on every channel: the checkpoint has all of its in-flight data."""

    checkpoint: CheckpointId
    alignment_ms: int


@frozen
class GiveUp:
    """Drop what was cut and persisted for the checkpoint; it is given up."""

    checkpoint: CheckpointId


@frozen
class Decline:
    """Tell the driver that this subtask takes no part in the checkpoint."""

    checkpoint: CheckpointId
    reason: FailureReason


@frozen
class Cancel:
    """Broadcast a cancel barrier: this subtask's barrier will not come."""

    checkpoint: CheckpointId


BarrierCommand = Block | Unblock | Snapshot | Persist | FinishPersisting | GiveUp | Decline | Cancel


class BarrierHandler(Protocol):
    """Interface of barrier handling in a subtask, for all modes."""

    @property
    def wake_at_ms(self) -> int | None:
        """Time for the next `TimeReached`; None for never."""
        ...

    @property
    def aligning(self) -> CheckpointId | None:
        """Checkpoint whose barriers have come in part; None if there is none."""
        ...

    def handle(self, event: BarrierEvent, now_ms: int) -> list[BarrierCommand]:
        """Commands for an event, in order."""
        ...


ABORTED_MAX: Final = 64
"""Given-up checkpoints that a subtask remembers one by one while their barriers are to come."""


class GivenUpAhead:
    """Checkpoints that the driver gave up before any of their barriers came here.

    Of too many only the newest are remembered, and whatever is older counts as given up.
    """

    def __init__(self) -> None:
        self._ids: dict[CheckpointId, None] = {}
        self._all_up_to = CheckpointId(0)

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint <= self._all_up_to or checkpoint in self._ids

    def add(self, checkpoint: CheckpointId) -> None:
        self._ids[checkpoint] = None
        if len(self._ids) > ABORTED_MAX:
            # The oldest are the least likely to come still; to forget one means to take it.
            self._all_up_to = max(self._all_up_to, min(self._ids))
            self.forget(self._all_up_to)
        assert len(self._ids) <= ABORTED_MAX, "what is remembered has a bound"

    def forget(self, checkpoint: CheckpointId) -> None:
        """No barrier up to this checkpoint's counts any more."""
        for older in [known for known in self._ids if known <= checkpoint]:
            del self._ids[older]
