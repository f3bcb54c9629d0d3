"""User functions: what a job author implements or hands over as a plain function or lambda.

Names and meaning are PyFlink's.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidegate.api.functions.runtime_context import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import pyarrow as pa

    from tidegate.api.output_tag import OutputTag
    from tidegate.api.state.states import ColumnState, ColumnStateDescriptor

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
Acc = TypeVar("Acc")
Key = TypeVar("Key", covariant=True)


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

        A time that it has reached already counts at its next advance. Raises UserError if the
        stream has no keys.
        """
        ...

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Registers a call of ``on_timer`` for a time of the wall clock, milliseconds since 1970.

        Raises UserError if the stream has no keys.
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

    class Context(ProcessFunction.Context, Protocol):
        """Facts about the current record."""

        def get_current_key(self) -> object: ...

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


class TimeContext(Protocol):
    """Time, for the current record."""

    def timestamp(self) -> int | None:
        """Event time of the record, milliseconds; None if it has none."""
        ...

    def current_processing_time(self) -> int: ...

    def current_watermark(self) -> int:
        """Current event time of the operator; ``MIN_TIMESTAMP_MS`` before the first watermark."""
        ...


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

    class Context(TimeContext, Protocol):
        """Facts about the current record."""

    @abstractmethod
    def invoke(self, value: In, context: SinkFunction.Context, /) -> None:
        """Writes one record to the outside."""

    def finish(self) -> None:
        """Writes out everything that is left, since no more records come."""
