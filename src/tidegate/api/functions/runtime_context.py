"""User functions, what they are opened with, and the state that is described by functions.

They stand in one module because they know each other: a context gives state by descriptor, some
descriptors have a function, and a function is opened with a context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

from tidegate.api.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    declared,
)
from tidegate.errors import Guiding, UserError, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import TypeVar

    from tidegate.api.operator import OperatorStates, SnapshotContext, SubtaskInfo
    from tidegate.api.state.descriptors import OperatorStateDescriptor, StateTtlConfig
    from tidegate.api.state.states import (
        AggregatingState,
        BroadcastState,
        ListState,
        MapState,
        OperatorListState,
        ReducingState,
        ValueState,
    )
    from tidegate.metrics import MetricGroup
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.hints import TypeHint

    # A checker takes a descriptor without arguments for one of any values.
    Held = TypeVar("Held", default=Any)
    In = TypeVar("In", default=Any)
    Out = TypeVar("Out", default=Any)
else:
    from typing import TypeVar

    Held, In, Out = map(TypeVar, ("Held", "In", "Out"))

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
Acc = TypeVar("Acc")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class KeyedStateStore(ABC):
    """Keyed state by descriptor."""

    @abstractmethod
    def _keyed_state(self, given: StateDescriptor, kind: type[StateDescriptor], call: str) -> Any:
        """State of the current key. kind: descriptors that the call takes."""

    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Value state of the current key."""
        return self._keyed_state(state_descriptor, ValueStateDescriptor, "get_state")

    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """List state of the current key."""
        return self._keyed_state(state_descriptor, ListStateDescriptor, "get_list_state")

    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Map state of the current key."""
        return self._keyed_state(state_descriptor, MapStateDescriptor, "get_map_state")

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Reducing state of the current key."""
        return self._keyed_state(state_descriptor, ReducingStateDescriptor, "get_reducing_state")

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[A, R]
    ) -> AggregatingState[A, R]:
        """Aggregating state of the current key."""
        kind, call = AggregatingStateDescriptor, "get_aggregating_state"
        return self._keyed_state(state_descriptor, kind, call)


_COUNTER: Final = "count with get_metrics_group().counter(name), or emit to a side output"
_INSTEAD: Final = {
    "add_accumulator": _COUNTER,
    "get_accumulator": _COUNTER,
    "get_int_counter": _COUNTER,
    "get_long_counter": _COUNTER,
    "get_double_counter": _COUNTER,
    "get_histogram": _COUNTER,
    "get_distributed_cache": "read the file in open",
}
"""Calls of Flink that are not here."""


class RuntimeContext(KeyedStateStore, Guiding):
    """Place of a function in the job, and its state. Passed to ``open``."""

    _instead = _INSTEAD

    def __init__(self, info: SubtaskInfo, state: OperatorStates, metrics: MetricGroup) -> None:
        self._info = info
        self._state = state
        self._metrics = metrics

    def get_job_id(self) -> str:
        """Id of the job, 32 hexadecimal digits."""
        return self._info.job

    def get_task_name(self) -> str:
        """Name of the function's vertex."""
        return self._info.task

    def get_task_name_with_subtasks(self) -> str:
        """Name of the vertex with index and parallelism: ``name (2/4)``, counted from 1."""
        return self._info.numbered_task

    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism of the operator."""
        return self._info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups of the operator."""
        return self._info.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Index of this subtask, from 0."""
        return self._info.subtask

    def get_attempt_number(self) -> int:
        """Number of earlier deployments of the subtask."""
        return self._info.attempt

    def get_job_parameters(self) -> Mapping[str, str]:
        """Parameters set with ``pipeline.global-job-parameters``."""
        return self._info.parameters

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        """One job parameter, or the default."""
        return self._info.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Metrics of this operator."""
        return self._metrics

    def get_operator_list_state(
        self, state_descriptor: OperatorStateDescriptor[T]
    ) -> OperatorListState[T]:
        """List state of the subtask; split on restore or given whole to all, as described."""
        return self._state.operator_state(state_descriptor)

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[K, V]
    ) -> BroadcastState[K, V]:
        """A map that is the same in every subtask; on restore each gets a copy."""
        return self._state.broadcast_state(state_descriptor)

    def _keyed_state(self, given: object, kind: type[StateDescriptor], call: str) -> Any:
        if not isinstance(given, kind):
            raise UserError(
                f"{call} takes {with_article(kind)}, not {given!r}",
                where=f"operator '{self._info.name}'",
                remedy="Describe the state by its name and type, and ask by the call of its kind.",
            )
        if not self._info.keyed:
            raise UserError(
                f"{call} asks for keyed state on a stream without keys",
                where=f"operator '{self._info.name}', state '{given.name}'",
                remedy="Call key_by before the step; or keep state of the subtask with "
                "get_operator_list_state.",
            )
        return self._state.keyed_state(given)


class Function:
    """Base of all user functions."""

    def open(self, runtime_context: RuntimeContext, /) -> None:
        """Called once before the first record."""

    def close(self) -> None:
        """Called once at the end, also after a failure or a cancel."""


class CheckpointedFunction(ABC):
    """A function with operator state; mixed into any ``Function``.

    ``open`` comes after restore, so state is asked for there
    (``RuntimeContext.get_operator_list_state``); ``snapshot_state`` brings it up to date.
    """

    @abstractmethod
    def snapshot_state(self, context: SnapshotContext, /) -> None:
        """Called for each checkpoint: bring state up to date."""


class CheckpointListener:
    """A function that is told of checkpoints; mixed into any ``Function``."""

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint is durable. Ids ascend, each comes at most once."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint was aborted."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values of one type into one."""

    @abstractmethod
    def reduce(self, value1: T, value2: T, /) -> T:
        """Combines values. value1: the result so far. value2: the new value."""


class AggregateFunction(Function, Generic[In_contra, Acc, Out_co]):
    """Aggregates values in an accumulator."""

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """A new, empty accumulator."""

    @abstractmethod
    def add(self, value: In_contra, accumulator: Acc, /) -> Acc:
        """The accumulator with the value added."""

    @abstractmethod
    def get_result(self, accumulator: Acc, /) -> Out_co:
        """The result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Acc, acc_b: Acc, /) -> Acc:
        """Combines two accumulators into one."""


@dataclass(slots=True)
class ReducingStateDescriptor(StateDescriptor, Generic[Held]):
    """One reduced value a key: ``ReducingStateDescriptor(name, reduce_function, type_info)``.

    reduce_function: a ``ReduceFunction`` or a function of two values.
    """

    reduce_function: ReduceFunction[Held] | Callable[[Held, Held], Held] | None = None

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction[Held] | Callable[[Held, Held], Held],
        type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(type_info, name), ttl=ttl)
        self.reduce_function = reduce_function

    def get_reduce_function(self) -> ReduceFunction[Held] | Callable[[Held, Held], Held] | None:
        """The reduce function of the state."""
        return self.reduce_function


@dataclass(slots=True)
class AggregatingStateDescriptor(StateDescriptor, Generic[In, Out]):
    """One accumulator a key: ``AggregatingStateDescriptor(name, agg_function, state_type_info)``.

    state_type_info: of the accumulator.
    """

    aggregate_function: AggregateFunction[In, Any, Out] | None = None

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction[In, Any, Out],
        state_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(state_type_info, name), ttl=ttl)
        self.aggregate_function = agg_function

    def get_agg_function(self) -> AggregateFunction[In, Any, Out] | None:
        """The aggregate function of the state."""
        return self.aggregate_function
