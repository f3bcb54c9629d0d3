"""User functions: what a job author implements, or hands over as a plain function or lambda."""

from tidegate.api.functions.row_functions import (
    BatchContext,
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
    TimeDomain,
    TimerService,
)
from tidegate.api.functions.runtime_context import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    CheckpointListener,
    Function,
    KeyedStateStore,
    ReduceFunction,
    ReducingStateDescriptor,
    RuntimeContext,
)
from tidegate.api.operator import SnapshotContext

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "BatchContext",
    "CheckpointListener",
    "CheckpointedFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedBatchFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "ReducingStateDescriptor",
    "RuntimeContext",
    "SinkFunction",
    "SnapshotContext",
    "TimeDomain",
    "TimerService",
]
