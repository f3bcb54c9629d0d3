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
    """What the driver offers an operator coordinator; every call is made on the driver's loop."""

    @property
    def parallelism(self) -> int:
        """Number of the operator's subtasks."""
        ...

    @property
    def staged(self) -> str | None:
        """The folder with what the operator's source has had written for this run; else None."""
        ...

    def send(self, subtask: int, event: OperatorEvent) -> None:
        """Send an event to a subtask; held back while the subtask's gateway is closed."""
        ...

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        """Run a call that blocks on the driver's pool and pass its result to ``then`` on the loop.

        What the call raises fails the job with the operator's name.
        """
        ...

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Make a call on the loop after a delay; dropped once the coordinator is closed."""
        ...

    def report_backlog(self, backlog: bool) -> None:
        """Tell the checkpoints that the operator catches up with old records, or no longer does."""
        ...

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """What the coordinators of the job have in common under a name; the first to ask makes it.

        It is made anew with them.
        """
        ...

    def fail(self, error: TidegateError) -> None:
        """Fail the job."""
        ...

    def results(self, name: str) -> ResultBuffer:
        """The buffer of that name, which ``JobClient.collected`` reads.

        The driver makes it once and keeps it as long as the job; it ends it when the job ends.
        """
        ...


class OperatorCoordinator(Protocol):
    """Decides for all subtasks of one operator; its state is part of each checkpoint.

    It is made anew where all subtasks of the job are restored, then ``start`` is called. Where only
    some are, it lives on, and ``subtask_reset`` is called for each of its own among them. Until
    then what it sends to one of these reaches nobody.
    """

    def start(self, checkpoint: CheckpointId | None, data: bytes | None) -> None:
        """Begin, from the state of a checkpoint or from nothing."""
        ...

    def subtask_ready(self, subtask: int) -> None:
        """The subtask runs and can be sent events."""
        ...

    def subtask_reset(self, subtask: int, checkpoint: CheckpointId | None) -> None:
        """The subtask alone was restored: take back what it was given after that checkpoint."""
        ...

    def on_event(self, subtask: int, event: OperatorEvent) -> None:
        """An event from a subtask's operator."""
        ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        """The state for this checkpoint; events sent after this call come behind the barrier."""
        ...

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        ...

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""
        ...

    def close(self) -> None:
        """The job ends or restarts."""
        ...


class Coordinated(Protocol):
    """An operator that has a coordinator implements this beside ``Operator``."""

    def coordinator(self, context: CoordinatorContext) -> OperatorCoordinator:
        """Make the driver-side half."""
        ...
