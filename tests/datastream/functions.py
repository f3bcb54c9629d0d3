"""Functions of each kind, that do next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.functions import (
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from tidegate.api.functions import BatchContext, SnapshotContext


class Double(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return 2 * value


class Counting(Double, CheckpointedFunction):
    def __init__(self) -> None:
        self.seen = 0
        self.snapshots: list[int] = []

    def map(self, value: int) -> int:
        self.seen += 1
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        self.snapshots.append(context.checkpoint)


class Twice(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> Iterable[int]:
        return [value, value]


class Odd(FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


class Add(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class Pass(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[int]:
        yield value


class KeyedPass(KeyedProcessFunction[int, int]):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        yield value


class BatchPass(KeyedBatchFunction):
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
        return batch


class LastDigit(KeySelector[int, int]):
    def get_key(self, value: int) -> int:
        return value % 10


class OpenedKey(LastDigit):
    def open(self, runtime_context: RuntimeContext) -> None:
        pass


class Modulo(Partitioner):
    def partition(self, key: object, num_partitions: int) -> int:
        assert isinstance(key, int)
        return key % num_partitions
