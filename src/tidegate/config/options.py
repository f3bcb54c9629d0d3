"""Every option that Tidegate reads: Flink's under Flink's keys, ours under ``tidegate.*``.

Source of keys, defaults and old keys: Flink 2.3. An option whose default differs says why in
``differs``. An option stands here only when something reads it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from flinkformat.snapshots import RetentionPolicy
from tidegate.config import (
    cancellation,
    changelog,
    debloat,
    high_availability,
    rest,
    rocksdb,
    security,
    state_files,
    warnings,
)
from tidegate.config.flink_keys import FLINK_KEYS
from tidegate.config.option import ConfigOption
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    DurationType,
    EnumType,
    IntegerType,
    ListType,
    MapType,
    MemoryType,
    NumberType,
    PortRangeType,
    TextType,
)
from tidegate.model.settings import CheckpointingMode, ClaimMode

_TEXT: Final = TextType()
_BOOLEAN: Final = BooleanType()
_DURATION: Final = DurationType()
_COUNT: Final = IntegerType(at_least=0)
_POSITIVE: Final = IntegerType(at_least=1)

_MINUTE_MS: Final = 60_000
_KIB: Final = 1024


class RuntimeExecutionMode(Enum):
    """Whether a job runs as a stream, or as a batch: without checkpoints, with final results only.

    AUTOMATIC: as a batch where all sources are bounded.
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


# Checkpointing

CHECKPOINT_INTERVAL: Final[ConfigOption[int | None]] = ConfigOption(
    "execution.checkpointing.interval",
    _DURATION,
    None,
    "Time between two periodic checkpoints; unset or below 10 ms takes none. A value below the "
    "minimum pause is raised to it.",
)
CHECKPOINT_MODE: Final = ConfigOption(
    "execution.checkpointing.mode",
    EnumType(CheckpointingMode),
    CheckpointingMode.EXACTLY_ONCE,
    "The guarantee of checkpoints; at-least-once never holds back a channel.",
)
CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.timeout",
    DurationType(at_least_ms=10),
    10 * _MINUTE_MS,
    "A checkpoint that takes longer is given up.",
)
CHECKPOINT_MIN_PAUSE: Final = ConfigOption(
    "execution.checkpointing.min-pause",
    _DURATION,
    0,
    "Least time from the end of one checkpoint to the start of the next periodic one; at most a "
    "year counts.",
)
MAX_CONCURRENT_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    _POSITIVE,
    1,
    "How many checkpoints may be under way at once; 1 with unaligned checkpoints.",
)
TOLERABLE_FAILED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    _COUNT,
    0,
    "Failed checkpoints in a row that the job survives without a restart.",
)
CHECKPOINT_INTERVAL_DURING_BACKLOG: Final[ConfigOption[int | None]] = ConfigOption(
    "execution.checkpointing.interval-during-backlog",
    _DURATION,
    None,
    "Interval while a source reports a backlog; 0 takes none meanwhile, unset keeps the interval.",
)
CHECKPOINT_RETENTION: Final = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    EnumType(RetentionPolicy),
    RetentionPolicy.RETAIN_ON_CANCELLATION,
    "Which checkpoints stay when the job is cancelled or fails; those of a finished job go.",
    differs="Flink keeps none, and its documentation tells everybody to change that. Driver and "
    "job are one here, so that a cancelled or failed job is one that somebody wants to go on with.",
)
RETAINED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.num-retained",
    IntegerType(),
    2,
    "How many completed checkpoints are kept; a value below 1 counts as the default.",
    old_keys=("state.checkpoints.num-retained",),
    differs="Flink keeps one. A second one is there when a file of the newest is damaged.",
)
CHECKPOINTS_AFTER_TASKS_FINISH: Final = ConfigOption(
    "execution.checkpointing.checkpoints-after-tasks-finish",
    _BOOLEAN,
    True,
    "Go on with checkpoints when some tasks have finished; tasks wait for a last one.",
    old_keys=("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
)
UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    _BOOLEAN,
    False,
    "Barriers overtake batches under way, which become part of the checkpoint; needs "
    "exactly-once and one checkpoint at a time.",
    old_keys=("execution.checkpointing.unaligned",),
)
ALIGNED_CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    _DURATION,
    0,
    "With unaligned checkpoints: start aligned, turn unaligned after this time; 0 turns at once.",
    old_keys=("execution.checkpointing.alignment-timeout",),
)
PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT: Final = ConfigOption(
    "pipeline.sources.pause-until-first-checkpoint",
    _BOOLEAN,
    False,
    "Sources give no rows until the first checkpoint after each start and restart is complete; "
    "it is triggered early.",
)
FORCE_UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.forced",
    _BOOLEAN,
    False,
    "Permit unaligned checkpoints where they are refused, such as with custom partitioners.",
)

CHECKPOINTS_DURING_RECOVERY: Final = ConfigOption(
    "execution.checkpointing.during-recovery.enabled",
    _BOOLEAN,
    True,
    "Take checkpoints while restored in-flight data are still being read.",
    differs="In Flink it is experimental. Here such data are saved again as any others, and "
    "without it a job under backpressure has no new checkpoint until they are read.",
)
SUBTASKS_PER_CHANNEL_STATE_FILE: Final = ConfigOption(
    "execution.checkpointing.unaligned.max-subtasks-per-channel-state-file",
    IntegerType(1),
    5,
    "How many subtasks of one slot share a file of in-flight data; 1 for a file each.",
)

# Storage of checkpoints

CHECKPOINT_STORAGE: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.storage",
    ChoiceType(("jobmanager", "filesystem")),
    None,
    "Where checkpoints are kept; unset means the file system where a directory is given, else "
    "the driver's memory.",
    old_keys=("state.checkpoint-storage",),
)
CHECKPOINT_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.dir",
    _TEXT,
    None,
    "Folder of checkpoints, a path or URL that the driver and all slots reach.",
    old_keys=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
SAVEPOINT_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.savepoint-dir",
    _TEXT,
    None,
    "Folder of savepoints that are asked for without one.",
    old_keys=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
INLINE_THRESHOLD: Final = ConfigOption(
    "execution.checkpointing.data-inline-threshold",
    MemoryType(at_most=_KIB * _KIB),
    20 * _KIB,
    "State smaller than this is kept inside the metadata file.",
    old_keys=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
)
FILE_MERGING: Final = ConfigOption(
    "execution.checkpointing.file-merging.enabled",
    _BOOLEAN,
    False,
    "Write the states of one subtask in a checkpoint into one file instead of a file each; not "
    "those of savepoints, which can be moved.",
)
MERGED_FILE_SIZE: Final = ConfigOption(
    "execution.checkpointing.file-merging.max-file-size",
    MemoryType(),
    32 * _KIB * _KIB,
    "A merged file of this size takes no further state; the next one begins another file.",
)
SNAPSHOT_COMPRESSION: Final = ConfigOption(
    "execution.checkpointing.snapshot-compression",
    _BOOLEAN,
    False,
    "Compress keyed and operator state where it is written; not the files of state on disk, which "
    "have a compression of their own. Snapshots of either kind are restored whatever is set.",
)

# Recovery

RESTORE_PATH: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.state-recovery.path",
    _TEXT,
    None,
    "Checkpoint or savepoint to start from.",
    old_keys=("execution.savepoint.path",),
)
RESTORE_WITHOUT_IN_FLIGHT_DATA: Final = ConfigOption(
    "execution.state-recovery.without-channel-state.checkpoint-id",
    IntegerType(-1),
    -1,
    "Where exactly this checkpoint is restored, lose its in-flight data; -1 for none.",
    old_keys=("execution.checkpointing.recover-without-channel-state.checkpoint-id",),
)
RESTORE_CLAIM_MODE: Final = ConfigOption(
    "execution.state-recovery.claim-mode",
    EnumType(ClaimMode),
    ClaimMode.NO_CLAIM,
    "Who owns the files of the snapshot that the job starts from.",
    old_keys=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE: Final = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    _BOOLEAN,
    False,
    "Allow state in that snapshot which no operator takes.",
    old_keys=("execution.savepoint.ignore-unclaimed-state",),
)
LAST_CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "tidegate.interrupt.checkpoint-timeout",
    _DURATION,
    10_000,
    "How long Ctrl-C and SIGTERM wait for a last checkpoint before the job is suspended.",
)
PRINTED_LINES: Final = ConfigOption(
    "tidegate.print.lines-to-driver",
    _COUNT,
    0,
    "How many lines a second each slot sends to the driver, which prints them, of what functions "
    "print and log; the others are counted. With 0 they stay where the slot runs.",
)
SUMMARY: Final = ConfigOption(
    "tidegate.job.summary",
    _BOOLEAN,
    True,
    "Say on standard error, when a job ends, what became of its rows, checkpoints and restarts.",
)
RESTORE_FALL_BACK: Final = ConfigOption(
    "tidegate.restore.fall-back",
    _BOOLEAN,
    False,
    "Go back to an older checkpoint where the newest is damaged; what came after it is read and "
    "written again. Else the job is suspended.",
)
FORK_NAME: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.fork.name",
    _TEXT,
    None,
    "Run the program as a fork of the job whose snapshot it starts from: under this name, whatever "
    "it calls itself, and with sinks that start empty, so that what that job has not committed is "
    "left to it. Set by `tidegate fork`.",
)

# Restart

FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    ChoiceType(("region", "full")),
    "region",
    "What a failed subtask takes along in a restart: the subtasks that it is connected with, or "
    "all.",
)
RESCALE_MAX_DELAY: Final[ConfigOption[int | None]] = ConfigOption(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
    DurationType(),
    None,
    "Longest wait of a rescale for the next checkpoint; then it starts from the newest there is. "
    "Unset, it is the interval of checkpoints times one more than "
    "`jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures`; without periodic "
    "checkpoints it is 0.",
)
RESCALE_CHECKPOINT_FAILURES: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
    IntegerType(at_least=1),
    2,
    "Failed checkpoints after which a rescale waits no longer and starts from the newest there is.",
)
RESTART_STRATEGY: Final[ConfigOption[str | None]] = ConfigOption(
    "restart-strategy.type",
    ChoiceType(
        ("disable", "fixed-delay", "failure-rate", "exponential-delay"),
        aliases=(
            ("none", "disable"),
            ("off", "disable"),
            ("fixeddelay", "fixed-delay"),
            ("failurerate", "failure-rate"),
            ("exponentialdelay", "exponential-delay"),
        ),
    ),
    None,
    "When a failed job is restarted; unset means exponential delay with checkpointing, never "
    "without.",
    old_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    _COUNT,
    1,
    "Restarts before the job fails for good.",
)
FIXED_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", _DURATION, 1_000, "Wait before each restart."
)
FAILURE_RATE_MAX: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    _POSITIVE,
    1,
    "Failures allowed within the interval.",
)
FAILURE_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    DurationType(at_least_ms=1),
    _MINUTE_MS,
    "Length of the interval in which failures are counted.",
)
FAILURE_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay", _DURATION, 1_000, "Wait before each restart."
)
EXPONENTIAL_INITIAL: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    DurationType(at_least_ms=1),
    1_000,
    "First wait.",
)
EXPONENTIAL_MAX: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    DurationType(at_least_ms=1),
    _MINUTE_MS,
    "Longest wait.",
)
EXPONENTIAL_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    NumberType(above=1.0),
    1.5,
    "Growth of the wait from failure to failure.",
)
EXPONENTIAL_RESET_THRESHOLD: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DurationType(at_least_ms=1),
    60 * _MINUTE_MS,
    "Time without failure after which the wait is the first one again.",
)
EXPONENTIAL_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    NumberType(at_least=0.0, at_most=1.0),
    0.1,
    "Random share by which the wait is lengthened or shortened.",
)
EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    _POSITIVE,
    2**31 - 1,
    "Restarts without a reset of the wait before the job fails for good.",
)

# State

STATE_BACKEND: Final = ConfigOption(
    "state.backend.type",
    ChoiceType(("hashmap", "rocksdb")),
    "hashmap",
    "Where a running job keeps its keyed state: in memory, or on the local disk (rocksdb).",
    old_keys=("state.backend",),
)

# Pipeline

PARALLELISM: Final = ConfigOption(
    "parallelism.default", _POSITIVE, 1, "Parallel instances of an operator that sets none."
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    IntegerType(at_least=-1, at_most=32_768),
    -1,
    "Number of key groups, the upper bound of any later parallelism; -1 derives it.",
)
AUTO_WATERMARK_INTERVAL: Final = ConfigOption(
    "pipeline.auto-watermark-interval",
    _DURATION,
    200,
    "Time between two watermarks of a periodic generator; 0 emits none.",
)
OBJECT_REUSE: Final = ConfigOption(
    "pipeline.object-reuse",
    _BOOLEAN,
    False,
    "Pass values of mutable types on without a copy.",
)
OPERATOR_CHAINING: Final = ConfigOption(
    "pipeline.operator-chaining.enabled",
    _BOOLEAN,
    True,
    "Run operators that follow one another in one task.",
    old_keys=("pipeline.operator-chaining",),
)
AUTO_GENERATE_UIDS: Final = ConfigOption(
    "pipeline.auto-generate-uids",
    _BOOLEAN,
    True,
    "Derive ids for operators without a uid; off refuses such operators.",
)
JOB_NAME: Final[ConfigOption[str | None]] = ConfigOption(
    "pipeline.name", _TEXT, None, "Name of the job; unset takes the script's."
)
DEAD_LETTERS: Final[ConfigOption[str | None]] = ConfigOption(
    "pipeline.dead-letters",
    _TEXT,
    None,
    "Folder for rows at which steps without state fail, as JSON lines; unset, they fail the job.",
)
GLOBAL_JOB_PARAMETERS: Final[ConfigOption[dict[str, str] | None]] = ConfigOption(
    "pipeline.global-job-parameters",
    MapType(),
    None,
    "Free parameters that functions read through their runtime context.",
)
RUNTIME_MODE: Final = ConfigOption(
    "execution.runtime-mode",
    EnumType(RuntimeExecutionMode),
    RuntimeExecutionMode.STREAMING,
    "STREAMING, BATCH (bounded input, no checkpoints, final results only), or AUTOMATIC.",
)
BUFFER_TIMEOUT_ENABLED: Final = ConfigOption(
    "execution.buffer-timeout.enabled",
    _BOOLEAN,
    True,
    "Send batches that are not full after a time; off sends full ones only.",
)
BUFFER_TIMEOUT: Final = ConfigOption(
    "execution.buffer-timeout.interval",
    _DURATION,
    100,
    "Age at which a batch that is not full is sent; 0 sends at once.",
    old_keys=("execution.buffer-timeout",),
)
PYTHON_FILES: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "python.files",
    ListType(),
    (),
    "Python files, archives and folders that functions can import, wherever they run.",
)
COMMITTER_RETRIES: Final = ConfigOption(
    "sink.committer.retries",
    _COUNT,
    10,
    "Tries to commit what a sink has prepared, beside the first, before the job fails over.",
)

# Liveness and display

HEARTBEAT_INTERVAL: Final = ConfigOption(
    "heartbeat.interval",
    DurationType(at_least_ms=10),
    1_000,
    "Time between two signs of life of a slot.",
    differs="Flink beats each 10 s. A beat here costs next to nothing, and a dead slot is what "
    "users wait for.",
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout",
    DurationType(at_least_ms=100),
    10_000,
    "A peer without a sign of life for this long is taken for dead.",
    differs="Flink waits 50 s. A closed connection tells most losses at once; this bounds the "
    "rest.",
)
TRACE_REPORTERS: Final[ConfigOption[tuple[str, ...] | None]] = ConfigOption(
    "traces.reporters",
    ListType(),
    None,
    "Reporters of spans, one for each checkpoint and each start of the subtasks: 'file', or none.",
)
TRACE_FILE: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.traces.file",
    _TEXT,
    None,
    "File on the driver's machine to which the reporter 'file' appends each span, a line of JSON.",
)
CHECKPOINT_HISTORY: Final = ConfigOption(
    "web.checkpoints.history",
    _COUNT,
    10,
    "Checkpoints that statistics remember.",
    old_keys=("jobmanager.web.checkpoints.history",),
)
EXCEPTION_HISTORY: Final = ConfigOption(
    "web.exception-history-size", _COUNT, 16, "Failures that are remembered for each job."
)

# Ours

BATCH_ROWS: Final = ConfigOption(
    "tidegate.batch.rows",
    IntegerType(at_least=1, at_most=65_536),
    2_048,
    "Rows of a full row batch; 1024 to 4096 is fastest. In front of a slow step it has fewer.",
)
BATCH_ARROW_ROWS: Final = ConfigOption(
    "tidegate.batch.arrow-rows",
    IntegerType(at_least=1, at_most=1 << 24),
    65_536,
    "Rows of a full Arrow batch.",
)
CHANNEL_CREDIT: Final = ConfigOption(
    "tidegate.net.credit",
    IntegerType(at_least=1, at_most=1_024),
    4,
    "Batches that may be under way in one channel before its sender waits; fewer where they have "
    "one row or two.",
)
PORT_RANGE: Final = ConfigOption(
    "tidegate.net.port-range",
    PortRangeType(),
    (0, 0),
    "Ports that the driver and slots may listen on, such as '50100-50200'; 0 takes any.",
)
SLOTS_START_TIMEOUT: Final = ConfigOption(
    "tidegate.slots.start-timeout",
    DurationType(at_least_ms=100),
    60_000,
    "Time within which a slot has to come while some are missing; as long as they keep coming, the "
    "job waits.",
)
LOCAL_IN_PROCESS: Final = ConfigOption(
    "tidegate.local.in-process",
    _BOOLEAN,
    False,
    "Run the slots of local jobs in the program's own process, for debuggers: a breakpoint works, "
    "but a function that does not return stops the driver too.",
)
LOOP_YIELD: Final = ConfigOption(
    "tidegate.loop.yield-ms",
    NumberType(above=0.0),
    1.0,
    "Milliseconds of work after which a slot's loop looks at everything else.",
)
SNAPSHOT_SLICE_IDLE: Final = ConfigOption(
    "tidegate.snapshot.slice-idle-ms",
    NumberType(above=0.0),
    0.3,
    "Milliseconds a slot encodes state at a time while its input is paced.",
)
SNAPSHOT_SLICE_BUSY: Final = ConfigOption(
    "tidegate.snapshot.slice-busy-ms",
    NumberType(above=0.0),
    10.0,
    "Milliseconds a slot encodes state at a time while it is saturated.",
)
SNAPSHOT_PART_SIZE: Final = ConfigOption(
    "tidegate.snapshot.part-size",
    MemoryType(),
    8 * _KIB * _KIB,
    "State of an operator in memory that is encoded before it is written, while more is encoded; "
    "up to four times as much waits for its turn, then encoding does.",
)
UPLOAD_THREADS: Final = ConfigOption(
    "tidegate.io.threads",
    IntegerType(at_least=1, at_most=256),
    4,
    "Threads of a slot for uploads and for connectors' blocking calls.",
)


def _all_options() -> tuple[ConfigOption[object], ...]:
    return tuple(value for value in globals().values() if isinstance(value, ConfigOption))


ALL: Final[tuple[ConfigOption[object], ...]] = (
    *_all_options(),
    *high_availability.OPTIONS,
    *rest.OPTIONS,
    *security.OPTIONS,
    *debloat.OPTIONS,
    *cancellation.OPTIONS,
    *rocksdb.OPTIONS,
    *changelog.OPTIONS,
    *state_files.OPTIONS,
    *warnings.OPTIONS,
)
"""Every option there is, in the order of this page; those of modules of their own behind."""

_BY_KEY: Final = {option.key: option for option in ALL}
_CANONICAL: Final = {old: option.key for option in ALL for old in option.old_keys}

FLINK_ONLY: Final = frozenset(FLINK_KEYS) - _BY_KEY.keys()
"""Keys that Flink reads and Tidegate does not: kept, so that configurations carry over."""


def by_key(key: str) -> ConfigOption[object] | None:
    """The option with this key; None where there is none."""
    return _BY_KEY.get(key)


def canonical_key(key: str) -> str:
    """The key itself, or today's where an old one is given."""
    return _CANONICAL.get(key, key)
