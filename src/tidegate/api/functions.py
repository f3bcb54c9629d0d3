"""User functions: what a job author implements or hands over as a plain function or lambda.

Names and meaning are PyFlink's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    import pyarrow as pa

    from tidegate.api.operator import SnapshotContext
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        BroadcastState,
        ColumnState,
        ColumnStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        OperatorListState,
        OperatorStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )
    from tidegate.metrics import MetricGroup
    from tidegate.model.ids import CheckpointId

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
Acc = TypeVar("Acc")
Key = TypeVar("Key", covariant=True)


class KeyedStateStore(Protocol):
    """Keyed state by descriptor."""

    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Value state of the current key."""
        ...

    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """List state of the current key."""
        ...

    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Map state of the current key."""
        ...

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Reducing state of the current key."""
        ...

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[A, R]
    ) -> AggregatingState[A, R]:
        """Aggregating state of the current key."""
        ...


class RuntimeContext(KeyedStateStore, Protocol):
    """Place of a function in the job, and its state. Passed to ``open``."""

    def get_job_id(self) -> str:
        """Id of the job, 32 hexadecimal digits."""
        ...

    def get_task_name(self) -> str:
        """Name of the function's vertex."""
        ...

    def get_task_name_with_subtasks(self) -> str:
        """Name of the vertex with index and parallelism: ``name (2/4)``, counted from 1."""
        ...

    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism of the operator."""
        ...

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups of the operator."""
        ...

    def get_index_of_this_subtask(self) -> int:
        """Index of this subtask, from 0."""
        ...

    def get_attempt_number(self) -> int:
        """Number of earlier deployments of the subtask."""
        ...

    def get_job_parameters(self) -> Mapping[str, str]:
        """Parameters set with ``pipeline.global-job-parameters``."""
        ...

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        """One job parameter, or the default."""
        ...

    def get_metrics_group(self) -> MetricGroup:
        """Metrics of this operator."""
        ...

    def get_operator_list_state(
        self, state_descriptor: OperatorStateDescriptor[T]
    ) -> OperatorListState[T]:
        """List state of the subtask; split on restore or given whole to all, as described."""
        ...

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[K, V]
    ) -> BroadcastState[K, V]:
        """A map that is the same in every subtask; on restore each gets a copy."""
        ...


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


class MapFunction(Function, Generic[In, Out]):
    """Makes one value from each value."""

    @abstractmethod
    def map(self, value: In, /) -> Out:
        """The value for a value."""


class FlatMapFunction(Function, Generic[In, Out]):
    """Makes any number of values from each value."""

    @abstractmethod
    def flat_map(self, value: In, /) -> Iterable[Out] | None:
        """The values for a value."""


class FilterFunction(Function, Generic[In]):
    """Keeps the values for which it returns True."""

    @abstractmethod
    def filter(self, value: In, /) -> bool:
        """True to keep the value."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values of one type into one."""

    @abstractmethod
    def reduce(self, value1: T, value2: T, /) -> T:
        """Combines values. value1: the result so far. value2: the new value."""


class AggregateFunction(Function, Generic[In, Acc, Out]):
    """Aggregates values in an accumulator."""

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """A new, empty accumulator."""

    @abstractmethod
    def add(self, value: In, accumulator: Acc, /) -> Acc:
        """The accumulator with the value added."""

    @abstractmethod
    def get_result(self, accumulator: Acc, /) -> Out:
        """The result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Acc, acc_b: Acc, /) -> Acc:
        """Combines two accumulators into one."""


class KeySelector(Function, Generic[In, Key]):
    """Extracts the key of a value."""

    @abstractmethod
    def get_key(self, value: In, /) -> Key:
        """Key of a value: deterministic, of a type with a stable hash."""


class Partitioner(Function):
    """Chooses a target subtask for a key."""

    @abstractmethod
    def partition(self, key: object, num_partitions: int, /) -> int:
        """Index of the target, in [0, num_partitions)."""


class TimeDomain(Enum):
    """Time that a timer follows; names are Flink's."""

    EVENT_TIME = "EVENT_TIME"
    PROCESSING_TIME = "PROCESSING_TIME"


class TimerService(Protocol):
    """Time and, on keyed streams, timers of the current key.

    There is one timer for each key, domain and time, however often it is registered.
    """

    def current_processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def current_watermark(self) -> int:
        """Current event time of the operator; ``MIN_TIMESTAMP_MS`` before the first watermark."""
        ...

    def register_event_time_timer(self, timestamp: int) -> None:
        """Registers a call of ``on_timer`` for when the watermark reaches a time, milliseconds.

        A time that it has reached already counts at its next advance. Raises UserError where the
        stream has no keys.
        """
        ...

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Registers a call of ``on_timer`` for a time of the wall clock, milliseconds since 1970.

        Raises UserError where the stream has no keys.
        """
        ...

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Deletes a timer of the current key; without effect if there is none."""
        ...

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Deletes a timer of the current key; without effect if there is none."""
        ...


class ProcessFunction(Function, Generic[In, Out]):
    """Makes any number of values from each value, with time and side outputs."""

    class Context(Protocol):
        """Facts about the current record."""

        def timestamp(self) -> int | None:
            """Event time of the record, milliseconds; None if it has none."""
            ...

        def timer_service(self) -> TimerService: ...

    @abstractmethod
    def process_element(
        self, value: In, ctx: ProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value.

        A pair ``(tag, result)`` with an ``OutputTag`` goes to that side output.
        """


class KeyedProcessFunction(Function, Generic[In, Out]):
    """A ``ProcessFunction`` on a keyed stream: with state and timers of the current key."""

    class Context(Protocol):
        """Facts about the current record."""

        def get_current_key(self) -> object: ...

        def timestamp(self) -> int | None:
            """Event time of the record, milliseconds; None if it has none."""
            ...

        def timer_service(self) -> TimerService: ...

    class OnTimerContext(Context, Protocol):
        """Facts about a timer that is due; ``timestamp`` is its time."""

        def time_domain(self) -> TimeDomain:
            """Domain of the timer: event time or processing time."""
            ...

    @abstractmethod
    def process_element(
        self, value: In, ctx: KeyedProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value.

        A pair ``(tag, result)`` with an ``OutputTag`` goes to that side output.
        """

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Called for a timer that is due; state is that of its key. Yields as ``process_element``.

        Results of an event-time timer have its time, those of a processing-time timer none.
        """


class BatchContext(Protocol):
    """State of the keys in an Arrow batch, as columns."""

    @property
    def key_index(self) -> np.ndarray:
        """Row of each record's key in this subtask's columns: int64, shape (rows,)."""
        ...

    @property
    def keys_total(self) -> int:
        """Number of keys this subtask has seen; rows are in [0, keys_total)."""
        ...

    @property
    def timestamps_ms(self) -> np.ndarray | None:
        """Event times of the records, or None."""
        ...

    @property
    def watermark_ms(self) -> int:
        """Current event time of the operator; ``MIN_TIMESTAMP_MS`` before the first watermark."""
        ...

    def column_state(self, descriptor: ColumnStateDescriptor) -> ColumnState:
        """The column of that name."""
        ...


class KeyedBatchFunction(Function):
    """Works on whole Arrow batches of a keyed stream, with columnar state."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> object:
        """Output for a batch: one, several (also one by one, by ``yield``), or None for nothing.

        Each a RecordBatch, a Table or a data frame, of the declared schema.
        """


class SinkFunction(Function, Generic[In]):
    """Writes records somewhere, one by one: at-least-once, so that writing twice must do no harm.

    A function that gathers records mixes in ``CheckpointedFunction`` and writes them out in
    ``snapshot_state``; what is not written there is lost with the process.

    >>> class Insert(SinkFunction):
    ...     def open(self, runtime_context):
    ...         self.table = connect()
    ...
    ...     def invoke(self, value, context):
    ...         self.table.upsert(value)
    ...
    ...     def close(self):
    ...         self.table.close()
    """

    class Context(Protocol):
        """Facts about the current record."""

        def timestamp(self) -> int | None:
            """Event time of the record, milliseconds; None if it has none."""
            ...

        def current_processing_time(self) -> int:
            """Wall clock, milliseconds since 1970."""
            ...

        def current_watermark(self) -> int:
            """Current event time of the sink; ``MIN_TIMESTAMP_MS`` before the first watermark."""
            ...

    @abstractmethod
    def invoke(self, value: In, context: SinkFunction.Context, /) -> None:
        """Writes one record to the outside."""

    def finish(self) -> None:
        """Writes out everything that is left, since no more records come."""
