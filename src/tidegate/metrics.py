"""Counters, gauges, meters and distributions as values in a registry that is passed in.

Names are Flink's where it has one. Nothing here is read or written per row, except what a user
function asks for itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_SAMPLES: Final = 60
"""How many counts a meter keeps to tell its rate."""


class Counter:
    """A number that is counted up and down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Adds n to the counter."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtracts n from the counter."""
        self._count -= n

    def get_count(self) -> int:
        """Current value of the counter."""
        return self._count


class Meter:
    """Counts events, and tells how many there are a second.

    The rate is that of the last ``span_s`` seconds, as far as it was asked for in them, else since
    it was last asked for. now_ms: a clock that never goes back.
    """

    __slots__ = ("_count", "_now_ms", "_seen", "_span_ms")

    def __init__(self, now_ms: Callable[[], int], span_s: int) -> None:
        self._now_ms = now_ms
        self._span_ms = span_s * 1_000
        self._count = 0
        self._seen = deque([(now_ms(), 0)])

    def mark_event(self, value: int = 1) -> None:
        """Records that n events happened."""
        self._count += value

    def get_count(self) -> int:
        """Number of events so far."""
        return self._count

    def get_rate(self) -> float:
        """Mean number of events per second."""
        now_ms, seen = self._now_ms(), self._seen
        while len(seen) > 1 and seen[1][0] <= now_ms - self._span_ms:
            seen.popleft()
        since_ms, count = seen[0]
        if now_ms - seen[-1][0] >= self._span_ms // _SAMPLES:
            seen.append((now_ms, self._count))
        return (self._count - count) * 1_000 / max(now_ms - since_ms, 1)


class Distribution:
    """How values are spread: their number, sum, least and greatest."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.greatest = 0

    def update(self, value: int) -> None:
        """Adds a value to the distribution."""
        self.least = value if self.count == 0 else min(self.least, value)
        self.greatest = value if self.count == 0 else max(self.greatest, value)
        self.count += 1
        self.total += value


class MetricRegistry:
    """All metrics of one subtask, by full name. now_ms: a clock that never goes back."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._readers: dict[str, Callable[[], float]] = {}
        self._counters: dict[str, Counter] = {}

    def group(self, *names: str) -> MetricGroup:
        return MetricGroup(self, names)

    def register(self, name: str, read: Callable[[], float]) -> None:
        self._readers[name] = read

    def count(self, name: str) -> Counter:
        counter = self._counters[name] = Counter()
        self.register(name, counter.get_count)
        return counter

    def counted(self, name: str) -> int:
        counter = self._counters.get(name)
        return 0 if counter is None else counter.get_count()

    def read(self) -> Mapping[str, float]:
        return {name: read() for name, read in self._readers.items()}


class MetricGroup:
    """A place in the tree of metrics; PyFlink's ``MetricGroup``."""

    def __init__(self, registry: MetricRegistry, path: tuple[str, ...]) -> None:
        self._registry = registry
        self._path = path

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group below this one; with ``extra``, the group of a key and its value."""
        below = (name,) if extra is None else (name, extra)
        return MetricGroup(self._registry, (*self._path, *below))

    def counter(self, name: str) -> Counter:
        """Adds a counter to this group."""
        return self._registry.count(self._full(name))

    def counted(self, name: str) -> int:
        """Value of a counter of this group; 0 if there is none."""
        return self._registry.counted(self._full(name))

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Adds a gauge, whose function is called whenever metrics are read."""
        self._registry.register(self._full(name), read)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Adds a meter; its count becomes a metric as well."""
        made = Meter(self._registry.now_ms, time_span_in_seconds)
        self._registry.register(self._full(name), made.get_rate)
        self._registry.register(self._full(f"{name}.count"), made.get_count)
        return made

    def distribution(self, name: str) -> Distribution:
        """Adds a distribution; its count, sum, minimum and maximum become metrics."""
        made = Distribution()
        self._registry.register(self._full(f"{name}.count"), lambda: made.count)
        self._registry.register(self._full(f"{name}.sum"), lambda: made.total)
        self._registry.register(self._full(f"{name}.min"), lambda: made.least)
        self._registry.register(self._full(f"{name}.max"), lambda: made.greatest)
        return made

    def _full(self, name: str) -> str:
        return ".".join((*self._path, name))
