from tidegate.api.dead_letters import DeadLetter as DeadLetter
from tidegate.api.functions import AggregateFunction as AggregateFunction
from tidegate.api.functions import BatchContext as BatchContext
from tidegate.api.functions import CheckpointedFunction as CheckpointedFunction
from tidegate.api.functions import CheckpointListener as CheckpointListener
from tidegate.api.functions import FilterFunction as FilterFunction
from tidegate.api.functions import FlatMapFunction as FlatMapFunction
from tidegate.api.functions import Function as Function
from tidegate.api.functions import KeyedBatchFunction as KeyedBatchFunction
from tidegate.api.functions import KeyedProcessFunction as KeyedProcessFunction
from tidegate.api.functions import KeySelector as KeySelector
from tidegate.api.functions import MapFunction as MapFunction
from tidegate.api.functions import Partitioner as Partitioner
from tidegate.api.functions import ProcessFunction as ProcessFunction
from tidegate.api.functions import ReduceFunction as ReduceFunction
from tidegate.api.functions import RuntimeContext as RuntimeContext
from tidegate.api.functions import SinkFunction as SinkFunction
from tidegate.api.functions import SnapshotContext as SnapshotContext
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
from tidegate.api.output_tag import OutputTag as OutputTag
from tidegate.metrics import MetricGroup as MetricGroup
