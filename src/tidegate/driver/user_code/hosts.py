"""The operators' coordinators of one job, called on the loop.

They are made again when the whole job is deployed. When only some subtasks are, they live on, and
hear which of their subtasks were reset.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, TypeVar, cast

from tidegate.api.results import ResultBuffers
from tidegate.checkpoint.coordinator.events import (
    BacklogReported,
    CoordinatorSnapshotFailed,
    CoordinatorSnapshotTaken,
    OperatorEventSent,
)
from tidegate.errors import CheckpointAborted, as_error
from tidegate.jobmaster.events import CoordinatorFailed
from tidegate.model.descriptors import as_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from tidegate.api.coordinator import OperatorCoordinator
    from tidegate.api.results import ResultBuffer
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.jobmaster.events import JobEvent
    from tidegate.model.control import ToCoordinator
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId

T = TypeVar("T")


class CoordinatorHosts:
    """All coordinators. staged: where what an operator's source reads was written."""

    def __init__(
        self,
        graph: JobGraph,
        post: Callable[[JobEvent], None],
        spawn: Callable[[Coroutine[object, object, None]], None],
        run_blocking: RunBlocking,
        staged: Mapping[OperatorId, str],
    ) -> None:
        self.graph = graph
        self.post = post
        self.spawn = spawn
        self.run_blocking = run_blocking
        self.staged = staged
        self.shared: dict[str, object] = {}
        self._hosts: dict[OperatorId, _Host] = {}
        self.results: Final = ResultBuffers()

    def start(
        self,
        checkpoint: CheckpointId | None,
        states: Mapping[OperatorId, bytes | None],
        executions: Mapping[OperatorId, tuple[ExecutionId, ...]],
    ) -> None:
        self.close()
        for operator in states:
            host = self._hosts[operator] = _Host(self, operator, executions[operator])
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
        """Asks a coordinator for its state; the answer goes to the inbox."""
        host = self._hosts.get(operator)
        try:
            if host is None:
                raise CheckpointAborted("JOB_FAILOVER_REGION", "its coordinator is closed")
            data = host.coordinator.snapshot(checkpoint)
        except BaseException as raised:
            failure = self.as_ours(as_error(raised), operator)
            self.post(CoordinatorSnapshotFailed(checkpoint, operator, failure))
        else:
            self.post(CoordinatorSnapshotTaken(checkpoint, operator, data))

    def complete(self, operator: OperatorId, checkpoint: CheckpointId) -> None:
        host = self._hosts.get(operator)
        if host is not None:
            host.call(lambda: host.coordinator.on_complete(checkpoint))

    def aborted(self, operator: OperatorId, checkpoint: CheckpointId) -> None:
        host = self._hosts.get(operator)
        if host is not None:
            host.call(lambda: host.coordinator.on_aborted(checkpoint))

    def close(self) -> None:
        """Closes all; what they still do counts for nothing."""
        hosts, self._hosts = self._hosts, {}
        self.shared.clear()
        # All at once: what one of them does as it is closed is no news from another.
        for host in hosts.values():
            host.closed = True
        for host in hosts.values():
            host.close()

    def as_ours(self, error: Exception, operator: OperatorId) -> TidegateError:
        name = self.graph.operator(operator).name
        return as_ours(error, where=f"the coordinator of operator '{name}'")


class _Host:
    """One coordinator's `CoordinatorContext`; once it is closed, it is deaf and mute."""

    def __init__(
        self,
        hosts: CoordinatorHosts,
        operator: OperatorId,
        executions: tuple[ExecutionId, ...],
    ) -> None:
        self.executions = executions
        self._hosts = hosts
        self._operator = operator
        self._coordinator: OperatorCoordinator | None = None
        self._backlog = False
        self.closed = False

    @property
    def coordinator(self) -> OperatorCoordinator:
        assert self._coordinator is not None, "a coordinator is made before it is called"
        return self._coordinator

    def begin(self, checkpoint: CheckpointId | None, data: bytes | None) -> None:
        def begin() -> None:
            self._coordinator = self._hosts.graph.coordinated(self._operator).coordinator(self)
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
        """Calls the coordinator; what it raises fails the job."""
        if not self.closed:
            try:
                call()
            except BaseException as raised:
                self.fail(as_error(raised))

    def close(self) -> None:
        self.report_backlog(False)  # the next one begins without
        if self._coordinator is not None:
            # A failure of what is closed is nobody's: the job goes on with another, or is over.
            with contextlib.suppress(BaseException):
                self._coordinator.close()

    # --- CoordinatorContext ---

    @property
    def parallelism(self) -> int:
        return len(self.executions)

    @property
    def staged(self) -> str | None:
        return self._hosts.staged.get(self._operator)

    @property
    def goes_on(self) -> bool:
        return False

    def send(self, subtask: int, event: OperatorEvent) -> None:
        if not self.closed:
            execution = self.executions[subtask]
            self._hosts.post(OperatorEventSent(execution, self._operator, event))

    def run_blocking(self, call: Callable[[], object], then: Callable[[object], None]) -> None:
        async def run() -> None:
            try:
                result = await self._hosts.run_blocking(call)
            except Exception as error:
                self.fail(error)
            else:
                self.call(lambda: then(result))

        self._hosts.spawn(run())

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(delay_ms / 1000, lambda: self.call(call))

    def report_backlog(self, backlog: bool) -> None:
        if backlog != self._backlog:
            self._backlog = backlog
            self._hosts.post(BacklogReported(self._operator, backlog))

    def shared(self, name: str, make: Callable[[], T]) -> T:
        shared = self._hosts.shared
        if name not in shared:
            shared[name] = make()
        return cast("T", shared[name])

    def fail(self, error: Exception) -> None:
        if not self.closed:
            ours = self._hosts.as_ours(error, self._operator)
            self._hosts.post(CoordinatorFailed(self._operator, ours))

    def results(self, name: str) -> ResultBuffer:
        return self._hosts.results.of(name)
