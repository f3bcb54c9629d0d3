from concurrent.futures import Future
from typing import Final

from flinkformat.row import Row as Row
from flinkformat.row import RowKind as RowKind
from flinkformat.snapshots import SavepointFormatType as SavepointFormatType
from tidegate.api.aggregates import Aggregate as Aggregate
from tidegate.api.aggregates import Collect as Collect
from tidegate.api.aggregates import Count as Count
from tidegate.api.aggregates import CountDistinct as CountDistinct
from tidegate.api.aggregates import First as First
from tidegate.api.aggregates import Last as Last
from tidegate.api.aggregates import Max as Max
from tidegate.api.aggregates import Mean as Mean
from tidegate.api.aggregates import Min as Min
from tidegate.api.aggregates import Sum as Sum
from tidegate.api.dead_letters import DeadLetter as DeadLetter
from tidegate.api.functions import AggregateFunction as AggregateFunction
from tidegate.api.functions import AggregatingStateDescriptor as AggregatingStateDescriptor
from tidegate.api.functions import BatchContext as BatchContext
from tidegate.api.functions import CheckpointedFunction as CheckpointedFunction
from tidegate.api.functions import CheckpointListener as CheckpointListener
from tidegate.api.functions import FilterFunction as FilterFunction
from tidegate.api.functions import FlatMapFunction as FlatMapFunction
from tidegate.api.functions import Function as Function
from tidegate.api.functions import KeyedBatchFunction as KeyedBatchFunction
from tidegate.api.functions import KeyedProcessFunction as KeyedProcessFunction
from tidegate.api.functions import KeyedStateStore as KeyedStateStore
from tidegate.api.functions import KeySelector as KeySelector
from tidegate.api.functions import MapFunction as MapFunction
from tidegate.api.functions import Partitioner as Partitioner
from tidegate.api.functions import ProcessFunction as ProcessFunction
from tidegate.api.functions import ReduceFunction as ReduceFunction
from tidegate.api.functions import ReducingStateDescriptor as ReducingStateDescriptor
from tidegate.api.functions import RuntimeContext as RuntimeContext
from tidegate.api.functions import SinkFunction as SinkFunction
from tidegate.api.functions import SnapshotContext as SnapshotContext
from tidegate.api.functions import TimeDomain as TimeDomain
from tidegate.api.functions import TimerService as TimerService
from tidegate.api.functions.async_functions import AsyncFunction as AsyncFunction
from tidegate.api.functions.async_functions import AsyncRetryPredicate as AsyncRetryPredicate
from tidegate.api.functions.async_functions import AsyncRetryStrategy as AsyncRetryStrategy
from tidegate.api.functions.co_functions import (
    BaseBroadcastProcessFunction as BaseBroadcastProcessFunction,
)
from tidegate.api.functions.co_functions import BroadcastProcessFunction as BroadcastProcessFunction
from tidegate.api.functions.co_functions import CoFlatMapFunction as CoFlatMapFunction
from tidegate.api.functions.co_functions import CoGroupFunction as CoGroupFunction
from tidegate.api.functions.co_functions import CoMapFunction as CoMapFunction
from tidegate.api.functions.co_functions import CoProcessFunction as CoProcessFunction
from tidegate.api.functions.co_functions import JoinFunction as JoinFunction
from tidegate.api.functions.co_functions import (
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
)
from tidegate.api.functions.co_functions import KeyedCoProcessFunction as KeyedCoProcessFunction
from tidegate.api.functions.co_functions import ProcessJoinFunction as ProcessJoinFunction
from tidegate.api.functions.window_functions import AllWindowFunction as AllWindowFunction
from tidegate.api.functions.window_functions import (
    ProcessAllWindowFunction as ProcessAllWindowFunction,
)
from tidegate.api.functions.window_functions import ProcessWindowFunction as ProcessWindowFunction
from tidegate.api.functions.window_functions import WindowFunction as WindowFunction
from tidegate.api.job import CheckpointDone as CheckpointDone
from tidegate.api.job import FailureContext as FailureContext
from tidegate.api.job import FailureEnricher as FailureEnricher
from tidegate.api.job import FailureKind as FailureKind
from tidegate.api.job import JobClient as JobClient
from tidegate.api.job import JobExecutionResult as JobExecutionResult
from tidegate.api.job import JobExecutionStatusEvent as JobExecutionStatusEvent
from tidegate.api.job import JobStatusChangedListener as JobStatusChangedListener
from tidegate.api.job import JobSummary as JobSummary
from tidegate.api.job import MasterStateSerializer as MasterStateSerializer
from tidegate.api.job import MasterTriggerRestoreHook as MasterTriggerRestoreHook
from tidegate.api.output_tag import OutputTag as OutputTag
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
from tidegate.api.state import AggregatingState as AggregatingState
from tidegate.api.state import AppendingState as AppendingState
from tidegate.api.state import BroadcastState as BroadcastState
from tidegate.api.state import ColumnState as ColumnState
from tidegate.api.state import ColumnStateDescriptor as ColumnStateDescriptor
from tidegate.api.state import ListState as ListState
from tidegate.api.state import ListStateDescriptor as ListStateDescriptor
from tidegate.api.state import MapState as MapState
from tidegate.api.state import MapStateDescriptor as MapStateDescriptor
from tidegate.api.state import MergingState as MergingState
from tidegate.api.state import OperatorListState as OperatorListState
from tidegate.api.state import OperatorStateDescriptor as OperatorStateDescriptor
from tidegate.api.state import ReadOnlyBroadcastState as ReadOnlyBroadcastState
from tidegate.api.state import RedistributionMode as RedistributionMode
from tidegate.api.state import ReducingState as ReducingState
from tidegate.api.state import State as State
from tidegate.api.state import StateDescriptor as StateDescriptor
from tidegate.api.state import ValueState as ValueState
from tidegate.api.state import ValueStateDescriptor as ValueStateDescriptor
from tidegate.api.state.descriptors import StateTtlConfig as StateTtlConfig
from tidegate.api.watermarks import TimestampAssigner as TimestampAssigner
from tidegate.api.watermarks import WatermarkGenerator as WatermarkGenerator
from tidegate.api.watermarks import WatermarkOutput as WatermarkOutput
from tidegate.api.watermarks import WatermarkStrategy as WatermarkStrategy
from tidegate.api.windows import CountWindow as CountWindow
from tidegate.api.windows import GlobalWindow as GlobalWindow
from tidegate.api.windows import TimeWindow as TimeWindow
from tidegate.api.windows import Window as Window
from tidegate.api.windows.assigners import AlignedWindows as AlignedWindows
from tidegate.api.windows.assigners import CountSlidingWindowAssigner as CountSlidingWindowAssigner
from tidegate.api.windows.assigners import (
    CountTumblingWindowAssigner as CountTumblingWindowAssigner,
)
from tidegate.api.windows.assigners import (
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
)
from tidegate.api.windows.assigners import (
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
)
from tidegate.api.windows.assigners import EventTimeSessionWindows as EventTimeSessionWindows
from tidegate.api.windows.assigners import GlobalWindows as GlobalWindows
from tidegate.api.windows.assigners import MergingWindowAssigner as MergingWindowAssigner
from tidegate.api.windows.assigners import (
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
)
from tidegate.api.windows.assigners import (
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
)
from tidegate.api.windows.assigners import SlidingEventTimeWindows as SlidingEventTimeWindows
from tidegate.api.windows.assigners import (
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
)
from tidegate.api.windows.assigners import TumblingEventTimeWindows as TumblingEventTimeWindows
from tidegate.api.windows.assigners import (
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from tidegate.api.windows.assigners import WindowAssigner as WindowAssigner
from tidegate.api.windows.evictors import CountEvictor as CountEvictor
from tidegate.api.windows.evictors import DeltaEvictor as DeltaEvictor
from tidegate.api.windows.evictors import Evictor as Evictor
from tidegate.api.windows.evictors import TimeEvictor as TimeEvictor
from tidegate.api.windows.evictors import TimestampedValue as TimestampedValue
from tidegate.api.windows.triggers import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
from tidegate.api.windows.triggers import (
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
)
from tidegate.api.windows.triggers import CountTrigger as CountTrigger
from tidegate.api.windows.triggers import EventTimeTrigger as EventTimeTrigger
from tidegate.api.windows.triggers import NeverTrigger as NeverTrigger
from tidegate.api.windows.triggers import OnMergeContext as OnMergeContext
from tidegate.api.windows.triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
from tidegate.api.windows.triggers import PurgingTrigger as PurgingTrigger
from tidegate.api.windows.triggers import Trigger as Trigger
from tidegate.api.windows.triggers import TriggerContext as TriggerContext
from tidegate.api.windows.triggers import TriggerResult as TriggerResult
from tidegate.config.configuration import Configuration as Configuration
from tidegate.config.execution import RuntimeExecutionMode as RuntimeExecutionMode
from tidegate.datastream.async_stream import AsyncDataStream as AsyncDataStream
from tidegate.datastream.connected import BroadcastConnectedStream as BroadcastConnectedStream
from tidegate.datastream.connected import BroadcastStream as BroadcastStream
from tidegate.datastream.connected import ConnectedStreams as ConnectedStreams
from tidegate.datastream.environment import StreamExecutionEnvironment as StreamExecutionEnvironment
from tidegate.datastream.joined import CoGroupedWindows as CoGroupedWindows
from tidegate.datastream.joined import IntervalJoin as IntervalJoin
from tidegate.datastream.joined import IntervalJoined as IntervalJoined
from tidegate.datastream.joined import JoinedStreams as JoinedStreams
from tidegate.datastream.joined import JoinedWindows as JoinedWindows
from tidegate.datastream.keyed import KeyedStream as KeyedStream
from tidegate.datastream.results import CloseableIterator as CloseableIterator
from tidegate.datastream.settings.configs import CheckpointConfig as CheckpointConfig
from tidegate.datastream.settings.configs import ExecutionConfig as ExecutionConfig
from tidegate.datastream.settings.slot_sharing import MemorySize as MemorySize
from tidegate.datastream.settings.slot_sharing import SlotSharingGroup as SlotSharingGroup
from tidegate.datastream.settings.strategies import CheckpointStorage as CheckpointStorage
from tidegate.datastream.settings.strategies import (
    EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
)
from tidegate.datastream.settings.strategies import (
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
)
from tidegate.datastream.settings.strategies import HashMapStateBackend as HashMapStateBackend
from tidegate.datastream.settings.strategies import (
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
)
from tidegate.datastream.settings.strategies import PredefinedOptions as PredefinedOptions
from tidegate.datastream.settings.strategies import RestartStrategies as RestartStrategies
from tidegate.datastream.settings.strategies import (
    RestartStrategyConfiguration as RestartStrategyConfiguration,
)
from tidegate.datastream.settings.strategies import StateBackend as StateBackend
from tidegate.datastream.stream import DataStream as DataStream
from tidegate.datastream.stream_sink import DataStreamSink as DataStreamSink
from tidegate.datastream.topologies import StandardSinkTopologies as StandardSinkTopologies
from tidegate.datastream.topologies import WithPostCommitTopology as WithPostCommitTopology
from tidegate.datastream.topologies import WithPreCommitTopology as WithPreCommitTopology
from tidegate.datastream.utils import DataStreamUtils as DataStreamUtils
from tidegate.datastream.windowed import AllWindowedStream as AllWindowedStream
from tidegate.datastream.windowed import WindowedStream as WindowedStream
from tidegate.errors import BadRecord as BadRecord
from tidegate.errors import CheckpointAborted as CheckpointAborted
from tidegate.errors import CommitFailed as CommitFailed
from tidegate.errors import ConfigError as ConfigError
from tidegate.errors import GraphError as GraphError
from tidegate.errors import JobCanceled as JobCanceled
from tidegate.errors import JobFailed as JobFailed
from tidegate.errors import JobSuspended as JobSuspended
from tidegate.errors import RescaleRefused as RescaleRefused
from tidegate.errors import RestoreRefused as RestoreRefused
from tidegate.errors import SlotsMissing as SlotsMissing
from tidegate.errors import StopWithSavepointFailed as StopWithSavepointFailed
from tidegate.errors import TidegateError as TidegateError
from tidegate.errors import UnsupportedKey as UnsupportedKey
from tidegate.errors import UserCodeFailed as UserCodeFailed
from tidegate.errors import UserError as UserError
from tidegate.jobmaster.view import JobView as JobView
from tidegate.metrics import MetricGroup as MetricGroup
from tidegate.migration.from_flink import MigratedState as MigratedState
from tidegate.migration.from_flink import MigrationReport as MigrationReport
from tidegate.migration.from_flink import migrate_savepoint as migrate_savepoint
from tidegate.migration.rewrite import rewrite_flink_savepoint as rewrite_flink_savepoint
from tidegate.model.control import JobStatus as JobStatus
from tidegate.model.control import LogRecord as LogRecord
from tidegate.model.duration import Duration as Duration
from tidegate.model.duration import Instant as Instant
from tidegate.model.duration import Time as Time
from tidegate.model.elements import ArrowBatch as ArrowBatch
from tidegate.model.elements import RowBatch as RowBatch
from tidegate.model.ids import JobId
from tidegate.model.logs import LogEntry as LogEntry
from tidegate.model.logs import LogFilter as LogFilter
from tidegate.model.logs import LogPage as LogPage
from tidegate.model.settings import CheckpointingMode as CheckpointingMode
from tidegate.model.settings import ClaimMode as ClaimMode
from tidegate.model.settings import RetentionPolicy
from tidegate.snapshots.checking.findings import CheckedSnapshot as CheckedSnapshot
from tidegate.snapshots.checking.findings import Fault as Fault
from tidegate.snapshots.checking.findings import Finding as Finding
from tidegate.snapshots.checking.findings import FsckReport as FsckReport
from tidegate.snapshots.checking.fsck import fsck as fsck
from tidegate.snapshots.differences import EntryDiff as EntryDiff
from tidegate.snapshots.differences import FileReuse as FileReuse
from tidegate.snapshots.differences import OperatorDiff as OperatorDiff
from tidegate.snapshots.differences import SnapshotDiff as SnapshotDiff
from tidegate.snapshots.differences import StateDiff as StateDiff
from tidegate.snapshots.differences import diff_snapshots as diff_snapshots
from tidegate.snapshots.folders import SavepointInfo as SavepointInfo
from tidegate.snapshots.folders import dispose_savepoint as dispose_savepoint
from tidegate.snapshots.folders import list_savepoints as list_savepoints
from tidegate.snapshots.rows import OperatorInfo as OperatorInfo
from tidegate.snapshots.rows import StateInfo as StateInfo
from tidegate.snapshots.rows import StateKind as StateKind
from tidegate.snapshots.rows import StateRow as StateRow
from tidegate.snapshots.snapshot import Snapshot as Snapshot
from tidegate.snapshots.summary import KeyGroupSummary as KeyGroupSummary
from tidegate.snapshots.summary import OperatorSummary as OperatorSummary
from tidegate.snapshots.summary import SnapshotSummary as SnapshotSummary
from tidegate.snapshots.summary import StateSummary as StateSummary
from tidegate.snapshots.summary import inspect_snapshot as inspect_snapshot
from tidegate.snapshots.tables import StateTable as StateTable
from tidegate.snapshots.tables import read_state as read_state
from tidegate.snapshots.writing.writer import SavepointWriter as SavepointWriter
from tidegate.spark.micro_batches import MicroBatches as MicroBatches
from tidegate.spark.state_source import StateDataSource as StateDataSource
from tidegate.spark.state_source import register_state_source as register_state_source
from tidegate.spark.state_source import state_options as state_options
from tidegate.typeinfo.types import RowTypeInfo as RowTypeInfo
from tidegate.typeinfo.types import TupleTypeInfo as TupleTypeInfo
from tidegate.typeinfo.types import TypeInformation as TypeInformation
from tidegate.typeinfo.types import Types as Types
from tidegate.upgrade.check import check_upgrade as check_upgrade
from tidegate.upgrade.report import OperatorFit as OperatorFit
from tidegate.upgrade.report import OperatorMatch as OperatorMatch
from tidegate.upgrade.report import StateFit as StateFit
from tidegate.upgrade.report import StateVerdict as StateVerdict
from tidegate.upgrade.report import UpgradeFault as UpgradeFault
from tidegate.upgrade.report import UpgradeFinding as UpgradeFinding
from tidegate.upgrade.report import UpgradeReport as UpgradeReport
from tidegate.upgrade.report import UpgradeSeverity as UpgradeSeverity

__version__: Final = "0.2.0"
CompletableFuture = Future
ExternalizedCheckpointRetention = RetentionPolicy
JobID = JobId
