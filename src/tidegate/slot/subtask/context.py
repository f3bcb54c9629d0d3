"""The slot as an open operator sees it.

A slot is one place where operators run (`slot.subtask.hosted`). A harness, a dry run and tests are
others: they make operators, or whole subtasks, as a slot does, and play the host.
"""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

from tidegate.api.operator import OperatorClock, OperatorContext, SubtaskInfo
from tidegate.metrics import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tidegate.api.operator import OperatorStates, Threads
    from tidegate.clock import Clock
    from tidegate.model.control import Remark
    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import OperatorId
    from tidegate.model.topology import OperatorInfo


WORKS_FOR: Final[ContextVar[SubtaskInfo | None]] = ContextVar("tidegate_works_for", default=None)
"""The step for which a coroutine or a thread works. It is set in a context of theirs alone."""


P = ParamSpec("P")
T = TypeVar("T")


class Waiting(Protocol):
    """An operator whose steps wait for something."""

    def awaited_done(self) -> None: ...


class OperatorHost(Protocol):
    """Everything that open operators ask for."""

    @property
    def clock(self) -> Clock: ...

    @property
    def takes_input(self) -> bool:
        """False while an operator of the subtask holds its input back."""
        ...

    def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> Awaitable[object]: ...

    def threads(self, limit: int) -> Threads: ...

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a coroutine beside the turns; what it raises is the subtask's failure."""
        ...

    def wake(self) -> None:
        """Ask for a turn in which operators are told that they are ready."""
        ...

    def poll_soon(self) -> None:
        """Ask for a turn in which the source is polled."""
        ...

    def wake_at(self, at_ms: int) -> None: ...

    def skipped(self, rows: int) -> None: ...

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None: ...

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None: ...


def context_of(
    operator: OperatorInfo, deployment: Deployment, host: OperatorHost, state: OperatorStates
) -> OperatorContext:
    """Context of one operator; a slot, a harness and a dry run differ in the host and the state."""
    settings, vertex, execution = deployment.settings, deployment.vertex, deployment.execution
    info = SubtaskInfo(
        operator=operator.id,
        name=operator.name,
        keyed=operator.keyed,
        job=deployment.job,
        task=vertex.name,
        numbered_task=deployment.task_name,
        subtask=deployment.index,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        epoch=execution.epoch,
        attempt=execution.attempt,
        restored=deployment.deploy.restored,
        checkpointing=settings.checkpoints.periodic,
        settings=settings.slot,
        parameters=settings.parameters,
    )
    clock = OperatorClock(host.clock, host.wake_at)
    return OperatorContext(info, state, clock, _Tasks(info, host))


class _Tasks:
    """The `OperatorTasks` of an operator on a host."""

    def __init__(self, info: SubtaskInfo, host: OperatorHost) -> None:
        self.metrics = MetricRegistry(
            host.clock.monotonic_ms, operator=info.operator, limit=info.settings.metrics_max
        ).group()
        self.remarks: list[Remark] = []
        self.threads = host.threads
        self.wake = host.wake
        self.poll_soon = host.poll_soon
        self.skipped = host.skipped
        self._info = info
        self._host = host

    def named(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        context = copy_context()
        context.run(WORKS_FOR.set, self._info)
        return context.run(call, *args, **named)

    def run_blocking(
        self, call: Callable[[], object], *, on: Threads | None = None
    ) -> Awaitable[object]:
        return self.named(self._host.run_blocking, call, on=on)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self.named(self._host.start, coroutine)

    def takes_input(self) -> bool:
        return self._host.takes_input

    def to_coordinator(self, event: OperatorEvent) -> None:
        self._host.to_coordinator(self._info.operator, event)
