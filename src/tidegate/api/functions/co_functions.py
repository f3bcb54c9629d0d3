"""User functions of two streams: connected, with a broadcast one, joined. Names are PyFlink's."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidegate.api.functions.row_functions import KeyedProcessFunction, ProcessFunction, TimeContext
from tidegate.api.functions.runtime_context import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.api.output_tag import OutputTag
    from tidegate.api.state.descriptors import MapStateDescriptor
    from tidegate.api.state.states import BroadcastState, ReadOnlyBroadcastState

Key = TypeVar("Key")
K = TypeVar("K")
V = TypeVar("V")
In1 = TypeVar("In1", contravariant=True)
In2 = TypeVar("In2", contravariant=True)
Out = TypeVar("Out", covariant=True)


class CoMapFunction(Function, Generic[In1, In2, Out]):
    """One value for each, of either stream."""

    @abstractmethod
    def map1(self, value: In1, /) -> Out:
        """The value for a value of the first stream."""

    @abstractmethod
    def map2(self, value: In2, /) -> Out:
        """The value for a value of the second stream."""


class CoFlatMapFunction(Function, Generic[In1, In2, Out]):
    """Any number of values for each, of either stream."""

    @abstractmethod
    def flat_map1(self, value: In1, /) -> Iterable[Out] | None:
        """The values for a value of the first stream."""

    @abstractmethod
    def flat_map2(self, value: In2, /) -> Iterable[Out] | None:
        """The values for a value of the second stream."""


class CoProcessFunction(Function, Generic[In1, In2, Out]):
    """A ``ProcessFunction`` of two streams. Each call yields results as there."""

    class Context(ProcessFunction.Context, Protocol):
        """Facts about the current record."""

    @abstractmethod
    def process_element1(
        self, value: In1, ctx: CoProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: In2, ctx: CoProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value of the second stream."""


class KeyedCoProcessFunction(Function, Generic[In1, In2, Out]):
    """A ``KeyedProcessFunction`` of two streams, which share the state and timers of a key."""

    class Context(KeyedProcessFunction.Context, Protocol):
        """Facts about the current record."""

    class OnTimerContext(KeyedProcessFunction.OnTimerContext, Protocol):
        """Facts about a timer that is due; ``timestamp`` is its time."""

    @abstractmethod
    def process_element1(
        self, value: In1, ctx: KeyedCoProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: In2, ctx: KeyedCoProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value of the second stream."""

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Called for a timer that is due; state is that of its key.

        As in ``KeyedProcessFunction``.
        """


class WritingContext(TimeContext, Protocol):
    """Facts about a broadcast record."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[K, V]
    ) -> BroadcastState[K, V]:
        """The map of that name. Raises UserError for one that ``broadcast`` did not name."""
        ...


class ReadingContext(TimeContext, Protocol):
    """Facts about a record of the stream that is not broadcast."""

    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[K, V]
    ) -> ReadOnlyBroadcastState[K, V]:
        """The map of that name, for reading: writes raise UserError.

        Raises UserError for one that ``broadcast`` did not name.
        """
        ...


class BaseBroadcastProcessFunction(Function):
    """Base of functions with a broadcast stream."""

    BaseContext = TimeContext
    Context = WritingContext
    ReadOnlyContext = ReadingContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[In1, In2, Out]):
    """Processes a stream without keys, and a broadcast stream that all subtasks receive alike.

    ``process_broadcast_element`` writes broadcast state, and must do the same in every subtask.
    """

    class Context(WritingContext, Protocol):
        """Facts about a broadcast record."""

    class ReadOnlyContext(ReadingContext, Protocol):
        """Facts about a record of the stream that is not broadcast."""

    @abstractmethod
    def process_element(
        self, value: In1, ctx: BroadcastProcessFunction.ReadOnlyContext, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value."""

    @abstractmethod
    def process_broadcast_element(
        self, value: In2, ctx: BroadcastProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Processes a broadcast value; every subtask emits the results."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[Key, In1, In2, Out]):
    """Processes a keyed stream, and a broadcast stream that all subtasks receive alike.

    State and timers of keys belong to the keyed stream: a broadcast record has no key.
    """

    class Context(WritingContext, Protocol):
        """Facts about a broadcast record."""

    class ReadOnlyContext(ReadingContext, KeyedProcessFunction.Context, Protocol):
        """Facts about a record of the keyed stream."""

    class OnTimerContext(ReadOnlyContext, KeyedProcessFunction.OnTimerContext, Protocol):
        """Facts about a timer that is due; ``timestamp`` is its time."""

    @abstractmethod
    def process_element(
        self, value: In1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a value."""

    @abstractmethod
    def process_broadcast_element(
        self, value: In2, ctx: KeyedBroadcastProcessFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Processes a broadcast value; every subtask emits the results."""

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Called for a timer that is due; state is that of its key.

        As in ``KeyedProcessFunction``.
        """


class ProcessJoinFunction(Function, Generic[In1, In2, Out]):
    """Any number of values for each pair of an interval join."""

    class Context(Protocol):
        """The event times of the current pair, milliseconds."""

        def get_left_timestamp(self) -> int:
            """Event time of the left value."""
            ...

        def get_right_timestamp(self) -> int:
            """Event time of the right value."""
            ...

        def get_timestamp(self) -> int:
            """The greater of both, which is the event time of the results."""
            ...

    @abstractmethod
    def process_element(
        self, left: In1, right: In2, ctx: ProcessJoinFunction.Context, /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results for a pair."""


class JoinFunction(Function, Generic[In1, In2, Out]):
    """One value for each pair in a window."""

    @abstractmethod
    def join(self, first: In1, second: In2, /) -> Out:
        """The value for a pair of values with one key."""


class CoGroupFunction(Function, Generic[In1, In2, Out]):
    """Any number of values for what a window holds of two streams."""

    @abstractmethod
    def co_group(
        self, first: Iterable[In1], second: Iterable[In2], /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results. One side may be empty, not both."""
