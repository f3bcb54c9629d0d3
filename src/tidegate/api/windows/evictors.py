"""Evictors remove records from a window before or after its function. Names are Flink's (Java)."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidegate.config.spans import millis_of
from tidegate.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.windows.window import Window
    from tidegate.config.spans import Span

T = TypeVar("T")
W = TypeVar("W", bound="Window")


class EvictorContext(Protocol):
    """Facts that an evictor may ask for."""

    def get_current_processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...

    def get_current_watermark(self) -> int:
        """Current event time of the operator, milliseconds."""
        ...


@dataclass(slots=True)
class TimestampedValue(Generic[T]):
    """A record of a window. timestamp: its event time, milliseconds; None if it has none."""

    value: T
    timestamp: int | None


class Evictor(ABC, Generic[T, W]):
    """Removes records of a window, by changing the list it is given. Subclassable by users."""

    def evict_before(
        self, elements: list[TimestampedValue[T]], window: W, context: EvictorContext
    ) -> None:
        """Removes records before the window function runs."""

    def evict_after(
        self, elements: list[TimestampedValue[T]], window: W, context: EvictorContext
    ) -> None:
        """Removes records after the window function has run."""


class _Evicts(Evictor[Any, Any]):
    do_evict_after: bool

    def evict_before(
        self, elements: list[TimestampedValue[Any]], window: Any, context: EvictorContext
    ) -> None:
        if not self.do_evict_after:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue[Any]], window: Any, context: EvictorContext
    ) -> None:
        if self.do_evict_after:
            self._evict(elements)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class CountEvictor(_Evicts):
    """Keeps the last ``max_count`` records of a window."""

    max_count: int
    do_evict_after: bool = False

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """An evictor that keeps this many records. Raises GraphError below 1."""
        if max_count < 1:
            raise GraphError(
                f"A window cannot keep {max_count} records",
                where="CountEvictor",
                remedy="Give 1 or more.",
            )
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        del elements[: -self.max_count]


@dataclass(frozen=True)
class TimeEvictor(_Evicts):
    """Keeps the records within a span before the newest one, in milliseconds."""

    window_size: int
    do_evict_after: bool = False

    @staticmethod
    def of(window_size: Span, do_evict_after: bool = False) -> TimeEvictor:
        """An evictor that keeps records of this span before the newest one."""
        return TimeEvictor(millis_of(window_size, where="TimeEvictor"), do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        stamps = [each.timestamp for each in elements if each.timestamp is not None]
        if stamps:
            least = max(stamps) - self.window_size
            elements[:] = [
                each for each in elements if each.timestamp is None or each.timestamp > least
            ]


@dataclass(frozen=True)
class DeltaEvictor(_Evicts):
    """Keeps the records whose distance from the newest one is below a threshold."""

    threshold: float
    delta: Callable[[Any, Any], float]
    do_evict_after: bool = False

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor:
        """An evictor. delta_function: distance of an old record from the newest one."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements:
            newest = elements[-1].value
            elements[:] = [
                each for each in elements if self.delta(each.value, newest) < self.threshold
            ]
