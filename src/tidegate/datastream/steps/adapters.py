"""Element-wise functions, of one stream or of two, where they may use keyed state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tidegate.api.functions import (
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

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.api.functions import RuntimeContext, SnapshotContext
    from tidegate.model.ids import CheckpointId

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
