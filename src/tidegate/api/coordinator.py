"""The driver-side half of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.results import ResultBuffer
    from tidegate.errors import TidegateError
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId

T = TypeVar("T")


class CoordinatorContext(Protocol):
    """Services of the driver for an operator coordinator; called on the driver's loop."""

    @property
    def parallelism(self) -> int:
        """Number of the operator's subtasks."""
        ...

    @property
    def staged(self) -> str | None:
        """Folder of the data written for the operator's source in this run; else None."""
        ...

    @property
    def goes_on(self) -> bool:
        """True if the job ends with a savepoint, so that another reads on behind the end."""
        ...

    def send(self, subtask: int, event: OperatorEvent) -> None:
        """Sends an event to a subtask; held back while the subtask's gateway is closed."""
        ...

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        """Runs a blocking call on the driver's pool and passes its result to ``then`` on the loop.

        An exception fails the job, with the operator's name.
        """
        ...

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Makes a call on the loop after a delay; dropped once the coordinator is closed."""
        ...

    def report_backlog(self, backlog: bool) -> None:
        """Tells checkpointing whether the operator processes a backlog of old records."""
        ...

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Object shared by the job's coordinators under a name; the first to ask makes it.

        A new one is made together with new coordinators.
        """
        ...

    def fail(self, error: TidegateError) -> None:
        """Fails the job with this error."""
        ...

    def results(self, name: str) -> ResultBuffer:
        """The buffer of that name, which ``JobClient.collected`` reads.

        The driver makes it once and keeps it as long as the job; it ends it when the job ends.
        """
        ...


class OperatorCoordinator(Protocol):
    """Decides for all subtasks of one operator; its state is part of each checkpoint.

    A new one is made when all subtasks of the job are restored, then ``start`` is called. Where
    only some are, it lives on, and ``subtask_reset`` is called for each of its own among them.
    Until then what it sends to one of these reaches nobody.
    """

    def start(self, checkpoint: CheckpointId | None, data: bytes | None) -> None:
        """Starts, from the state of a checkpoint or from nothing."""
        ...

    def subtask_ready(self, subtask: int) -> None:
        """The subtask runs and can receive events."""
        ...

    def subtask_reset(self, subtask: int, checkpoint: CheckpointId | None) -> None:
        """The subtask alone was restored: take back what it received after that checkpoint."""
        ...

    def on_event(self, subtask: int, event: OperatorEvent) -> None:
        """Receives an event from a subtask's operator."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        """State for this checkpoint; events sent after this call follow the barrier."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was aborted."""
        ...

    def close(self) -> None: ...


class Coordinated(Protocol):
    """An operator with a coordinator implements this beside ``Operator``."""

    def coordinator(self, context: CoordinatorContext) -> OperatorCoordinator:
        """Makes the driver-side half."""
        ...
