"""Window functions, called each time a window fires. Names and meaning are PyFlink's."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidegate.api.functions.runtime_context import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.api.functions.runtime_context import KeyedStateStore
    from tidegate.api.output_tag import OutputTag

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
Key = TypeVar("Key", contravariant=True)
W = TypeVar("W", contravariant=True)
WindowOf = TypeVar("WindowOf", covariant=True)


class WindowFunction(Function, Generic[In, Out, Key, W]):
    """Makes any number of results from a key's window."""

    @abstractmethod
    def apply(
        self, key: Key, window: W, inputs: Iterable[In], /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results. inputs: the window's records."""


class AllWindowFunction(Function, Generic[In, Out, W]):
    """Makes any number of results from a window of the whole stream."""

    @abstractmethod
    def apply(
        self, window: W, inputs: Iterable[In], /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results. inputs: the window's records."""


class ProcessAllWindowFunction(Function, Generic[In, Out, W]):
    """Makes any number of results from a window of the whole stream, with time and state."""

    class Context(Protocol[WindowOf]):
        """Facts about the window that fires or ends."""

        def window(self) -> WindowOf: ...

        def current_processing_time(self) -> int: ...

        def current_watermark(self) -> int:
            """Current event time of the operator, milliseconds."""
            ...

        def window_state(self) -> KeyedStateStore:
            """State of this key and window; must be cleared in ``clear``.

            Raises UserError if windows merge.
            """
            ...

        def global_state(self) -> KeyedStateStore: ...

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[In], /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results. elements: the window's records."""

    def clear(self, context: ProcessAllWindowFunction.Context[W], /) -> None:
        """Clears ``window_state``, since the window ends."""


class ProcessWindowFunction(Function, Generic[In, Out, Key, W]):
    """Makes any number of results from a key's window, with time and state."""

    class Context(ProcessAllWindowFunction.Context[WindowOf], Protocol[WindowOf]):
        """Facts about the window that fires or ends."""

    @abstractmethod
    def process(
        self, key: Key, context: ProcessWindowFunction.Context[W], elements: Iterable[In], /
    ) -> Iterable[Out | tuple[OutputTag[Any], Any]] | None:
        """Yield (or return an iterable of) the results. elements: the window's records."""

    def clear(self, context: ProcessWindowFunction.Context[W], /) -> None:
        """Clears ``window_state``, since the window ends."""
