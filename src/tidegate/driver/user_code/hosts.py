"""The operators' coordinators of one job, called on the loop.

They are made again when the whole job is deployed. When only some subtasks are, they live on, and
hear which of their subtasks were reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from tidegate.api.results import ResultBuffer
from tidegate.checkpoint.coordinator.events import (
    BacklogReported,
    CoordinatorSnapshotFailed,
    CoordinatorSnapshotTaken,
    OperatorEventSent,
)
from tidegate.errors import TidegateError, UserCodeFailed
from tidegate.jobmaster.events import CoordinatorFailed
from tidegate.model.descriptors import shortage
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from tidegate.api.coordinator import OperatorCoordinator
    from tidegate.graph.job_graph import JobGraph
    from tidegate.jobmaster.events import JobEvent
    from tidegate.model.control import ToCoordinator
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId

T = TypeVar("T")


class CoordinatorHosts:
    """All coordinators.

    post: puts an event into the driver's inbox, in order. staged: where what an operator's source
    reads was written.
    """

    def __init__(
        self,
        graph: JobGraph,
        post: Callable[[JobEvent], None],
        run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
        spawn: Callable[[Coroutine[object, object, None]], None],
        loop: asyncio.AbstractEventLoop,
        staged: Mapping[OperatorId, str],
    ) -> None:
        self.staged = staged
        self._graph = graph
        self._post = post
        self._run_blocking = run_blocking
        self._spawn = spawn
        self._loop = loop
        self._hosts: dict[OperatorId, _Host] = {}
        self._shared: dict[str, object] = {}
        self._results: dict[str, ResultBuffer] = {}
        self._over = False
        self._error: TidegateError | None = None

    def start(
        self,
        checkpoint: CheckpointId | None,
        states: Mapping[OperatorId, bytes | None],
        executions: Mapping[OperatorId, tuple[ExecutionId, ...]],
    ) -> None:
        """Make and start every coordinator."""
        self.close()
        for operator in states:
            host = _Host(self, operator, executions[operator])
            self._hosts[operator] = host
            host.begin(checkpoint, states[operator])

    def reset(
        self,
        checkpoint: CheckpointId | None,
        executions: Mapping[OperatorId, tuple[ExecutionId, ...]],
    ) -> None:
        """Some subtasks are deployed again, from the checkpoint: new attempts, and no others."""
        for operator, attempts in executions.items():
            host = self._hosts.get(operator)
            if host is not None:
                for execution in attempts:
                    host.reset(execution, checkpoint)

    def ready(self, execution: ExecutionId, operators: tuple[OperatorId, ...]) -> None:
        for operator in operators:
            host = self._hosts.get(operator)
            if host is not None and execution in host.executions:
                host.ready(execution.subtask.index)

    def event(self, message: ToCoordinator) -> None:
        """An event from a subtask; one of a former attempt is dropped."""
        host = self._hosts.get(message.operator)
        if host is not None and message.execution in host.executions:
            index = message.execution.subtask.index
            host.call(lambda: host.coordinator.on_event(index, message.event))

    def snapshot(self, operator: OperatorId, checkpoint: CheckpointId) -> None:
        """Ask a coordinator for its state; the answer goes to the inbox."""
        host = self._hosts.get(operator)
        try:
            if host is None:
                raise FailureReason.JOB_FAILOVER_REGION.aborted("its coordinator is closed")
            data = host.coordinator.snapshot(checkpoint)
        except Exception as error:
            failure = self.as_ours(error, operator)
            self._post(CoordinatorSnapshotFailed(checkpoint, operator, failure))
        else:
            self._post(CoordinatorSnapshotTaken(checkpoint, operator, data))

    def complete(self, operator: OperatorId, checkpoint: CheckpointId) -> None:
        host = self._hosts.get(operator)
        if host is not None:
            host.call(lambda: host.coordinator.on_complete(checkpoint))

    def aborted(self, operator: OperatorId, checkpoint: CheckpointId) -> None:
        host = self._hosts.get(operator)
        if host is not None:
            host.call(lambda: host.coordinator.on_aborted(checkpoint))

    def close(self) -> None:
        """Close all; what they still do counts for nothing."""
        hosts, self._hosts = self._hosts, {}
        self._shared.clear()
        for host in hosts.values():
            host.close()

    # --- results ---

    def results(self, name: str) -> ResultBuffer:
        """The buffer of a collect sink; made here where nobody has asked for it before."""
        buffer = self._results.get(name)
        if buffer is None:
            buffer = self._results[name] = ResultBuffer()
            if self._over:
                buffer.end(self._error)
        return buffer

    def end_results(self, error: TidegateError | None) -> None:
        """The job is over: nothing comes any more, for whoever asks."""
        self._over, self._error = True, error
        for buffer in self._results.values():
            buffer.end(error)

    # --- for the hosts ---

    def as_ours(self, error: Exception, operator: OperatorId) -> TidegateError:
        """An error with the operator's name."""
        where = f"the coordinator of operator '{self._graph.operator(operator).name}'"
        if isinstance(error, TidegateError):
            error.where = error.where or where
            return error
        if (short := shortage(error)) is not None:
            short.where = where
            return short
        return UserCodeFailed(f"{type(error).__name__}: {error}", where=where)

    def failed(self, host: _Host, error: Exception) -> None:
        """A coordinator has failed."""
        if self.is_live(host):
            self._post(CoordinatorFailed(host.operator, self.as_ours(error, host.operator)))

    def report_backlog(self, host: _Host, backlog: bool) -> None:
        """A source has begun to catch up, or ended to."""
        self._post(BacklogReported(host.operator, backlog))

    def is_live(self, host: _Host) -> bool:
        """True if the host belongs to the present deployment."""
        return self._hosts.get(host.operator) is host

    def make(self, host: _Host) -> OperatorCoordinator:
        """The coordinator of an operator."""
        return self._graph.coordinated(host.operator).coordinator(host)

    def send(self, host: _Host, subtask: int, event: OperatorEvent) -> None:
        if self.is_live(host):
            self._post(OperatorEventSent(host.executions[subtask], host.operator, event))

    def block(
        self, host: _Host, call: Callable[[], object], then: Callable[[object], None]
    ) -> None:
        """Run a call on the pool for a host."""

        async def run() -> None:
            try:
                result = await self._run_blocking(call)
            except Exception as error:
                self.failed(host, error)
            else:
                host.call(lambda: then(result))

        self._spawn(run())

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Object that coordinators share under a name."""
        if name not in self._shared:
            self._shared[name] = make()
        return cast("T", self._shared[name])

    def later(self, host: _Host, delay_ms: int, call: Callable[[], None]) -> None:
        """Make a call for a host after a delay."""
        self._loop.call_later(delay_ms / 1000, lambda: host.call(call))


class _Host:
    def __init__(
        self,
        hosts: CoordinatorHosts,
        operator: OperatorId,
        executions: tuple[ExecutionId, ...],
    ) -> None:
        self._hosts = hosts
        self.operator = operator
        self.executions = executions
        self._coordinator: OperatorCoordinator | None = None
        self._backlog = False

    @property
    def coordinator(self) -> OperatorCoordinator:
        assert self._coordinator is not None, "a coordinator is made before it is called"
        return self._coordinator

    def begin(self, checkpoint: CheckpointId | None, data: bytes | None) -> None:
        def begin() -> None:
            self._coordinator = self._hosts.make(self)
            self._coordinator.start(checkpoint, data)

        self.call(begin)

    def reset(self, execution: ExecutionId, checkpoint: CheckpointId | None) -> None:
        index = execution.subtask.index
        executions = list(self.executions)
        executions[index] = execution
        self.executions = tuple(executions)
        self.call(lambda: self.coordinator.subtask_reset(index, checkpoint))

    def ready(self, subtask: int) -> None:
        self.call(lambda: self.coordinator.subtask_ready(subtask))

    def call(self, call: Callable[[], None]) -> None:
        """Call the coordinator; what it raises fails the job."""
        if self._hosts.is_live(self):
            try:
                call()
            except Exception as error:
                self._hosts.failed(self, error)

    def close(self) -> None:
        self.report_backlog(False)  # the next one begins without
        if self._coordinator is not None:
            try:
                self._coordinator.close()
            except Exception as error:
                self._hosts.failed(self, error)

    # --- CoordinatorContext ---

    @property
    def parallelism(self) -> int:
        return len(self.executions)

    @property
    def staged(self) -> str | None:
        return self._hosts.staged.get(self.operator)

    def send(self, subtask: int, event: OperatorEvent) -> None:
        self._hosts.send(self, subtask, event)

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        self._hosts.block(self, call, then)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._hosts.later(self, delay_ms, call)

    def report_backlog(self, backlog: bool) -> None:
        if backlog != self._backlog:
            self._backlog = backlog
            self._hosts.report_backlog(self, backlog)

    def shared(self, name: str, make: Callable[[], T]) -> T:
        return self._hosts.shared(name, make)

    def fail(self, error: TidegateError) -> None:
        self._hosts.failed(self, error)

    def results(self, name: str) -> ResultBuffer:
        return self._hosts.results(name)
