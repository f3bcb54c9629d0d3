"""Tidegate: stateful stream processing with Flink-grade checkpoints, in Python, on Spark.

What a job needs is importable from here and loaded when it is first named; connectors stand in
``tidegate.connectors``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

__version__: Final = "0.1.0"

_PLACES: Final = {
    "AggregateFunction": "tidegate.api.functions",
    "AggregatingState": "tidegate.api.state",
    "AggregatingStateDescriptor": "tidegate.api.state",
    "BadRecord": "tidegate.errors",
    "BatchContext": "tidegate.api.functions",
    "BroadcastState": "tidegate.api.state",
    "CheckpointAborted": "tidegate.errors",
    "CheckpointConfig": "tidegate.config.checkpoint",
    "CheckpointDone": "tidegate.api.client",
    "CheckpointListener": "tidegate.api.functions",
    "CheckpointedFunction": "tidegate.api.functions",
    "CheckpointingMode": "tidegate.model.settings",
    "ClaimMode": "tidegate.model.settings",
    "CloseableIterator": "tidegate.datastream.results",
    "ColumnState": "tidegate.api.state",
    "ColumnStateDescriptor": "tidegate.api.state",
    "Committer": "tidegate.api.sink",
    "ConfigError": "tidegate.errors",
    "Configuration": "tidegate.config.configuration",
    "CountWindow": "tidegate.api.windows",
    "DataStream": "tidegate.datastream.stream",
    "DataStreamSink": "tidegate.datastream.stream",
    "Duration": "tidegate.model.duration",
    "EnumeratorContext": "tidegate.api.source",
    "ExecutionConfig": "tidegate.datastream.execution_config",
    "ExternalizedCheckpointRetention": "tidegate.model.settings:RetentionPolicy",
    "FailureContext": "tidegate.api.failures",
    "FailureEnricher": "tidegate.api.failures",
    "FailureKind": "tidegate.api.failures",
    "FilterFunction": "tidegate.api.functions",
    "FlatMapFunction": "tidegate.api.functions",
    "Function": "tidegate.api.functions",
    "GlobalWindow": "tidegate.api.windows",
    "GraphError": "tidegate.errors",
    "JobCanceled": "tidegate.errors",
    "JobClient": "tidegate.api.client",
    "JobExecutionResult": "tidegate.api.client",
    "JobFailed": "tidegate.errors",
    "JobStatus": "tidegate.model.control",
    "KeySelector": "tidegate.api.functions",
    "KeyedBatchFunction": "tidegate.api.functions",
    "KeyedProcessFunction": "tidegate.api.functions",
    "KeyedStream": "tidegate.datastream.keyed",
    "ListState": "tidegate.api.state",
    "ListStateDescriptor": "tidegate.api.state",
    "MapFunction": "tidegate.api.functions",
    "MapState": "tidegate.api.state",
    "MapStateDescriptor": "tidegate.api.state",
    "MasterStateSerializer": "tidegate.api.hooks",
    "MasterTriggerRestoreHook": "tidegate.api.hooks",
    "OperatorListState": "tidegate.api.state",
    "OperatorStateDescriptor": "tidegate.api.state",
    "OutputTag": "tidegate.api.output_tag",
    "Partitioner": "tidegate.api.functions",
    "Prepared": "tidegate.api.sink",
    "ProcessFunction": "tidegate.api.functions",
    "ReaderContext": "tidegate.api.source",
    "RedistributionMode": "tidegate.api.state",
    "ReduceFunction": "tidegate.api.functions",
    "ReducingState": "tidegate.api.state",
    "ReducingStateDescriptor": "tidegate.api.state",
    "RescaleRefused": "tidegate.errors",
    "RestoreRefused": "tidegate.errors",
    "Row": "tidegate.typeinfo.row",
    "RowKind": "tidegate.typeinfo.row",
    "RuntimeContext": "tidegate.api.functions",
    "RuntimeExecutionMode": "tidegate.config.options",
    "Sink": "tidegate.api.sink",
    "SinkWriter": "tidegate.api.sink",
    "SlidingEventTimeWindows": "tidegate.api.windows",
    "SlotsMissing": "tidegate.errors",
    "SnapshotContext": "tidegate.api.operator",
    "Source": "tidegate.api.source",
    "SourceReader": "tidegate.api.source",
    "SplitEnumerator": "tidegate.api.source",
    "StateDescriptor": "tidegate.api.state",
    "StateTtlConfig": "tidegate.api.ttl",
    "StreamExecutionEnvironment": "tidegate.datastream.environment",
    "TidegateError": "tidegate.errors",
    "Time": "tidegate.model.duration",
    "TimeDomain": "tidegate.api.functions",
    "TimeWindow": "tidegate.api.windows",
    "TimerService": "tidegate.api.functions",
    "TimestampAssigner": "tidegate.api.watermarks",
    "TumblingEventTimeWindows": "tidegate.api.windows",
    "TypeInformation": "tidegate.typeinfo.types",
    "Types": "tidegate.typeinfo.types",
    "UnsupportedKey": "tidegate.errors",
    "UserCodeFailed": "tidegate.errors",
    "UserError": "tidegate.errors",
    "ValueState": "tidegate.api.state",
    "ValueStateDescriptor": "tidegate.api.state",
    "WatermarkStrategy": "tidegate.api.watermarks",
    "Window": "tidegate.api.windows",
    "WriterContext": "tidegate.api.sink",
}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]  # __getattr__ gives them
    "__version__",
    *_PLACES,
]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
