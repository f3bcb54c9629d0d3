"""Counters, gauges and distributions as values in a registry that is passed in.

Names are Flink's where it has one. Nothing here is read or written per row, except what a user
function asks for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Counter:
    """A number that is counted up and down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Count n up."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Count n down."""
        self._count -= n

    def get_count(self) -> int:
        """The number."""
        return self._count


class Distribution:
    """How values are spread: their number, sum, least and greatest."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.greatest = 0

    def update(self, value: int) -> None:
        """Take in a value."""
        self.least = value if self.count == 0 else min(self.least, value)
        self.greatest = value if self.count == 0 else max(self.greatest, value)
        self.count += 1
        self.total += value


class MetricRegistry:
    """All metrics of one subtask, by full name."""

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[], float]] = {}

    def group(self, *names: str) -> MetricGroup:
        """The group of that path."""
        return MetricGroup(self, names)

    def register(self, name: str, read: Callable[[], float]) -> None:
        """Add a metric; a second one of the same name takes its place."""
        self._readers[name] = read

    def read(self) -> Mapping[str, float]:
        """The values of all metrics now."""
        return {name: read() for name, read in self._readers.items()}


class MetricGroup:
    """A place in the tree of metrics; PyFlink's ``MetricGroup``."""

    def __init__(self, registry: MetricRegistry, path: tuple[str, ...]) -> None:
        self._registry = registry
        self._path = path

    def add_group(self, name: str) -> MetricGroup:
        """The group below this one."""
        return MetricGroup(self._registry, (*self._path, name))

    def counter(self, name: str) -> Counter:
        """A new counter."""
        counter = Counter()
        self._registry.register(self._full(name), counter.get_count)
        return counter

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """A value that is asked for when it is read."""
        self._registry.register(self._full(name), read)

    def distribution(self, name: str) -> Distribution:
        """A new distribution; its count, sum, least and greatest are metrics of their own."""
        made = Distribution()
        self._registry.register(self._full(f"{name}.count"), lambda: made.count)
        self._registry.register(self._full(f"{name}.sum"), lambda: made.total)
        self._registry.register(self._full(f"{name}.min"), lambda: made.least)
        self._registry.register(self._full(f"{name}.max"), lambda: made.greatest)
        return made

    def _full(self, name: str) -> str:
        return ".".join((*self._path, name))
