"""Functions behind calls on streams: wrappers of a program's own, and ready-made ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.api.functions import (
    AggregateFunction,
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    MapFunction,
)
from tidegate.api.functions.co_functions import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
)
from tidegate.api.functions.window_functions import ProcessWindowFunction
from tidegate.api.state import MapStateDescriptor, ValueStateDescriptor
from tidegate.api.state.descriptors import StateTtlConfig
from tidegate.errors import UserError
from tidegate.typeinfo.types import BOOLEAN, LONG, PICKLED, ListTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.api.functions import RuntimeContext, SnapshotContext
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.windows import TimeWindow
    from tidegate.config.spans import Span
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
F = TypeVar("F")


class Adapter(Function, CheckpointedFunction, CheckpointListener, Generic[F]):
    """Around a function object or a plain function: its life, and its part in checkpoints."""

    def __init__(self, function: F) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    def snapshot_state(self, context: SnapshotContext) -> None:
        if isinstance(self._function, CheckpointedFunction):
            self._function.snapshot_state(context)

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        if isinstance(self._function, CheckpointListener):
            self._function.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        if isinstance(self._function, CheckpointListener):
            self._function.notify_checkpoint_aborted(checkpoint_id)


class KeyedMap(Adapter[MapFunction[T, R]], KeyedProcessFunction[T, R]):
    """A map function under a key."""

    def process_element(self, value: T, ctx: KeyedProcessFunction.Context) -> Iterable[R]:
        return (self._function.map(value),)


class KeyedFlatMap(Adapter[FlatMapFunction[T, R]], KeyedProcessFunction[T, R]):
    """A flat map function under a key."""

    def process_element(self, value: T, ctx: KeyedProcessFunction.Context) -> Iterable[R] | None:
        return self._function.flat_map(value)


class KeyedFilter(Adapter[FilterFunction[T]], KeyedProcessFunction[T, T]):
    """A filter function under a key."""

    def process_element(self, value: T, ctx: KeyedProcessFunction.Context) -> Iterable[T]:
        return (value,) if self._function.filter(value) else ()


class CoMap(Adapter[CoMapFunction[T, S, R]], KeyedCoProcessFunction[T, S, R]):
    """Maps of two streams as a process function, with or without keys."""

    def process_element1(self, value: T, ctx: object) -> Iterable[R]:
        return (self._function.map1(value),)

    def process_element2(self, value: S, ctx: object) -> Iterable[R]:
        return (self._function.map2(value),)


class CoFlatMap(Adapter[CoFlatMapFunction[T, S, R]], KeyedCoProcessFunction[T, S, R]):
    """Flat maps of two streams as a process function, with or without keys."""

    def process_element1(self, value: T, ctx: object) -> Iterable[R] | None:
        return self._function.flat_map1(value)

    def process_element2(self, value: S, ctx: object) -> Iterable[R] | None:
        return self._function.flat_map2(value)


class FirstOfKey(FilterFunction[Any]):
    """Keeps the first record of each key. ttl: how long a key is remembered; None is for ever."""

    def __init__(self, ttl: Span | None) -> None:
        self._ttl = _time_to_live(ttl)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(_expiring("seen", BOOLEAN, self._ttl))

    def filter(self, value: object) -> bool:
        if self._seen.value():
            return False
        self._seen.update(True)
        return True


class CountOfKey(KeyedProcessFunction[Any, "tuple[Any, int]"]):
    """Numbers the records of each key. ttl: how long a count without records is kept."""

    def __init__(self, ttl: Span | None) -> None:
        self._ttl = _time_to_live(ttl)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(_expiring("count", LONG, self._ttl))

    def process_element(
        self, value: object, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[Any, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield ctx.get_current_key(), count


class TopOfKey(KeyedProcessFunction[T, "tuple[Any, list[T]]"], Generic[T]):
    """Ranks the records of each key.

    by: what they are ranked by, greatest first. same: a record replaces the ranked one for which
    this gives the same; None if each record stands for itself.
    """

    def __init__(
        self,
        n: int,
        by: Callable[[T], Any],
        same: Callable[[T], object] | None,
        ttl: Span | None,
        record_type: TypeInformation,
    ) -> None:
        self._n, self._by, self._same = n, by, same
        self._ttl, self._type = _time_to_live(ttl), ListTypeInfo(record_type)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._ranked = runtime_context.get_state(_expiring("ranked", self._type, self._ttl))

    def process_element(
        self, value: T, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[Any, list[T]]]:
        before: list[T] = self._ranked.value() or []
        kept = before
        if self._same is not None:
            same = self._same(value)
            kept = [one for one in before if self._same(one) != same]
        ranked = sorted([*kept, value], key=self._by, reverse=True)[: self._n]
        if ranked != before:
            self._ranked.update(ranked)
            yield ctx.get_current_key(), ranked


class AsOf(KeyedCoProcessFunction[T, S, "tuple[T, S | None]"], Generic[T, S]):
    """Pairs each left record with the newest right one of its key that is no later.

    A left record waits until the watermark says that no right one will come before it. Of the right
    records the newest that counts is kept, and those to come. tolerance_ms: how much earlier a
    right record may be, after which it is forgotten; None keeps the newest for ever.
    """

    def __init__(
        self,
        tolerance_ms: int | None,
        late: OutputTag[T] | None,
        types: tuple[TypeInformation, TypeInformation],
    ) -> None:
        self._tolerance_ms = tolerance_ms
        self._late = late
        self._types = types

    def open(self, runtime_context: RuntimeContext) -> None:
        left, right = self._types
        self._waiting = runtime_context.get_map_state(
            MapStateDescriptor("waiting", LONG, ListTypeInfo(left))
        )
        self._versions = runtime_context.get_map_state(MapStateDescriptor("versions", LONG, right))
        self._dropped = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def process_element1(
        self, value: T, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[Any, Any]]:
        at, timers = _event_time(ctx), ctx.timer_service()
        if at > timers.current_watermark():
            self._waiting.put(at, [*(self._waiting.get(at) or ()), value])
            timers.register_event_time_timer(at)
        elif self._late is not None:
            yield self._late, value
        else:
            self._dropped.inc()

    def process_element2(self, value: S, ctx: KeyedCoProcessFunction.Context) -> None:
        """A right record is kept, unless a newer one counts already."""
        at, timers = _event_time(ctx), ctx.timer_service()
        watermark, versions = timers.current_watermark(), list(self._versions.keys())
        if any(at < version <= watermark for version in versions):
            return
        self._versions.put(at, value)
        timers.register_event_time_timer(at)
        if self._tolerance_ms is not None:
            timers.register_event_time_timer(at + self._tolerance_ms)

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[tuple[T, S | None]]:
        """Pair what waits for this time, and forget versions that count no more."""
        versions = list(self._versions.keys())
        passed = sorted(version for version in versions if version <= timestamp)
        newest = passed[-1] if passed else None
        if newest is not None and self._is_too_old(newest, timestamp):
            newest = None
        for left in self._waiting.get(timestamp) or ():
            yield left, None if newest is None else self._versions.get(newest)
        self._waiting.remove(timestamp)
        for version in passed:
            # Left records still to come are later than this time.
            if version != newest or self._is_too_old(version, timestamp + 1):
                self._versions.remove(version)

    def _is_too_old(self, version: int, left: int) -> bool:
        return self._tolerance_ms is not None and version + self._tolerance_ms < left


class Counting(AggregateFunction[Any, int, int]):
    """Counts the records of a window."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: object, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class PerSecond(ProcessWindowFunction[int, "tuple[Any, int, float]", Any, "TimeWindow"]):
    """Key, end of the window in milliseconds, and records of a second in it."""

    def process(
        self,
        key: object,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[int],
    ) -> Iterator[tuple[Any, int, float]]:
        window = context.window()
        for count in elements:
            yield key, window.end, count * 1_000 / (window.end - window.start)


def _time_to_live(ttl: Span | None) -> StateTtlConfig | None:
    return None if ttl is None else StateTtlConfig.new_builder(ttl).build()


def _expiring(name: str, kind: TypeInformation, ttl: StateTtlConfig | None) -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor(name, kind)
    if ttl is not None:
        descriptor.enable_time_to_live(ttl)
    return descriptor


def _event_time(ctx: KeyedCoProcessFunction.Context) -> int:
    at = ctx.timestamp()
    if at is None:
        raise UserError(
            "Records have no event time, which an as-of join needs",
            where="as_of_join",
            remedy="Give the source a WatermarkStrategy with a timestamp assigner, or call "
            "assign_timestamps_and_watermarks before key_by.",
        )
    return at


def of_records(declared: TypeInformation | None) -> TypeInformation:
    return declared or PICKLED
