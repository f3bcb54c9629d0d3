"""What an open operator, and the user function in it, see of the slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping

    from tidegate.api.operator import KeyCell, Threads, Timers
    from tidegate.api.state import (
        AggregatingState,
        BroadcastState,
        ColumnState,
        ColumnStateDescriptor,
        KeyedColumns,
        KeyedPanes,
        ListState,
        MapState,
        OperatorListState,
        OperatorStateDescriptor,
        ReducingState,
        State,
        ValueState,
    )
    from tidegate.clock import Clock
    from tidegate.metrics import MetricGroup
    from tidegate.model.elements import OperatorEvent
    from tidegate.model.ids import CheckpointId, ExecutionId, JobId, OperatorId
    from tidegate.model.settings import SlotSettings
    from tidegate.model.topology import OperatorInfo, Vertex
    from tidegate.slot.subtask.blocking import BlockingCalls
    from tidegate.state.backend import OperatorBackend
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


@dataclass(slots=True)
class SubtaskSurroundings:
    """What all operators of a subtask share.

    wake: asks for the subtask's next turn; wake_at: at a time of the monotonic clock.
    """

    job: JobId
    execution: ExecutionId
    vertex: Vertex
    settings: SlotSettings
    checkpointing: bool
    restored: CheckpointId | None
    clock: Clock
    parameters: Mapping[str, str]
    blocking: BlockingCalls
    threads: Callable[[int], Threads]
    start: Callable[[Coroutine[object, object, None]], None]
    wake: Callable[[], None]
    wake_at: Callable[[int], None]
    takes_input: Callable[[], bool]
    skipped: Callable[[int], None]
    to_coordinator: Callable[[OperatorId, OperatorEvent], None]

    def beside(self, call: Callable[[], None]) -> None:
        """Have a blocking call done off the loop; nobody waits for it."""

        async def run() -> None:
            await self.blocking.run(call)

        self.start(run())

    @property
    def task_name(self) -> str:
        """``name (2/4)``: vertex, index from 1, parallelism."""
        index = self.execution.subtask.index + 1
        return f"{self.vertex.name} ({index}/{self.vertex.parallelism})"


class SlotOperatorContext:
    """The `OperatorContext` of one operator."""

    def __init__(
        self,
        info: OperatorInfo,
        surroundings: SubtaskSurroundings,
        backend: OperatorBackend,
        metrics: MetricGroup,
    ) -> None:
        self._info = info
        self._around = surroundings
        self._backend = backend
        self.operator: OperatorId = info.id
        self.metrics = metrics
        self.remarks: list[Remark] = []
        self._alarm_ms = -1
        self.runtime = SlotRuntimeContext(self, surroundings)

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def keyed(self) -> bool:
        """Whether its rows come by key."""
        return self._info.keyed

    @property
    def subtask(self) -> int:
        return self._around.execution.subtask.index

    @property
    def parallelism(self) -> int:
        return self._around.vertex.parallelism

    @property
    def max_parallelism(self) -> int:
        return self._around.vertex.max_parallelism

    @property
    def restored_checkpoint(self) -> CheckpointId | None:
        return self._around.restored

    @property
    def current_key(self) -> KeyCell:
        return self._backend.cell

    @property
    def current_pair(self) -> KeyCell:
        return self._backend.pair_cell

    @property
    def settings(self) -> SlotSettings:
        return self._around.settings

    @property
    def job(self) -> JobId:
        return self._around.job

    @property
    def attempt_name(self) -> str:
        execution = self._around.execution
        head = self._info.id.hex()[:8]
        return f"{head}-{execution.epoch}-{execution.attempt}-{execution.subtask.index}"

    @property
    def checkpointing(self) -> bool:
        return self._around.checkpointing

    def keyed_state(
        self, descriptor: StateDescriptor, namespace: TypeInformation | None = None
    ) -> State:
        return self._backend.keyed_state(descriptor, namespace)

    def entries(self, state: str) -> Iterator[tuple[int, object, object]]:
        return self._backend.scan(state)

    def timers(self, name: str, namespace: TypeInformation | None = None) -> Timers:
        return self._backend.timers(name, namespace, self.wake_at_wall)

    def wake_at_wall(self, wall_ms: int) -> None:
        now_ms = self._around.clock.monotonic_ms()
        at_ms = now_ms + max(0, wall_ms - self._around.clock.wall_ms())
        under_way = self._alarm_ms > now_ms + 1
        if not under_way or at_ms < self._alarm_ms:
            self._alarm_ms = at_ms
            self._around.wake_at(at_ms)

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumns:
        return self._backend.keyed_columns(key_type)

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        return self._backend.column_state(descriptor)

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedPanes:
        return self._backend.keyed_panes(key_type)

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[Any]:
        return self._backend.operator_state(descriptor)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._backend.broadcast_state(descriptor)

    def processing_time(self) -> int:
        return self._around.clock.wall_ms()

    def monotonic_ms(self) -> int:
        return self._around.clock.monotonic_ms()

    def wake_at(self, monotonic_ms: int) -> None:
        self._around.wake_at(monotonic_ms)

    def takes_input(self) -> bool:
        return self._around.takes_input()

    def skipped(self, rows: int) -> None:
        self._around.skipped(rows)

    def remark(self, warning: str, about: str) -> None:
        self.remarks.append(Remark(warning, self.name, about))

    def run_blocking(self, call: Callable[[], object]) -> Awaitable[object]:
        return self._around.blocking.run(call)

    def threads(self, limit: int) -> Threads:
        return self._around.threads(limit)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._around.start(coroutine)

    def wake(self) -> None:
        self._around.wake()

    def to_coordinator(self, event: OperatorEvent) -> None:
        self._around.to_coordinator(self.operator, event)


class SlotRuntimeContext:
    """The `RuntimeContext` of one operator's user function."""

    def __init__(self, context: SlotOperatorContext, surroundings: SubtaskSurroundings) -> None:
        self._context = context
        self._around = surroundings

    def get_job_id(self) -> str:
        return self._around.job

    def get_task_name(self) -> str:
        return self._around.vertex.name

    def get_task_name_with_subtasks(self) -> str:
        return self._around.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._around.vertex.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._around.vertex.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._around.execution.subtask.index

    def get_attempt_number(self) -> int:
        return self._around.execution.attempt

    def get_job_parameters(self) -> Mapping[str, str]:
        return self._around.parameters

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        return self._around.parameters.get(key, default_value)

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
        return self._context.operator_state(state_descriptor)

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[K, V]
    ) -> BroadcastState[K, V]:
        return self._context.broadcast_state(state_descriptor)

    def _state(self, given: object, kind: type[StateDescriptor], call: str) -> Any:
        if not isinstance(given, kind):
            raise UserError(
                f"{call} takes {with_article(kind)}, not {given!r}",
                where=f"operator '{self._context.name}'",
                remedy="Describe the state by its name and type, and ask by the call of its kind.",
            )
        if not self._context.keyed:
            raise UserError(
                f"{call} asks for keyed state on a stream without keys",
                where=f"operator '{self._context.name}', state '{given.name}'",
                remedy="Call key_by before the step; or keep state of the subtask with "
                "get_operator_list_state.",
            )
        return self._context.keyed_state(given)
