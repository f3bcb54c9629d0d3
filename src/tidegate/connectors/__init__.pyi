from tidegate.api.sink import CommittableMessage as CommittableMessage
from tidegate.api.sink import Committer as Committer
from tidegate.api.sink import Prepared as Prepared
from tidegate.api.sink import Sink as Sink
from tidegate.api.sink import SinkWriter as SinkWriter
from tidegate.api.sink import WriterContext as WriterContext
from tidegate.api.source import EnumeratorContext as EnumeratorContext
from tidegate.api.source import ReaderContext as ReaderContext
from tidegate.api.source import Source as Source
from tidegate.api.source import SourceReader as SourceReader
from tidegate.api.source import SplitEnumerator as SplitEnumerator
from tidegate.connectors.collect import CollectSink as CollectSink
from tidegate.connectors.collection import CollectionSource as CollectionSource
from tidegate.connectors.files.file_sink import FileSink as FileSink
from tidegate.connectors.files.file_sink import FileSinkBuilder as FileSinkBuilder
from tidegate.connectors.files.file_source import FileSource as FileSource
from tidegate.connectors.files.file_source import FileSourceBuilder as FileSourceBuilder
from tidegate.connectors.files.formats import BulkFormat as BulkFormat
from tidegate.connectors.files.formats import CsvReaderFormat as CsvReaderFormat
from tidegate.connectors.files.formats import CsvSchema as CsvSchema
from tidegate.connectors.files.formats import (
    ParquetColumnarRowInputFormat as ParquetColumnarRowInputFormat,
)
from tidegate.connectors.files.formats import StreamFormat as StreamFormat
from tidegate.connectors.files.rolling import BucketAssigner as BucketAssigner
from tidegate.connectors.files.rolling import BulkWriterFactory as BulkWriterFactory
from tidegate.connectors.files.rolling import CsvBulkWriters as CsvBulkWriters
from tidegate.connectors.files.rolling import Encoder as Encoder
from tidegate.connectors.files.rolling import OutputFileConfig as OutputFileConfig
from tidegate.connectors.files.rolling import ParquetBulkWriters as ParquetBulkWriters
from tidegate.connectors.files.rolling import RollingPolicy as RollingPolicy
from tidegate.connectors.generator import DataGeneratorSource as DataGeneratorSource
from tidegate.connectors.generator import NumberSequenceSource as NumberSequenceSource
from tidegate.connectors.jdbc.jdbc_sink import JdbcSink as JdbcSink
from tidegate.connectors.jdbc.options import JdbcConnectionOptions as JdbcConnectionOptions
from tidegate.connectors.jdbc.options import JdbcExecutionOptions as JdbcExecutionOptions
from tidegate.connectors.kafka.kafka_sink import KafkaSink as KafkaSink
from tidegate.connectors.kafka.kafka_sink import KafkaSinkBuilder as KafkaSinkBuilder
from tidegate.connectors.kafka.kafka_source import KafkaSource as KafkaSource
from tidegate.connectors.kafka.kafka_source import KafkaSourceBuilder as KafkaSourceBuilder
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy as KafkaOffsetResetStrategy
from tidegate.connectors.kafka.offsets import KafkaOffsetsInitializer as KafkaOffsetsInitializer
from tidegate.connectors.kafka.offsets import KafkaTopicPartition as KafkaTopicPartition
from tidegate.connectors.kafka.records import (
    KafkaRecordSerializationSchema as KafkaRecordSerializationSchema,
)
from tidegate.connectors.kafka.records import (
    KafkaRecordSerializationSchemaBuilder as KafkaRecordSerializationSchemaBuilder,
)
from tidegate.connectors.kafka.records import KafkaTopicSelector as KafkaTopicSelector
from tidegate.connectors.polling import Page as Page
from tidegate.connectors.polling import PollingSource as PollingSource
from tidegate.connectors.print import PrintSink as PrintSink
from tidegate.connectors.schemas.csv_rows import (
    CsvRowDeserializationSchema as CsvRowDeserializationSchema,
)
from tidegate.connectors.schemas.csv_rows import (
    CsvRowSerializationSchema as CsvRowSerializationSchema,
)
from tidegate.connectors.schemas.json_rows import (
    JsonRowDeserializationSchema as JsonRowDeserializationSchema,
)
from tidegate.connectors.schemas.json_rows import (
    JsonRowSerializationSchema as JsonRowSerializationSchema,
)
from tidegate.connectors.schemas.messages import ByteArraySchema as ByteArraySchema
from tidegate.connectors.schemas.messages import DeserializationSchema as DeserializationSchema
from tidegate.connectors.schemas.messages import JsonSchema as JsonSchema
from tidegate.connectors.schemas.messages import SerializationSchema as SerializationSchema
from tidegate.connectors.schemas.messages import SimpleStringSchema as SimpleStringSchema
from tidegate.datastream.topologies import StandardSinkTopologies as StandardSinkTopologies
from tidegate.datastream.topologies import WithPostCommitTopology as WithPostCommitTopology
from tidegate.datastream.topologies import WithPreCommitTopology as WithPreCommitTopology
from tidegate.model.topology import Delivery as Delivery
from tidegate.model.topology import DeliveryGuarantee as DeliveryGuarantee
