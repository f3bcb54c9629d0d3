from flinkformat.snapshots import SavepointFormatType as SavepointFormatType
from tidegate.config.configuration import Configuration as Configuration
from tidegate.config.execution import RuntimeExecutionMode as RuntimeExecutionMode
from tidegate.datastream.settings.checkpoint_config import CheckpointConfig as CheckpointConfig
from tidegate.datastream.settings.execution_config import ExecutionConfig as ExecutionConfig
from tidegate.datastream.settings.restart_strategies import RestartStrategies as RestartStrategies
from tidegate.datastream.settings.restart_strategies import (
    RestartStrategyConfiguration as RestartStrategyConfiguration,
)
from tidegate.datastream.settings.slot_sharing import MemorySize as MemorySize
from tidegate.datastream.settings.slot_sharing import SlotSharingGroup as SlotSharingGroup
from tidegate.datastream.settings.state_backends import CheckpointStorage as CheckpointStorage
from tidegate.datastream.settings.state_backends import (
    EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
)
from tidegate.datastream.settings.state_backends import (
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
)
from tidegate.datastream.settings.state_backends import HashMapStateBackend as HashMapStateBackend
from tidegate.datastream.settings.state_backends import (
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
)
from tidegate.datastream.settings.state_backends import PredefinedOptions as PredefinedOptions
from tidegate.datastream.settings.state_backends import StateBackend as StateBackend
from tidegate.model.settings import CheckpointingMode as CheckpointingMode
from tidegate.model.settings import ClaimMode as ClaimMode
from tidegate.model.settings import RetentionPolicy

ExternalizedCheckpointRetention = RetentionPolicy
