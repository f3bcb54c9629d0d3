"""Maps names of PyFlink 2.3 to their modules here."""

from __future__ import annotations

from typing import Final

_TIME: Final = "Duration Instant Time"
_TYPES: Final = (
    "BasicTypeInfo ListTypeInfo MapTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo "
    "RowTypeInfo SqlTimeTypeInfo TupleTypeInfo TypeInformation Types"
)
_SERIALIZATION: Final = (
    "BulkWriterFactory ByteArraySchema DeserializationSchema Encoder SerializationSchema "
    "SimpleStringSchema"
)
_WATERMARKS: Final = "TimestampAssigner WatermarkStrategy"
_JSON: Final = "JsonRowDeserializationSchema JsonRowSerializationSchema"
_CSV_ROWS: Final = "CsvRowDeserializationSchema CsvRowSerializationSchema"
_METRICS: Final = "Counter Distribution Meter MetricGroup"
_RESTARTS: Final = "RestartStrategies RestartStrategyConfiguration"
_BACKENDS: Final = "EmbeddedRocksDBStateBackend HashMapStateBackend PredefinedOptions StateBackend"
_STORAGES: Final = "CheckpointStorage FileSystemCheckpointStorage JobManagerCheckpointStorage"
_FUNCTIONS: Final = (
    "AggregateFunction AsyncFunction AsyncRetryPredicate AsyncRetryStrategy "
    "BroadcastProcessFunction CoFlatMapFunction CoMapFunction CoProcessFunction FilterFunction "
    "FlatMapFunction KeySelector KeyedBroadcastProcessFunction KeyedCoProcessFunction "
    "KeyedProcessFunction MapFunction Partitioner ProcessFunction ProcessWindowFunction "
    "ReduceFunction RuntimeContext SinkFunction WindowFunction"
)
_STREAMS: Final = (
    "BroadcastConnectedStream BroadcastStream ConnectedStreams DataStream DataStreamSink "
    "KeyedStream WindowedStream"
)
_WINDOWS: Final = (
    "CountWindow GlobalWindow MergingWindowAssigner TimeWindow Trigger TriggerResult Window "
    "WindowAssigner"
)

_TEXTS: Final = {
    "pyflink": "",
    "pyflink.common": (
        f"{_TIME} {_TYPES} {_SERIALIZATION} {_WATERMARKS} {_JSON} {_CSV_ROWS} {_RESTARTS} "
        "CompletableFuture Configuration ExecutionConfig JobClient JobExecutionResult JobID "
        "JobStatus Row RowKind TypeSerializer"
    ),
    "pyflink.common.completable_future": "CompletableFuture",
    "pyflink.common.configuration": "Configuration",
    "pyflink.common.constants": "MAX_LONG_VALUE MIN_LONG_VALUE",
    "pyflink.common.execution_config": "ExecutionConfig",
    "pyflink.common.job_client": "JobClient",
    "pyflink.common.job_execution_result": "JobExecutionResult",
    "pyflink.common.job_id": "JobID",
    "pyflink.common.job_status": "JobStatus",
    "pyflink.common.restart_strategy": _RESTARTS,
    "pyflink.common.serialization": _SERIALIZATION,
    "pyflink.common.serializer": "TypeSerializer",
    "pyflink.common.time": _TIME,
    "pyflink.common.typeinfo": _TYPES,
    "pyflink.common.types": "Row RowKind",
    "pyflink.common.watermark_strategy": _WATERMARKS,
    "pyflink.datastream": (
        f"{_FUNCTIONS} {_STREAMS} {_WINDOWS} {_BACKENDS} {_STORAGES} "
        "AsyncDataStream CheckpointConfig CheckpointingMode ExternalizedCheckpointRetention "
        "MemorySize OutputTag RuntimeExecutionMode SlotSharingGroup "
        "StreamExecutionEnvironment TimeDomain TimerService"
    ),
    "pyflink.datastream.async_data_stream": "AsyncDataStream",
    "pyflink.datastream.checkpoint_config": "CheckpointConfig",
    "pyflink.datastream.checkpoint_storage": _STORAGES,
    "pyflink.datastream.checkpointing_mode": "CheckpointingMode",
    "pyflink.datastream.connectors": "DeliveryGuarantee Sink Source",
    "pyflink.datastream.connectors.base": "DeliveryGuarantee Sink Source",
    "pyflink.datastream.connectors.file_system": (
        "BucketAssigner BulkFormat FileSink FileSource FileSourceBuilder OutputFileConfig "
        "RollingPolicy StreamFormat StreamingFileSink"
    ),
    "pyflink.datastream.connectors.jdbc": "JdbcConnectionOptions JdbcExecutionOptions JdbcSink",
    "pyflink.datastream.connectors.kafka": (
        "KafkaOffsetResetStrategy KafkaOffsetsInitializer KafkaRecordSerializationSchema "
        "KafkaRecordSerializationSchemaBuilder KafkaSink KafkaSinkBuilder KafkaSource "
        "KafkaSourceBuilder KafkaTopicPartition KafkaTopicSelector"
    ),
    "pyflink.datastream.connectors.number_seq": "NumberSequenceSource",
    "pyflink.datastream.data_stream": (f"{_STREAMS} AllWindowedStream CloseableIterator"),
    "pyflink.datastream.execution_mode": "RuntimeExecutionMode",
    "pyflink.datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "pyflink.datastream.formats": "",
    "pyflink.datastream.formats.csv": (f"{_CSV_ROWS} CsvBulkWriters CsvReaderFormat CsvSchema"),
    "pyflink.datastream.formats.json": _JSON,
    "pyflink.datastream.formats.parquet": "ParquetBulkWriters ParquetColumnarRowInputFormat",
    "pyflink.datastream.functions": (
        f"{_FUNCTIONS} "
        "AllWindowFunction BaseBroadcastProcessFunction Function KeyedStateStore "
        "ProcessAllWindowFunction TimerService"
    ),
    "pyflink.datastream.output_tag": "OutputTag",
    "pyflink.datastream.slot_sharing_group": "MemorySize SlotSharingGroup",
    "pyflink.datastream.state": (
        "AggregatingState AggregatingStateDescriptor AppendingState BroadcastState ListState "
        "ListStateDescriptor MapState MapStateDescriptor MergingState ReadOnlyBroadcastState "
        "ReducingState ReducingStateDescriptor State StateDescriptor StateTtlConfig ValueState "
        "ValueStateDescriptor"
    ),
    "pyflink.datastream.state_backend": _BACKENDS,
    "pyflink.datastream.stream_execution_environment": "StreamExecutionEnvironment",
    "pyflink.datastream.time_domain": "TimeDomain",
    "pyflink.datastream.timerservice": "TimerService",
    "pyflink.datastream.window": (
        f"{_WINDOWS} "
        "ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger "
        "CountSlidingWindowAssigner CountTrigger CountTumblingWindowAssigner "
        "CountWindowSerializer DynamicEventTimeSessionWindows "
        "DynamicProcessingTimeSessionWindows EventTimeSessionWindows EventTimeTrigger "
        "GlobalWindowSerializer GlobalWindows NeverTrigger ProcessingTimeSessionWindows "
        "ProcessingTimeTrigger PurgingTrigger SessionWindowTimeGapExtractor "
        "SlidingEventTimeWindows SlidingProcessingTimeWindows TimeWindowSerializer "
        "TumblingEventTimeWindows TumblingProcessingTimeWindows"
    ),
    "pyflink.metrics": _METRICS,
    "pyflink.metrics.metricbase": _METRICS,
}

MODULES: Final = {module: tuple(names.split()) for module, names in _TEXTS.items()}
"""The names of each module, as ``from module import *`` gives them."""

_ELSEWHERE: Final = {
    "BasicTypeInfo": "tidegate.typeinfo.types",
    "CountWindowSerializer": "tidegate.api.windows.window",
    "Counter": "tidegate.metrics",
    "Distribution": "tidegate.metrics",
    "GlobalWindowSerializer": "tidegate.api.windows.window",
    "ListTypeInfo": "tidegate.typeinfo.types",
    "MapTypeInfo": "tidegate.typeinfo.types",
    "MAX_LONG_VALUE": "tidegate.model.elements:MAX_WATERMARK_MS",
    "MIN_LONG_VALUE": "tidegate.model.elements:MIN_TIMESTAMP_MS",
    "Meter": "tidegate.metrics",
    "PickledBytesTypeInfo": "tidegate.typeinfo.types",
    "PrimitiveArrayTypeInfo": "tidegate.typeinfo.types",
    "SqlTimeTypeInfo": "tidegate.typeinfo.types",
    "StreamingFileSink": "tidegate.connectors.files.file_sink:FileSink",
    "TimeWindowSerializer": "tidegate.api.windows.window",
    "TypeSerializer": "tidegate.api.windows.window",
}

_NAMES: Final = frozenset(name for names in MODULES.values() for name in names)

_CONNECTORS: Final = frozenset(
    name
    for module, names in MODULES.items()
    if module.startswith(("pyflink.datastream.connectors", "pyflink.datastream.formats"))
    for name in names
    if name not in ("Sink", "Source")
) | {*_SERIALIZATION.split()}

_OLD_KAFKA: Final = "Use KafkaSource and KafkaSink, which are in the same module."
_JAVA: Final = "It wraps an object of Java's; write a {} in Python."

ABSENT: Final = {
    "CustomCheckpointStorage": "Use FileSystemCheckpointStorage.",
    "CustomStateBackend": "Use HashMapStateBackend or EmbeddedRocksDBStateBackend.",
    "FlinkKafkaConsumer": _OLD_KAFKA,
    "FlinkKafkaProducer": _OLD_KAFKA,
    "InputFormat": _JAVA.format("Source"),
    "Semantic": "Use DeliveryGuarantee, with KafkaSink.",
    "SourceFunction": _JAVA.format("Source"),
}
"""Classes that are not here, in whatever module, and what to use in their place."""

_TABLES: Final = "It has no Table API and no SQL: env.from_spark(df) takes any query of Spark SQL."
_NO_JVM: Final = "No JVM runs beside the program; remove calls that take objects of Java."
_NO_CONNECTOR: Final = "It wraps a connector of Java's; write a Source or a Sink in Python."

ABSENT_MODULES: Final = {
    "pyflink.datastream.connectors.cassandra": _NO_CONNECTOR,
    "pyflink.datastream.connectors.dynamic_kafka": _NO_CONNECTOR,
    "pyflink.datastream.connectors.elasticsearch": _NO_CONNECTOR,
    "pyflink.datastream.connectors.hybrid_source": "Read one source after the other by two jobs.",
    "pyflink.datastream.connectors.kinesis": _NO_CONNECTOR,
    "pyflink.datastream.connectors.pulsar": _NO_CONNECTOR,
    "pyflink.datastream.connectors.rabbitmq": _NO_CONNECTOR,
    "pyflink.datastream.formats.avro": "Use JSON, CSV or Parquet.",
    "pyflink.datastream.formats.orc": "Use Parquet.",
    "pyflink.fn_execution": "It runs PyFlink's own functions.",
    "pyflink.java_gateway": _NO_JVM,
    "pyflink.pyflink_gateway_server": _NO_JVM,
    "pyflink.table": _TABLES,
    "pyflink.util": _NO_JVM,
}
"""Modules that are not here with all below them, and what to do without."""


def place_of(name: str) -> tuple[str, str] | None:
    """Module and name here; None for a name that PyFlink lacks too.

    It does not matter which module was asked: PyFlink's also give what they import themselves.
    """
    if name in _ELSEWHERE:
        module, _, attribute = _ELSEWHERE[name].partition(":")
        return module, attribute or name
    if name not in _NAMES:
        return None
    return ("tidegate.connectors" if name in _CONNECTORS else "tidegate"), name
