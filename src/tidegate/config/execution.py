"""Options of the program as a whole: parallelism, mode, chains, time, what fails in it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import (
    BooleanType,
    DurationType,
    EnumType,
    IntegerType,
    ListType,
    MapType,
    TextType,
)
from tidegate.model.settings import LoopForm

_TEXT: Final = TextType()
_BOOLEAN: Final = BooleanType()
_DURATION: Final = DurationType()
_COUNT: Final = IntegerType(at_least=0)
_POSITIVE: Final = IntegerType(at_least=1)


class RuntimeExecutionMode(Enum):
    """Kind of execution: a stream, or a batch without checkpoints and with final results only.

    AUTOMATIC: as a batch where all sources are bounded.
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


class BatchShuffleMode(Enum):
    """How tasks of a batch give each other rows on Spark.

    ALL_EXCHANGES_BLOCKING: by Spark's shuffle, a stage after the other. ALL_EXCHANGES_PIPELINED: by
    links between slots that all run at once.
    """

    ALL_EXCHANGES_BLOCKING = "ALL_EXCHANGES_BLOCKING"
    ALL_EXCHANGES_PIPELINED = "ALL_EXCHANGES_PIPELINED"


PARALLELISM: Final = ConfigOption(
    "parallelism.default",
    _POSITIVE,
    1,
    "Number of parallel instances of an operator that sets none.",
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    IntegerType(at_least=-1, at_most=32_768),
    -1,
    "Number of key groups, the upper bound of any later parallelism; -1 derives it.",
)
RUNTIME_MODE: Final = ConfigOption(
    "execution.runtime-mode",
    EnumType(RuntimeExecutionMode),
    RuntimeExecutionMode.STREAMING,
    "STREAMING, BATCH (bounded input, no checkpoints, final results only), or AUTOMATIC.",
)
BATCH_SHUFFLE_MODE: Final = ConfigOption(
    "execution.batch-shuffle-mode",
    EnumType(BatchShuffleMode),
    BatchShuffleMode.ALL_EXCHANGES_BLOCKING,
    "On Spark in BATCH: ALL_EXCHANGES_BLOCKING runs stages over Spark's own shuffle, "
    "ALL_EXCHANGES_PIPELINED runs slots that are linked. Local jobs are always pipelined.",
)
END_WITH_SAVEPOINT: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.batch.savepoint-dir",
    _TEXT,
    None,
    "Folder in which a batch on Spark leaves a savepoint at its end, for a live job to go on from. "
    "Event time then ends with the input's last watermark: windows and timers beyond stay open.",
)
JOB_NAME: Final[ConfigOption[str | None]] = ConfigOption(
    "pipeline.name", _TEXT, None, "Name of the job; by default, the name of the script."
)
GLOBAL_JOB_PARAMETERS: Final[ConfigOption[dict[str, str] | None]] = ConfigOption(
    "pipeline.global-job-parameters",
    MapType(),
    None,
    "Free parameters that functions read through their runtime context.",
)
PYTHON_FILES: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "python.files",
    ListType(),
    (),
    "Python files, archives and folders that functions can import wherever they run.",
)
SHIP: Final = ConfigOption(
    "tidegate.spark.ship",
    _BOOLEAN,
    False,
    "Give Tidegate, and what it needs, to executors that have PySpark, pandas and PyArrow alone. "
    "The packages that are installed here are packed once, and kept in a cache folder.",
)
OPERATOR_CHAINING: Final = ConfigOption(
    "pipeline.operator-chaining.enabled",
    _BOOLEAN,
    True,
    "Run consecutive operators in one task.",
    old_keys=("pipeline.operator-chaining",),
)
AUTO_GENERATE_UIDS: Final = ConfigOption(
    "pipeline.auto-generate-uids",
    _BOOLEAN,
    True,
    "Derive ids for operators without a uid; if off, such operators are refused.",
)
OBJECT_REUSE: Final = ConfigOption(
    "pipeline.object-reuse",
    _BOOLEAN,
    False,
    "Pass values of mutable types on without copying them.",
)
TRACE_FUNCTIONS: Final = ConfigOption(
    "pipeline.trace-functions",
    _BOOLEAN,
    True,
    "Evaluate pure functions of numbers over whole batches, with the results that they give row by "
    "row. If off, each is called for each row.",
)
LOOPS: Final = ConfigOption(
    "tidegate.loops",
    EnumType(LoopForm),
    LoopForm.AUTO,
    "Form of the loops around user functions: compiled by 'tidegate compile', or interpreted. auto "
    "takes what the variable TIDEGATE_LOOPS says, else compiled ones where they are there.",
)
AUTO_WATERMARK_INTERVAL: Final = ConfigOption(
    "pipeline.auto-watermark-interval",
    _DURATION,
    200,
    "Time between two watermarks of a periodic generator; 0 emits none.",
)
BUFFER_TIMEOUT_ENABLED: Final = ConfigOption(
    "execution.buffer-timeout.enabled",
    _BOOLEAN,
    True,
    "Send partly filled batches after a time; if off, send only full ones.",
)
BUFFER_TIMEOUT: Final = ConfigOption(
    "execution.buffer-timeout.interval",
    _DURATION,
    100,
    "Age at which a partly filled batch is sent; 0 sends it at once.",
    old_keys=("execution.buffer-timeout",),
)
COMMITTER_RETRIES: Final = ConfigOption(
    "sink.committer.retries",
    _COUNT,
    10,
    "Number of times a failed commit of a sink is retried before the job fails over.",
)
DEAD_LETTERS: Final[ConfigOption[str | None]] = ConfigOption(
    "pipeline.dead-letters",
    _TEXT,
    None,
    "Folder for rows that fail in steps without state, as JSON lines; if unset, they fail the job.",
)
LOCAL_IN_PROCESS: Final = ConfigOption(
    "tidegate.local.in-process",
    _BOOLEAN,
    False,
    "Run the slots of local jobs in the program's own process, for debuggers: a breakpoint works, "
    "but a function that does not return stops the driver too.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    PARALLELISM,
    MAX_PARALLELISM,
    RUNTIME_MODE,
    BATCH_SHUFFLE_MODE,
    END_WITH_SAVEPOINT,
    JOB_NAME,
    GLOBAL_JOB_PARAMETERS,
    PYTHON_FILES,
    SHIP,
    OPERATOR_CHAINING,
    AUTO_GENERATE_UIDS,
    OBJECT_REUSE,
    TRACE_FUNCTIONS,
    LOOPS,
    AUTO_WATERMARK_INTERVAL,
    BUFFER_TIMEOUT_ENABLED,
    BUFFER_TIMEOUT,
    COMMITTER_RETRIES,
    DEAD_LETTERS,
    LOCAL_IN_PROCESS,
)
