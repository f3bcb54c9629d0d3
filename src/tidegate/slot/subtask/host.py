"""The place where a subtask runs, as its parts see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.slot.subtask.context import OperatorHost

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from tidegate.errors import TidegateError
    from tidegate.model.chance import Chance
    from tidegate.model.control import CheckpointDeclined, ExecutionState
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.slot.channel_state import ChannelStateWriter
    from tidegate.slot.channels.gate import Producer
    from tidegate.slot.channels.output import Consumer
    from tidegate.slot.subtask.snapshot import SubtaskSnapshot


class Host(OperatorHost, Protocol):
    """Everything that the parts of a subtask ask for."""

    @property
    def chance(self) -> Chance: ...

    @property
    def log(self) -> structlog.typing.FilteringBoundLogger: ...

    @property
    def channel_state(self) -> ChannelStateWriter: ...

    @property
    def busy(self) -> int:
        """Number of the subtask's snapshots and coroutines that are not done."""
        ...

    def ready(self) -> None: ...

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None:
        """Call something at a monotonic time, if the subtask is alive then."""
        ...

    def to_producer(self, channel: ChannelId) -> Producer: ...

    def to_consumer(self, channel: ChannelId) -> Consumer: ...

    def changed(self, state: ExecutionState, error: TidegateError | None) -> None: ...

    def failing(self, error: Exception) -> None:
        """The subtask fails next, of a job that keeps what it takes to run the step again."""
        ...

    def decline(self, declined: CheckpointDeclined) -> None: ...

    def cut(self, snapshot: SubtaskSnapshot) -> None:
        """The share of a checkpoint is cut: encode it, write it, acknowledge it."""
        ...

    def stop_snapshot(self, checkpoint: CheckpointId) -> None: ...

    def is_writing(self, checkpoint: CheckpointId) -> bool:
        """True while the share of a checkpoint is cut and not acknowledged."""
        ...
