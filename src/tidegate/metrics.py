"""Counters, gauges, meters and histograms in a registry, and the values that are read from it.

A slot has one registry an operator, and one for the subtask as a whole. Functions register metrics
in a ``MetricGroup``, under a limit; the engine registers what it counts anyway, and nothing of that
is touched per row. Values are read with each heartbeat, on another thread than the slot's loop.

A user's gauge is code that may raise, or never return. It is called on a thread of its own, and a
gauge that does either is not called again. Numbers that functions give become Python's own at once,
so that anything else fails the call that gives it, not the thread that reads.
"""

from __future__ import annotations

import contextlib
import math
import operator
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidegate.errors import GraphError
from tidegate.model.metrics import QUANTILES, Metered, MetricKey, MetricKind, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tidegate.model.ids import OperatorId
    from tidegate.model.metrics import Group, MetricValue

M = TypeVar("M", bound="Metric")

LIMIT: Final = 1_000
"""Metrics that the functions of an operator may have in one subtask, unless told otherwise."""

RATE_SPAN_MS: Final = 5_000
"""Rates of the engine look back so far, as busy time does in Flink."""

_SAMPLES: Final = 60
"""How many counts a meter keeps to tell its rate."""

_WINDOW: Final = 512
"""Values of which a histogram tells quantiles: the latest ones."""

_TEXT_MAX: Final = 200
_GAUGES_WAIT_S: Final = 0.02
_GAUGE_SLOW_MS: Final = 1_000


def _number(given: object) -> Any:
    """A number of NumPy or another library as an int or a float of Python.

    Raises TypeError for what is no number, texts among them.
    """
    if not isinstance(given, str | bytes | bytearray):
        for convert in (operator.index, float):
            with contextlib.suppress(TypeError):
                return convert(cast("Any", given))
    raise TypeError(f"a metric takes numbers, not {given!r:.100}")


class Counter:
    """A number that is counted up and down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Adds n to the counter. Raises TypeError for what is no number."""
        self._count += n if type(n) is int else _number(n)

    def dec(self, n: int = 1) -> None:
        """Subtracts n from the counter. Raises TypeError for what is no number."""
        self._count -= n if type(n) is int else _number(n)

    def get_count(self) -> int:
        """Current value of the counter."""
        return self._count

    def value(self) -> MetricValue:
        return self._count


class Rate:
    """How fast a number grows: the mean of the last ``span_ms``, as far as it was asked then.

    now_ms: a clock that never goes back.
    """

    __slots__ = ("_now_ms", "_read", "_seen", "_span_ms")

    def __init__(
        self, read: Callable[[], float], now_ms: Callable[[], int], span_ms: int = RATE_SPAN_MS
    ) -> None:
        self._read = read
        self._now_ms = now_ms
        self._span_ms = span_ms
        self._seen: deque[tuple[int, float]] = deque([(now_ms(), 0)])

    def a_second(self) -> float:
        now_ms, seen, number = self._now_ms(), self._seen, self._read()
        while len(seen) > 1 and seen[1][0] <= now_ms - self._span_ms:
            seen.popleft()
        since_ms, earlier = seen[0]
        if now_ms - seen[-1][0] >= self._span_ms // _SAMPLES:
            seen.append((now_ms, number))
        return (number - earlier) * 1_000 / max(now_ms - since_ms, 1)


class Meter:
    """Counts events, and tells how many there are a second.

    The rate is that of the last ``span_s`` seconds, as far as it was asked for in them, else since
    it was last asked for. now_ms: a clock that never goes back.
    """

    __slots__ = ("_count", "_rate")

    def __init__(self, now_ms: Callable[[], int], span_s: int) -> None:
        self._count = 0
        self._rate = Rate(self.get_count, now_ms, span_s * 1_000)

    def mark_event(self, value: int = 1) -> None:
        """Records that n events happened. Raises TypeError for what is no number."""
        self._count += value if type(value) is int else _number(value)

    def get_count(self) -> int:
        """Number of events so far."""
        return self._count

    def get_rate(self) -> float:
        """Mean number of events per second."""
        return self._rate.a_second()

    def value(self) -> MetricValue:
        return Metered(self._count, self.get_rate())


class Distribution:
    """How values are spread: their number, sum, least and greatest."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.greatest = 0

    def update(self, value: int) -> None:
        """Adds a value to the distribution. Raises TypeError for what is no number."""
        if type(value) is not int and type(value) is not float:
            value = _number(value)
        self.least = value if self.count == 0 else min(self.least, value)
        self.greatest = value if self.count == 0 else max(self.greatest, value)
        self.count += 1
        self.total += value

    def value(self) -> MetricValue:
        mean = self.total / self.count if self.count else 0.0
        return Spread(self.count, self.least, self.greatest, mean)


class Histogram:
    """How values are spread, with quantiles of the latest ones; Flink's ``Histogram``."""

    __slots__ = ("_count", "_latest", "_told")

    def __init__(self) -> None:
        self._count = 0
        self._latest: list[float] = []
        self._told = Spread()

    def update(self, value: float) -> None:
        """Adds a value to the histogram. Raises TypeError for what is no number."""
        if type(value) is not float and type(value) is not int:
            value = _number(value)
        if self._count < _WINDOW:
            self._latest.append(value)
        else:
            self._latest[self._count % _WINDOW] = value
        self._count += 1

    def get_count(self) -> int:
        """Number of values so far."""
        return self._count

    def value(self) -> MetricValue:
        if self._told.count != self._count:
            count, latest = self._count, sorted(list(self._latest))
            mean = math.fsum(latest) / len(latest)
            self._told = Spread(
                count,
                latest[0],
                latest[-1],
                mean,
                math.dist(latest, [mean] * len(latest)) / math.sqrt(len(latest)),
                tuple(latest[math.ceil(part * len(latest)) - 1] for part in QUANTILES),
            )
        return self._told


class Gauge:
    """A number or text that a function tells when it is asked.

    fault: why it is not asked any more; "" while it is.
    """

    __slots__ = ("_last", "_read", "fault")

    def __init__(self, read: Callable[[], float | str]) -> None:
        self._read = read
        self._last: MetricValue | None = None
        self.fault = ""

    def look(self) -> None:
        """Calls the function; what it raises is the gauge's fault."""
        try:
            self._last = _shown(self._read())
        except Exception as error:
            self.fault = f"it raised {type(error).__name__}: {error}"

    def value(self) -> MetricValue | None:
        """The last value that the function has returned; None if it has returned none."""
        return self._last


def _shown(told: object) -> MetricValue:
    return str(told)[:_TEXT_MAX] if isinstance(told, str) else _number(told)


Metric = Counter | Meter | Distribution | Histogram | Gauge

_KINDS: Final[dict[type[Metric], MetricKind]] = {
    Counter: MetricKind.COUNTER,
    Meter: MetricKind.METER,
    Distribution: MetricKind.HISTOGRAM,
    Histogram: MetricKind.HISTOGRAM,
    Gauge: MetricKind.GAUGE,
}


class MetricRegistry:
    """All metrics of one operator in one subtask; without an operator, of the subtask as a whole.

    now_ms: a clock that never goes back. limit: how many metrics functions may have. faults: of
    metrics that are not told, as name and cause.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        operator: OperatorId | None = None,
        limit: int = LIMIT,
    ) -> None:
        self.now_ms = now_ms
        self._operator = operator
        self._limit = limit
        self._known: dict[MetricKey, Metric] = {}
        self._own: dict[MetricKey, Callable[[], MetricValue | None]] = {}
        self._by_variable: dict[tuple[str, str], Callable[[], Mapping[str, int]]] = {}
        self._refused = ""
        self._unread: dict[MetricKey, str] = {}

    # --- for functions ---

    def group(self) -> MetricGroup:
        return MetricGroup(self, ())

    def add(self, groups: tuple[Group, ...], name: str, metric: M) -> M:
        """Registers a metric; the one of that name and kind that there is, except for a gauge.

        One that is more than the limit counts, and is not told.
        """
        _check_name(name)
        key = MetricKey(name, _KINDS[type(metric)], self._operator, groups)
        known = self._known.get(key)
        if known is not None and type(known) is type(metric) and not isinstance(metric, Gauge):
            return cast("M", known)
        if known is None and len(self._known) >= self._limit:
            self._refused = self._refused or full_name(key)
            return metric
        self._known[key] = metric
        return metric

    def counted(self, groups: tuple[Group, ...], name: str) -> int:
        found = self._known.get(MetricKey(name, MetricKind.COUNTER, self._operator, groups))
        return found.get_count() if isinstance(found, Counter) else 0

    # --- for the engine ---

    def tell(self, name: str, kind: MetricKind, read: Callable[[], MetricValue | None]) -> None:
        """Registers what the engine counts. read: gives None while there is no value."""
        self._own[MetricKey(name, kind, self._operator)] = read

    def tell_by(self, name: str, variable: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Registers a gauge for each value of a variable. read: gives those that there are now."""
        self._by_variable[name, variable] = read

    def tell_count(self, name: str, read: Callable[[], int]) -> None:
        """Registers a counter of the engine, with its rate as ``…PerSecond``."""
        self.tell(name, MetricKind.COUNTER, read)
        self.tell_rate(f"{name}PerSecond", read)

    def tell_rate(self, name: str, read: Callable[[], float]) -> None:
        rate = Rate(read, self.now_ms)
        self.tell(name, MetricKind.METER, lambda: Metered(round(read()), rate.a_second()))

    # --- for who reads ---

    def read(self) -> dict[MetricKey, MetricValue]:
        """Values of all metrics that have one. May be called by another thread than the loop's."""
        found: dict[MetricKey, MetricValue] = {}
        for own, read in self._own.items():
            if (value := read()) is not None:
                found[own] = value
        for (name, variable), read_all in self._by_variable.items():
            for of, number in read_all().items():
                groups: tuple[Group, ...] = ((variable, of),)
                found[MetricKey(name, MetricKind.GAUGE, self._operator, groups)] = number
        for key, metric in list(self._known.items()):
            try:
                value = metric.value()
            except Exception as error:  # such as a histogram's of infinities of both signs
                self._unread[key] = f"reading it raised {type(error).__name__}: {error}"
                continue
            if value is not None:
                found[key] = value
        return found

    @property
    def gauges(self) -> list[Gauge]:
        """The gauges that may still be called."""
        known = list(self._known.values())
        return [each for each in known if isinstance(each, Gauge) and not each.fault]

    @property
    def refused(self) -> str:
        """The first metric above the limit; "" if there is none."""
        return self._refused

    def faults(self) -> Iterator[tuple[str, str]]:
        """Gauges that are not called any more and metrics without a value, as name and cause."""
        for key, cause in list(self._unread.items()):
            yield full_name(key), cause
        for key, metric in list(self._known.items()):
            if isinstance(metric, Gauge) and metric.fault:
                yield full_name(key), metric.fault


def full_name(key: MetricKey) -> str:
    """Name of a metric with its groups in front, as in Flink's REST."""
    parts: list[str] = []
    for group in key.groups:
        parts += [group] if isinstance(group, str) else group
    return ".".join((*parts, key.name))


def _check_name(name: object) -> None:
    """Raises GraphError for a name that reporters could not show."""
    if not isinstance(name, str) or not name:
        raise GraphError(
            f"The name of a metric or of its group is {name!r}, which is "
            f"{'empty' if name == '' else 'not text'}",
            where="get_metrics_group() of a function",
            remedy="Give it a name such as 'rows_late'.",
        )


class MetricGroup:
    """A place in the tree of metrics; PyFlink's ``MetricGroup``. registry: of its operator."""

    def __init__(self, registry: MetricRegistry, groups: tuple[Group, ...]) -> None:
        self.registry = registry
        self._groups = groups

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group below this one; with ``extra``, the group of a key and its value.

        Reporters show the key as a variable of its metrics, which Prometheus calls a label.
        Raises GraphError for a name that is no text or is empty, as all calls of a group do.
        """
        _check_name(name)
        below: Group = name if extra is None else (name, str(extra))
        return MetricGroup(self.registry, (*self._groups, below))

    def counter(self, name: str) -> Counter:
        """Adds a counter to this group; the one of that name if there is one."""
        return self.registry.add(self._groups, name, Counter())

    def counted(self, name: str) -> int:
        """Value of a counter of this group; 0 if there is none."""
        return self.registry.counted(self._groups, name)

    def gauge(self, name: str, obj: Callable[[], float | str]) -> None:
        """Adds a gauge, whose function is called with each heartbeat, on a thread of its own.

        A gauge that raises, or takes longer than a second, is not called again.
        """
        self.registry.add(self._groups, name, Gauge(obj))

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Adds a meter; the one of that name if there is one."""
        return self.registry.add(
            self._groups, name, Meter(self.registry.now_ms, time_span_in_seconds)
        )

    def distribution(self, name: str) -> Distribution:
        """Adds a distribution: count, mean, least and greatest of all values."""
        return self.registry.add(self._groups, name, Distribution())

    def histogram(self, name: str) -> Histogram:
        """Adds a histogram: as a distribution, with quantiles of the latest 512 values."""
        return self.registry.add(self._groups, name, Histogram())


class GaugeCalls:
    """Calls gauges of users, a round at a time, each on a thread that ends with it.

    now_ms: a clock that never goes back. A gauge in which a round has been for longer than a
    second is given up with its thread.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._round: _Round | None = None

    def call(self, gauges: Iterable[Gauge]) -> None:
        """Calls the gauges, and waits for a moment; what takes longer is read the next time."""
        under_way = self._round
        if under_way is not None and under_way.is_alive() and not under_way.give_up_slow():
            return
        self._round = None
        if wanted := [each for each in gauges if not each.fault]:
            self._round = _Round(wanted, self._now_ms)
            self._round.start()
            self._round.join(_GAUGES_WAIT_S)


class _Round(threading.Thread):
    """Calls some gauges one after the other."""

    def __init__(self, gauges: list[Gauge], now_ms: Callable[[], int]) -> None:
        super().__init__(name="tidegate-gauges", daemon=True)
        self._gauges = gauges
        self._now_ms = now_ms
        self._given_up = False
        self._at: tuple[Gauge, int] | None = None

    def run(self) -> None:
        for gauge in self._gauges:
            if self._given_up:
                return
            self._at = gauge, self._now_ms()
            gauge.look()
        self._at = None

    def give_up_slow(self) -> bool:
        """Gives the gauge up that takes too long, and this round; False if none does."""
        at = self._at
        if at is None or self._now_ms() - at[1] < _GAUGE_SLOW_MS:
            return False
        self._given_up = True
        at[0].fault = f"it took longer than {_GAUGE_SLOW_MS} ms"
        return True
