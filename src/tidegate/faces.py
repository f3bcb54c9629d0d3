"""Every name that programs import, with the module that it is loaded from when it is first named.

`tidegate` shows the names that a first program needs and gives all others too; each topic is a
module of its own, such as `tidegate.windows`. Here each name stands once: the modules ask this
table, and ``scripts/stubs.py`` makes of it what type checkers read.

An entry is a module and its names; ``Public=attribute`` where it has another name there.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, Final

ROOT: Final = "tidegate"

TOPICS: Final[dict[str, dict[str, str]]] = {
    "streams": {
        "tidegate.datastream.async_stream": "AsyncDataStream",
        "tidegate.datastream.connected": (
            "BroadcastConnectedStream BroadcastStream ConnectedStreams"
        ),
        "tidegate.datastream.environment": "StreamExecutionEnvironment",
        "tidegate.datastream.joined": (
            "CoGroupedWindows IntervalJoin IntervalJoined JoinedStreams JoinedWindows"
        ),
        "tidegate.datastream.keyed": "KeyedStream",
        "tidegate.datastream.results": "CloseableIterator",
        "tidegate.datastream.stream": "DataStream",
        "tidegate.datastream.stream_sink": "DataStreamSink",
        "tidegate.datastream.utils": "DataStreamUtils",
        "tidegate.datastream.windowed": "AllWindowedStream WindowedStream",
        "tidegate.spark.micro_batches": "MicroBatches",
    },
    "functions": {
        "tidegate.api.dead_letters": "DeadLetter",
        "tidegate.api.functions": (
            "AggregateFunction BatchContext CheckpointListener CheckpointedFunction "
            "FilterFunction FlatMapFunction Function KeySelector KeyedBatchFunction "
            "KeyedProcessFunction MapFunction Partitioner ProcessFunction ReduceFunction "
            "RuntimeContext SinkFunction SnapshotContext TimerService"
        ),
        "tidegate.api.functions.async_functions": (
            "AsyncFunction AsyncRetryPredicate AsyncRetryStrategy"
        ),
        "tidegate.api.functions.co_functions": (
            "BaseBroadcastProcessFunction BroadcastProcessFunction CoFlatMapFunction "
            "CoGroupFunction CoMapFunction CoProcessFunction JoinFunction "
            "KeyedBroadcastProcessFunction KeyedCoProcessFunction ProcessJoinFunction"
        ),
        "tidegate.api.output_tag": "OutputTag",
        "tidegate.metrics": "MetricGroup",
    },
    "windows": {
        "tidegate.api.functions.window_functions": (
            "AllWindowFunction ProcessAllWindowFunction ProcessWindowFunction WindowFunction"
        ),
        "tidegate.api.windows": "CountWindow GlobalWindow TimeWindow Window",
        "tidegate.api.windows.assigners": (
            "AlignedWindows CountSlidingWindowAssigner CountTumblingWindowAssigner "
            "DynamicEventTimeSessionWindows DynamicProcessingTimeSessionWindows "
            "EventTimeSessionWindows GlobalWindows MergingWindowAssigner "
            "ProcessingTimeSessionWindows SessionWindowTimeGapExtractor SlidingEventTimeWindows "
            "SlidingProcessingTimeWindows TumblingEventTimeWindows TumblingProcessingTimeWindows "
            "WindowAssigner"
        ),
        "tidegate.api.windows.evictors": (
            "CountEvictor DeltaEvictor Evictor TimeEvictor TimestampedValue"
        ),
        "tidegate.api.windows.triggers": (
            "ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger CountTrigger "
            "EventTimeTrigger NeverTrigger OnMergeContext ProcessingTimeTrigger PurgingTrigger "
            "Trigger TriggerContext TriggerResult"
        ),
    },
    "state": {
        "tidegate.api.functions": (
            "AggregatingStateDescriptor KeyedStateStore ReducingStateDescriptor"
        ),
        "tidegate.api.state": (
            "AggregatingState AppendingState BroadcastState ColumnState ColumnStateDescriptor "
            "ListState ListStateDescriptor MapState MapStateDescriptor MergingState "
            "OperatorListState OperatorStateDescriptor ReadOnlyBroadcastState RedistributionMode "
            "ReducingState State StateDescriptor ValueState ValueStateDescriptor"
        ),
        "tidegate.api.state.descriptors": "StateTtlConfig",
    },
    "times": {
        "tidegate.api.functions": "TimeDomain",
        "tidegate.api.watermarks": (
            "TimestampAssigner WatermarkGenerator WatermarkOutput WatermarkStrategy"
        ),
        "tidegate.model.duration": "Duration Instant Time",
    },
    "types": {
        "flinkformat.row": "Row RowKind",
        "tidegate.model.elements": "ArrowBatch RowBatch",
        "tidegate.typeinfo.types": "RowTypeInfo TupleTypeInfo TypeInformation Types",
    },
    "aggregates": {
        "tidegate.api.aggregates": (
            "Aggregate Collect Count CountDistinct First Last Max Mean Min Sum"
        ),
    },
    "settings": {
        "flinkformat.snapshots": "SavepointFormatType",
        "tidegate.config.configuration": "Configuration",
        "tidegate.config.execution": "RuntimeExecutionMode",
        "tidegate.datastream.settings.configs": "CheckpointConfig ExecutionConfig",
        "tidegate.datastream.settings.slot_sharing": "MemorySize SlotSharingGroup",
        "tidegate.datastream.settings.strategies": (
            "CheckpointStorage EmbeddedRocksDBStateBackend FileSystemCheckpointStorage "
            "HashMapStateBackend JobManagerCheckpointStorage PredefinedOptions "
            "RestartStrategies RestartStrategyConfiguration StateBackend"
        ),
        "tidegate.model.settings": (
            "CheckpointingMode ClaimMode ExternalizedCheckpointRetention=RetentionPolicy"
        ),
    },
    "jobs": {
        "concurrent.futures": "CompletableFuture=Future",
        "tidegate.api.job": "CheckpointDone JobClient JobExecutionResult JobSummary"
        " FailureContext FailureEnricher FailureKind MasterStateSerializer MasterTriggerRestoreHook"
        " JobExecutionStatusEvent JobStatusChangedListener",
        "tidegate.jobmaster.view": "JobView",
        "tidegate.model.control": "JobStatus LogRecord",
        "tidegate.model.ids": "JobID=JobId",
        "tidegate.model.logs": "LogEntry LogFilter LogPage",
    },
    "connectors": {
        "tidegate.api.sink": "CommittableMessage Committer Prepared Sink SinkWriter WriterContext",
        "tidegate.api.source": (
            "EnumeratorContext ReaderContext Source SourceReader SplitEnumerator"
        ),
        "tidegate.datastream.topologies": (
            "StandardSinkTopologies WithPostCommitTopology WithPreCommitTopology"
        ),
    },
    "snapshots": {
        "tidegate.migration.from_flink": "MigratedState MigrationReport migrate_savepoint",
        "tidegate.migration.rewrite": "rewrite_flink_savepoint",
        "tidegate.snapshots.checking.findings": "CheckedSnapshot Fault Finding FsckReport",
        "tidegate.snapshots.checking.fsck": "fsck",
        "tidegate.snapshots.differences": (
            "EntryDiff FileReuse OperatorDiff SnapshotDiff StateDiff diff_snapshots"
        ),
        "tidegate.snapshots.folders": "SavepointInfo dispose_savepoint list_savepoints",
        "tidegate.snapshots.rows": "OperatorInfo StateInfo StateKind StateRow",
        "tidegate.snapshots.snapshot": "Snapshot",
        "tidegate.snapshots.summary": (
            "KeyGroupSummary OperatorSummary SnapshotSummary StateSummary inspect_snapshot"
        ),
        "tidegate.snapshots.tables": "StateTable read_state",
        "tidegate.snapshots.writing.writer": "SavepointWriter",
        "tidegate.spark.state_source": "StateDataSource register_state_source state_options",
    },
    "upgrade": {
        "tidegate.upgrade.check": "check_upgrade",
        "tidegate.upgrade.report": (
            "OperatorFit OperatorMatch StateFit StateVerdict UpgradeFault UpgradeFinding "
            "UpgradeReport UpgradeSeverity"
        ),
    },
    "errors": {
        "tidegate.errors": (
            "BadRecord CheckpointAborted CommitFailed ConfigError GraphError JobCanceled "
            "JobFailed JobSuspended RescaleRefused RestoreRefused SlotsMissing "
            "StopWithSavepointFailed TidegateError UnsupportedKey UserCodeFailed UserError"
        ),
    },
}
"""Names by topic; ``tidegate`` has them all."""

OF_TOPICS_ALONE: Final[dict[str, dict[str, str]]] = {
    "connectors": {
        "tidegate.connectors.collect": "CollectSink",
        "tidegate.connectors.collection": "CollectionSource",
        "tidegate.connectors.files.file_sink": "FileSink FileSinkBuilder",
        "tidegate.connectors.files.file_source": "FileSource FileSourceBuilder",
        "tidegate.connectors.files.formats": (
            "BulkFormat CsvReaderFormat CsvSchema ParquetColumnarRowInputFormat StreamFormat"
        ),
        "tidegate.connectors.files.rolling": (
            "BucketAssigner BulkWriterFactory CsvBulkWriters Encoder OutputFileConfig "
            "ParquetBulkWriters RollingPolicy"
        ),
        "tidegate.connectors.generator": "DataGeneratorSource NumberSequenceSource",
        "tidegate.connectors.jdbc.jdbc_sink": "JdbcSink",
        "tidegate.connectors.jdbc.options": "JdbcConnectionOptions JdbcExecutionOptions",
        "tidegate.connectors.kafka.kafka_sink": "KafkaSink KafkaSinkBuilder",
        "tidegate.model.topology": "Delivery DeliveryGuarantee",
        "tidegate.connectors.kafka.kafka_source": "KafkaSource KafkaSourceBuilder",
        "tidegate.connectors.kafka.offsets": (
            "KafkaOffsetResetStrategy KafkaOffsetsInitializer KafkaTopicPartition"
        ),
        "tidegate.connectors.kafka.records": (
            "KafkaRecordSerializationSchema KafkaRecordSerializationSchemaBuilder "
            "KafkaTopicSelector"
        ),
        "tidegate.connectors.polling": "Page PollingSource",
        "tidegate.connectors.print": "PrintSink",
        "tidegate.connectors.schemas.csv_rows": (
            "CsvRowDeserializationSchema CsvRowSerializationSchema"
        ),
        "tidegate.connectors.schemas.json_rows": (
            "JsonRowDeserializationSchema JsonRowSerializationSchema"
        ),
        "tidegate.connectors.schemas.messages": (
            "ByteArraySchema DeserializationSchema JsonSchema SerializationSchema "
            "SimpleStringSchema"
        ),
    },
    "snapshots": {
        "tidegate.migration.from_flink": "migrate=migrate_savepoint",
        "tidegate.snapshots.checking.fsck": "check=fsck",
        "tidegate.snapshots.differences": "diff=diff_snapshots",
        "tidegate.snapshots.snapshot": "open=Snapshot.open",
        "tidegate.snapshots.summary": "count=inspect_snapshot",
        "tidegate.snapshots.writing.writer": "write=begin_savepoint",
    },
}
"""Names that only their topic has: connectors are many, and verbs say little without it."""

FIRST: Final = (
    "AggregateFunction AggregatingStateDescriptor AsyncDataStream AsyncFunction "
    "BroadcastProcessFunction CheckpointingMode CoProcessFunction ColumnStateDescriptor "
    "Configuration Count DataStream DeadLetter Duration EmbeddedRocksDBStateBackend "
    "EventTimeSessionWindows FilterFunction FlatMapFunction HashMapStateBackend JobClient "
    "JobFailed KeySelector KeyedBatchFunction KeyedBroadcastProcessFunction "
    "KeyedCoProcessFunction KeyedProcessFunction KeyedStream ListState ListStateDescriptor "
    "MapFunction MapState MapStateDescriptor Max Mean Min OutputTag ProcessFunction "
    "ProcessJoinFunction ProcessWindowFunction ReduceFunction ReducingStateDescriptor "
    "RestartStrategies Row RuntimeContext RuntimeExecutionMode SavepointWriter SinkFunction "
    "SlidingEventTimeWindows Snapshot StateTtlConfig StreamExecutionEnvironment Sum "
    "TidegateError Time TimeWindow TimestampAssigner TumblingEventTimeWindows "
    "TumblingProcessingTimeWindows Types UserError ValueState ValueStateDescriptor "
    "WatermarkStrategy"
)
"""What a first program needs; ``dir(tidegate)`` and the reference show these at the top."""

_MODULES: Final = (*TOPICS, "testing")
_SPARK: Final = "tidegate.spark."


def named(module: str, name: str) -> Any:
    """Loads a name of `tidegate` or of a topic, for the module's ``__getattr__``.

    Raises AttributeError, and ConfigError for a name made of PySpark's classes without PySpark.
    """
    if name == "__all__":
        return names(module)
    if module == ROOT and name in _MODULES:
        return import_module(f"{module}.{name}")
    place = places(module).get(name)
    if place is None:
        raise _missing(module, name)
    home, attribute = place
    if home.startswith(_SPARK):
        load = import_module("tidegate.graph.runtime").load_of_spark
        loaded = load(home, where=f"{module}.{name}")
    else:
        loaded = import_module(home)
    found = attrgetter(attribute)(loaded)
    setattr(sys.modules[module], name, found)  # functions may ask for it with every record
    return found


def names(module: str) -> list[str]:
    """Names for ``import *``; without PySpark, names made of its classes are left out."""
    has_spark = find_spec("pyspark") is not None
    found = [
        name
        for name, (home, _) in places(module).items()
        if has_spark or not home.startswith(_SPARK)
    ]
    return ["__version__", *found] if module == ROOT else found


def shown(module: str) -> list[str]:
    """Names for ``dir``: of `tidegate` the first names and the topics, of a topic all names."""
    own = (name for name in vars(sys.modules[module]) if name.startswith("__"))
    first = [*FIRST.split(), *_MODULES] if module == ROOT else names(module)
    return sorted({*own, *first})


@cache
def places(module: str) -> dict[str, tuple[str, str]]:
    """For each name of a module, the module that it is loaded from and its name there."""
    topic = module.removeprefix(f"{ROOT}.")
    tables = list(TOPICS.values()) if module == ROOT else [TOPICS.get(topic, {})]
    if module != ROOT:
        tables.append(OF_TOPICS_ALONE.get(topic, {}))
    found: dict[str, tuple[str, str]] = {}
    for table in tables:
        for home, entries in table.items():
            for entry in entries.split():
                name, _, attribute = entry.partition("=")
                found[name] = home, attribute or name
    return dict(sorted(found.items()))


def _missing(module: str, name: str) -> AttributeError:
    text = f"module {module!r} has no attribute {name!r}"
    if not name[:1].isupper():  # Python itself asks for submodules and for names of its own
        return AttributeError(text)
    for topic in OF_TOPICS_ALONE:
        if name in places(f"{ROOT}.{topic}"):
            return AttributeError(f"{text}; it is in {ROOT}.{topic}")
    close = get_close_matches(name, places(module), n=1, cutoff=0.8)
    return AttributeError(f"{text}{f'; did you mean {close[0]!r}?' if close else ''}")
