from flinkformat.snapshots import SavepointFormatType as SavepointFormatType
from tidegate.config.configuration import Configuration as Configuration
from tidegate.config.execution import RuntimeExecutionMode as RuntimeExecutionMode
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
from tidegate.model.settings import CheckpointingMode as CheckpointingMode
from tidegate.model.settings import ClaimMode as ClaimMode
from tidegate.model.settings import RetentionPolicy

ExternalizedCheckpointRetention = RetentionPolicy
