"""The slot as an open operator, and the user function in it, see it.

A slot is one place where operators run (`slot.subtask.hosted`). A harness, a dry run and tests are
others: they make operators, or whole subtasks, as a slot does, and play the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidegate.api.functions import AggregatingStateDescriptor, ReducingStateDescriptor
from tidegate.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.errors import UserError, with_article
from tidegate.model.control import Remark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from tidegate.api.operator import OperatorStates, Threads
    from tidegate.api.state import (
        AggregatingState,
        BroadcastState,
        ListState,
        MapState,
        OperatorListState,
        OperatorStateDescriptor,
        ReducingState,
        ValueState,
    )
    from tidegate.clock import Clock
    from tidegate.metrics import MetricGroup
    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId, JobId, OperatorId
    from tidegate.model.topology import OperatorInfo
    from tidegate.state.backend import OperatorBackend

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


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

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]: ...

    def threads(self, limit: int) -> Threads: ...

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine beside the turns; what it raises is the subtask's failure."""
        ...

    def wake(self) -> None:
        """Ask for a turn in which operators are told that they are ready."""
        ...

    def wake_at(self, at_ms: int) -> None: ...

    def skipped(self, rows: int) -> None: ...

    def to_coordinator(self, operator: OperatorId, event: OperatorEvent) -> None: ...

    def wait(self, awaited: Awaitable[object], waiting: Waiting) -> None: ...


class SlotOperatorContext:
    """The `OperatorContext` of one operator."""

    def __init__(
        self,
        info: OperatorInfo,
        deployment: Deployment,
        host: OperatorHost,
        backend: OperatorBackend,
        metrics: MetricGroup,
        state: OperatorStates,
    ) -> None:
        self.info = info
        self.operator: OperatorId = info.id
        self.name = info.name
        self.backend = backend
        self.state = state
        self.metrics = metrics
        self.settings = deployment.settings.slot
        self.subtask = deployment.index
        self.parallelism = deployment.vertex.parallelism
        self.max_parallelism = deployment.vertex.max_parallelism
        self.remarks: list[Remark] = []
        self.runtime = SlotRuntimeContext(self, deployment)
        self._deployment = deployment
        self._host = host
        self._alarm_ms = -1

    @property
    def job(self) -> JobId:
        return self._deployment.job

    @property
    def restored_checkpoint(self) -> CheckpointId | None:
        return self._deployment.deploy.restored

    @property
    def attempt_name(self) -> str:
        execution = self._deployment.execution
        head = self.info.id.hex()[:8]
        return f"{head}-{execution.epoch}-{execution.attempt}-{execution.subtask.index}"

    @property
    def checkpointing(self) -> bool:
        return self._deployment.settings.checkpoints.periodic

    def wake_at_wall(self, wall_ms: int) -> None:
        now_ms = self._host.clock.monotonic_ms()
        at_ms = now_ms + max(0, wall_ms - self._host.clock.wall_ms())
        under_way = self._alarm_ms > now_ms + 1
        if not under_way or at_ms < self._alarm_ms:
            self._alarm_ms = at_ms
            self._host.wake_at(at_ms)

    def processing_time(self) -> int:
        return self._host.clock.wall_ms()

    def monotonic_ms(self) -> int:
        return self._host.clock.monotonic_ms()

    def wake_at(self, monotonic_ms: int) -> None:
        self._host.wake_at(monotonic_ms)

    def takes_input(self) -> bool:
        return self._host.takes_input

    def skipped(self, rows: int) -> None:
        self._host.skipped(rows)

    def remark(self, warning: str, about: str) -> None:
        self.remarks.append(Remark(warning, self.name, about))

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self._host.run_blocking(call)

    def threads(self, limit: int) -> Threads:
        return self._host.threads(limit)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._host.start(coroutine)

    def wake(self) -> None:
        self._host.wake()

    def to_coordinator(self, event: OperatorEvent) -> None:
        self._host.to_coordinator(self.operator, event)


class SlotRuntimeContext:
    """The `RuntimeContext` of one operator's user function."""

    def __init__(self, context: SlotOperatorContext, deployment: Deployment) -> None:
        self._context = context
        self._deployment = deployment

    def get_job_id(self) -> str:
        return self._deployment.job

    def get_task_name(self) -> str:
        return self._deployment.vertex.name

    def get_task_name_with_subtasks(self) -> str:
        return self._deployment.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._deployment.vertex.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._deployment.vertex.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._deployment.index

    def get_attempt_number(self) -> int:
        return self._deployment.execution.attempt

    def get_job_parameters(self) -> Mapping[str, str]:
        return self._deployment.settings.parameters

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        return self._deployment.settings.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._context.metrics

    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        return self._state(state_descriptor, ValueStateDescriptor, "get_state")

    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        return self._state(state_descriptor, ListStateDescriptor, "get_list_state")

    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        return self._state(state_descriptor, MapStateDescriptor, "get_map_state")

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        return self._state(state_descriptor, ReducingStateDescriptor, "get_reducing_state")

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[A, R]
    ) -> AggregatingState[A, R]:
        return self._state(state_descriptor, AggregatingStateDescriptor, "get_aggregating_state")

    def get_operator_list_state(
        self, state_descriptor: OperatorStateDescriptor[T]
    ) -> OperatorListState[T]:
        return self._context.state.operator_state(state_descriptor)

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[K, V]
    ) -> BroadcastState[K, V]:
        return self._context.state.broadcast_state(state_descriptor)

    def _state(self, given: object, kind: type[StateDescriptor], call: str) -> Any:
        if not isinstance(given, kind):
            raise UserError(
                f"{call} takes {with_article(kind)}, not {given!r}",
                where=f"operator '{self._context.name}'",
                remedy="Describe the state by its name and type, and ask by the call of its kind.",
            )
        if not self._context.info.keyed:
            raise UserError(
                f"{call} asks for keyed state on a stream without keys",
                where=f"operator '{self._context.name}', state '{given.name}'",
                remedy="Call key_by before the step; or keep state of the subtask with "
                "get_operator_list_state.",
            )
        return self._context.state.keyed_state(given)
