"""Sources and sinks by name; each is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.connectors.collect import CollectSink
    from tidegate.connectors.collection import CollectionSource
    from tidegate.connectors.files.csv_schema import CsvSchema
    from tidegate.connectors.files.file_sink import FileSink, FileSinkBuilder
    from tidegate.connectors.files.file_source import FileSource, FileSourceBuilder
    from tidegate.connectors.files.formats import (
        BulkFormat,
        CsvReaderFormat,
        ParquetColumnarRowInputFormat,
        StreamFormat,
    )
    from tidegate.connectors.files.rolling import (
        BucketAssigner,
        BulkWriterFactory,
        CsvBulkWriters,
        Encoder,
        OutputFileConfig,
        ParquetBulkWriters,
        RollingPolicy,
    )
    from tidegate.connectors.generator import DataGeneratorSource, NumberSequenceSource
    from tidegate.connectors.jdbc.jdbc_sink import JdbcSink
    from tidegate.connectors.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
    from tidegate.connectors.kafka.kafka_sink import DeliveryGuarantee, KafkaSink, KafkaSinkBuilder
    from tidegate.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
    from tidegate.connectors.kafka.offsets import (
        KafkaOffsetResetStrategy,
        KafkaOffsetsInitializer,
        KafkaTopicPartition,
    )
    from tidegate.connectors.kafka.records import (
        KafkaRecordSerializationSchema,
        KafkaRecordSerializationSchemaBuilder,
        KafkaTopicSelector,
    )
    from tidegate.connectors.polling import Page, PollingSource
    from tidegate.connectors.print import PrintSink
    from tidegate.connectors.schemas.csv_rows import (
        CsvRowDeserializationSchema,
        CsvRowSerializationSchema,
    )
    from tidegate.connectors.schemas.json_rows import (
        JsonRowDeserializationSchema,
        JsonRowSerializationSchema,
    )
    from tidegate.connectors.schemas.messages import (
        ByteArraySchema,
        DeserializationSchema,
        JsonSchema,
        SerializationSchema,
        SimpleStringSchema,
    )

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkWriterFactory",
    "ByteArraySchema",
    "CollectSink",
    "CollectionSource",
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "DataGeneratorSource",
    "DeliveryGuarantee",
    "DeserializationSchema",
    "Encoder",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "JsonSchema",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "NumberSequenceSource",
    "OutputFileConfig",
    "Page",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "PollingSource",
    "PrintSink",
    "RollingPolicy",
    "SerializationSchema",
    "SimpleStringSchema",
    "StreamFormat",
]

_PLACES = {
    "BucketAssigner": "tidegate.connectors.files.rolling",
    "BulkFormat": "tidegate.connectors.files.formats",
    "BulkWriterFactory": "tidegate.connectors.files.rolling",
    "ByteArraySchema": "tidegate.connectors.schemas.messages",
    "CollectSink": "tidegate.connectors.collect",
    "CollectionSource": "tidegate.connectors.collection",
    "CsvBulkWriters": "tidegate.connectors.files.rolling",
    "CsvReaderFormat": "tidegate.connectors.files.formats",
    "CsvRowDeserializationSchema": "tidegate.connectors.schemas.csv_rows",
    "CsvRowSerializationSchema": "tidegate.connectors.schemas.csv_rows",
    "CsvSchema": "tidegate.connectors.files.csv_schema",
    "DataGeneratorSource": "tidegate.connectors.generator",
    "DeliveryGuarantee": "tidegate.connectors.kafka.kafka_sink",
    "DeserializationSchema": "tidegate.connectors.schemas.messages",
    "Encoder": "tidegate.connectors.files.rolling",
    "FileSink": "tidegate.connectors.files.file_sink",
    "FileSinkBuilder": "tidegate.connectors.files.file_sink",
    "FileSource": "tidegate.connectors.files.file_source",
    "FileSourceBuilder": "tidegate.connectors.files.file_source",
    "JdbcConnectionOptions": "tidegate.connectors.jdbc.options",
    "JdbcExecutionOptions": "tidegate.connectors.jdbc.options",
    "JdbcSink": "tidegate.connectors.jdbc.jdbc_sink",
    "JsonRowDeserializationSchema": "tidegate.connectors.schemas.json_rows",
    "JsonRowSerializationSchema": "tidegate.connectors.schemas.json_rows",
    "JsonSchema": "tidegate.connectors.schemas.messages",
    "KafkaOffsetResetStrategy": "tidegate.connectors.kafka.offsets",
    "KafkaOffsetsInitializer": "tidegate.connectors.kafka.offsets",
    "KafkaRecordSerializationSchema": "tidegate.connectors.kafka.records",
    "KafkaRecordSerializationSchemaBuilder": "tidegate.connectors.kafka.records",
    "KafkaSink": "tidegate.connectors.kafka.kafka_sink",
    "KafkaSinkBuilder": "tidegate.connectors.kafka.kafka_sink",
    "KafkaSource": "tidegate.connectors.kafka.kafka_source",
    "KafkaSourceBuilder": "tidegate.connectors.kafka.kafka_source",
    "KafkaTopicPartition": "tidegate.connectors.kafka.offsets",
    "KafkaTopicSelector": "tidegate.connectors.kafka.records",
    "NumberSequenceSource": "tidegate.connectors.generator",
    "OutputFileConfig": "tidegate.connectors.files.rolling",
    "Page": "tidegate.connectors.polling",
    "ParquetBulkWriters": "tidegate.connectors.files.rolling",
    "ParquetColumnarRowInputFormat": "tidegate.connectors.files.formats",
    "PollingSource": "tidegate.connectors.polling",
    "PrintSink": "tidegate.connectors.print",
    "RollingPolicy": "tidegate.connectors.files.rolling",
    "SerializationSchema": "tidegate.connectors.schemas.messages",
    "SimpleStringSchema": "tidegate.connectors.schemas.messages",
    "StreamFormat": "tidegate.connectors.files.formats",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'tidegate.connectors' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
