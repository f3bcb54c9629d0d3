"""Messages between the driver and its slots.

Every message that concerns a subtask carries its ``ExecutionId``, and with it epoch and attempt:
whoever holds a lower one is refused.
"""

from __future__ import annotations

from dataclasses import astuple, field
from enum import Enum
from operator import add
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.settings import JobSettings, SlotSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import SubtaskState
    from tidegate.errors import TidegateError
    from tidegate.model.elements import CheckpointOptions, OperatorEvent
    from tidegate.model.failure_reason import FailureReason
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import (
        ChannelId,
        CheckpointId,
        Epoch,
        ExecutionId,
        JobId,
        OperatorId,
        SlotId,
        VertexId,
    )
    from tidegate.model.keys import Keys
    from tidegate.model.metrics import Metrics
    from tidegate.model.restore import InFlightData, RestoredOperatorState
    from tidegate.model.topology import Topology


class ExecutionState(Enum):
    """Life of one attempt; names are Flink's."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        return self in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)


class JobStatus(Enum):
    """Life of a job; names are Flink's. No job of ours is ever RECONCILING."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        """True if the job is over for good (Flink's globally terminal states)."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_globally_terminal_state(self) -> bool:
        """True if the job is over for good; no driver resumes it."""
        return self.is_terminal

    def is_terminal_state(self) -> bool:
        """True if the driver is done: the job is over, or suspended for another driver."""
        return self.is_terminal or self is JobStatus.SUSPENDED


@frozen
class ProgramLogs:
    """The stream handler of the root logger, and which loggers have levels of their own.

    to_stdout: else to standard error; None if there is no such handler. format, date_format: as for
    ``logging.Formatter``.
    """

    to_stdout: bool | None
    format: str | None
    date_format: str | None
    levels: Mapping[str, int]


@frozen
class SlotInvitation:
    """All that a slot must know to join a job. secret: proves both sides; never logged.

    driver: address to dial. host: address to bind and announce; None finds the one that reaches
    the driver. request: the provider's name for this slot. pyflink: functions of the job import
    what they need from ``pyflink``. logs: how the program logs; None if it has not said. keys:
    of this slot, for TLS; None for plain links, whose frames carry tags where they are ``sealed``.
    driver_process: the driver's, where it is on this machine. argv: the program's ``sys.argv``.
    versions: of the driver, where the slot has the same; None has the slot find out its own.
    """

    driver: str
    secret: bytes = field(repr=False)
    host: str | None = None
    request: str = ""
    settings: SlotSettings = field(default_factory=SlotSettings)
    pyflink: bool = False
    logs: ProgramLogs | None = None
    keys: Keys | None = field(default=None, repr=False)
    sealed: bool = False
    driver_process: int | None = None
    argv: tuple[str, ...] = ()
    versions: Mapping[str, str] | None = None


# --- driver to slot ---------------------------------------------------------------------------


@frozen
class Accepted:
    """The slot is part of the job. settings: the job's."""

    slot: SlotId
    job: JobId
    epoch: Epoch
    settings: JobSettings


@frozen
class Refused:
    """The slot is not wanted; it ends."""

    reason: str


@frozen
class Deploy:
    """Host this subtask: restore it, open it, say RESTORED by ``SubtaskChanged(INITIALIZING)``.

    operators: pickled ``api.operator.OperatorPlan`` values, head to tail. topology: of the whole
    job. peers: the slot of each channel's other end, inputs and outputs alike. addresses: of each
    slot named in ``peers``. state: per operator, empty on a fresh start. restored: the checkpoint
    that the state is of. finished: all of the vertex had finished in that checkpoint, so only
    barriers and the end pass through. in_flight: what the subtask reads before anything new.
    checksums: crc32c and size of files of its state, by `checksum_name`, where they are known.
    """

    execution: ExecutionId
    operators: bytes
    topology: Topology
    peers: Mapping[ChannelId, SlotId]
    addresses: Mapping[SlotId, str]
    state: Mapping[OperatorId, RestoredOperatorState]
    restored: CheckpointId | None = None
    finished: bool = False
    in_flight: tuple[InFlightData, ...] = ()
    checksums: Mapping[str, FileChecksum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        starts_empty = not self.state and not self.in_flight
        assert starts_empty or self.restored is not None, "state comes from a snapshot"
        assert starts_empty or not self.finished, "who has finished has no state any more"


@frozen
class Start:
    """All subtasks are restored: open the channels, read the sources."""

    execution: ExecutionId


@frozen
class Cancel:
    """End the subtask without finishing it; answered by ``SubtaskChanged(CANCELED)``."""

    execution: ExecutionId


@frozen
class TriggerCheckpoint:
    """Take a checkpoint at the source. triggered_ms: wall clock."""

    execution: ExecutionId
    checkpoint: CheckpointId
    triggered_ms: int
    options: CheckpointOptions


@frozen
class CheckpointComplete:
    """The checkpoint is durable. subsumed: the newest one that was deleted for it, or None."""

    execution: ExecutionId
    checkpoint: CheckpointId
    subsumed: CheckpointId | None = None

    def __post_init__(self) -> None:
        older = self.subsumed is None or self.subsumed < self.checkpoint
        assert older, "a checkpoint makes older ones needless"


@frozen
class CheckpointAborted:
    """The checkpoint was given up.

    latest_completed: repairs a lost completion; None if there is none.
    """

    execution: ExecutionId
    checkpoint: CheckpointId
    latest_completed: CheckpointId | None = None

    def __post_init__(self) -> None:
        assert self.checkpoint != self.latest_completed, "what is complete is not given up"


@frozen
class ToOperator:
    """From an operator's coordinator to one of its subtasks."""

    execution: ExecutionId
    operator: OperatorId
    event: OperatorEvent


@frozen
class ReadBack:
    """Say by ``HasRead`` whether a savepoint can be read. metadata: size and crc32c of that file.

    files: sizes of the others, by path.
    """

    number: int
    pointer: str
    metadata: tuple[int, int]
    files: Mapping[str, int]


@frozen
class TellThreads:
    """Say by ``Threads`` where each thread of the slot is."""

    number: int


@frozen
class TellSamples:
    """Say by ``Samples`` where the time of a vertex's subtasks goes; sample them from now on."""

    number: int
    vertex: VertexId


@frozen
class PulseHeard:
    """The driver has heard a slot's guard."""


@frozen
class Release:
    """The slot is needed no more; it ends in order."""

    reason: str = ""


ToSlot = (
    Accepted
    | Refused
    | Deploy
    | Start
    | Cancel
    | TriggerCheckpoint
    | CheckpointComplete
    | CheckpointAborted
    | ToOperator
    | ReadBack
    | TellThreads
    | TellSamples
    | Release
)


# --- slot to driver ---------------------------------------------------------------------------


@frozen
class Offer:
    """A slot offers itself.

    address: ``host:port`` of its data server. versions: of package, Python, pyarrow; compared with
    the driver's. request: the provider's name for what was asked for, so that a slot and the Spark
    job that hosts it can be told to belong together.
    """

    slot: SlotId
    address: str
    pid: int
    host: str
    versions: Mapping[str, str]
    request: str = ""


@frozen
class RowCounts:
    """Rows by their fate. read: by sources. written: to sinks. late: dropped behind the watermark.

    skipped: passed over by sources that could not read them. dead_letters: told to side outputs.
    """

    read: int = 0
    written: int = 0
    late: int = 0
    skipped: int = 0
    dead_letters: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(*map(add, astuple(self), astuple(other)))


@frozen
class Remark:
    """Advice to the author of a program about something that a step was seen doing.

    warning: its name. step: of the operator. about: which side output, which time.
    """

    warning: str
    step: str
    about: str


@frozen
class SubtaskFigures:
    """Counters of one subtask since it was deployed.

    busy_ms: spent in its turns. blocked_ms: while an output waited for credit. at_ms: the slot's
    clock when they were read, whose zero means nothing.
    buffer_rows: rows of a batch that it has asked its senders for. in_flight_ms: how long it
    needed for what was in flight to it, when that was last measured. Both None if batches are
    not debloated. furthest_ms: the greatest watermark of any input, where watermark_ms is the least
    that counts. held_by: the first few channels that hold event time back.
    """

    rows_in: int = 0
    rows_out: int = 0
    batches_in: int = 0
    busy_ms: int = 0
    blocked_ms: int = 0
    at_ms: int = 0
    watermark_ms: int | None = None
    counts: RowCounts = field(default_factory=RowCounts)
    buffer_rows: int | None = None
    in_flight_ms: int | None = None
    furthest_ms: int | None = None
    held_by: tuple[ChannelId, ...] = ()
    remarks: tuple[Remark, ...] = ()


@frozen
class Pulse:
    """The slot lives. batch_age_ms: how long the running batch has been running; 0 when idle.

    calling: the subtask that runs it. long_call: the function that has been in one call for long,
    as it then was. metrics: of subtasks, by the guard reduced to what has changed since it was told
    last. process: metrics of the slot's process.
    """

    slot: SlotId
    batch_age_ms: int = 0
    figures: Mapping[ExecutionId, SubtaskFigures] = field(default_factory=dict)
    metrics: Mapping[ExecutionId, Metrics] = field(default_factory=dict)
    process: Metrics = field(default_factory=dict)
    long_call: LongCall | None = None
    calling: ExecutionId | None = None


@frozen
class LongCall:
    """A call that lasts. function: the user's, and where. stack: the innermost line comes first."""

    function: str
    stack: str


@frozen
class TaskBegan:
    """A task of Spark runs a subtask of a batch.

    slot: names the task. stage: Spark's number of its stage.
    """

    execution: ExecutionId
    slot: SlotId
    host: str
    pid: int
    stage: int


@frozen
class SubtaskChanged:
    """INITIALIZING: restored and waiting for ``Start``. RUNNING, FINISHED, CANCELED, FAILED.

    figures, metrics: the last ones, of a subtask that has ended; no pulse tells of it any more.
    """

    execution: ExecutionId
    state: ExecutionState
    error: TidegateError | None = None
    restore_ms: int = 0
    figures: SubtaskFigures | None = None
    metrics: Metrics = field(default_factory=dict)


@frozen
class CheckpointFigures:
    """Measurements of one subtask in one checkpoint; durations in milliseconds, sizes in bytes.

    bytes_written: new bytes; what is referenced from earlier checkpoints does not count.
    processed_bytes: what was read between the first barrier and the last. A row counts with the
    mean size of its edge's rows on the wire, an Arrow batch with its memory; rows of an edge that
    never leaves a slot are never encoded, and count nothing.
    checksums: crc32c and size of each file and segment written, by `checksum_name`.
    """

    sync_ms: int = 0
    async_ms: int = 0
    alignment_ms: int = 0
    start_delay_ms: int = 0
    bytes_written: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    unaligned: bool = False
    checksums: Mapping[str, FileChecksum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Clocks of two machines may differ, so the delay is cut at 0 where it is measured.
        assert min(self.alignment_ms, self.start_delay_ms) >= 0, "time does not go back"
        sizes = (self.bytes_written, self.processed_bytes, self.persisted_bytes)
        assert min(sizes) >= 0, "a size is not negative"


@frozen
class CheckpointAcknowledged:
    """The subtask's share is written. state: None if it has none.

    finished_on_restore: it was restored as finished. finished_operators: it took the snapshot
    after its operators' ``finish``.
    """

    execution: ExecutionId
    checkpoint: CheckpointId
    state: Mapping[OperatorId, SubtaskState] | None
    figures: CheckpointFigures
    finished_on_restore: bool = False
    finished_operators: bool = False

    def __post_init__(self) -> None:
        assert not (self.finished_on_restore and self.state), "who has finished has no state"


@frozen
class CheckpointDeclined:
    """The subtask could not take its share.

    message: the cause, "" where the reason says it all.
    """

    execution: ExecutionId
    checkpoint: CheckpointId
    reason: FailureReason
    message: str = ""


@frozen
class ToCoordinator:
    """From a subtask's operator to the operator's coordinator."""

    execution: ExecutionId
    operator: OperatorId
    event: OperatorEvent


@frozen
class HasRead:
    """The slot has read a savepoint. error: why it could not."""

    number: int
    slot: SlotId
    error: TidegateError | None


@frozen
class ThreadStack:
    """A thread and where it is. stack: in Python's words, the innermost line comes last."""

    thread: str
    stack: str


@frozen
class Threads:
    """All threads of the slot, as they were when it was asked."""

    number: int
    slot: SlotId
    stacks: tuple[ThreadStack, ...]


@frozen
class FrameCount:
    """How many samples found a subtask in these frames, the outermost first.

    on_cpu: in a turn of its own; else the one frame says what it waits for.
    """

    subtask: int
    on_cpu: bool
    frames: tuple[str, ...]
    samples: int


@frozen
class KeyCount:
    """How many samples found an operator of a subtask at work on a key. key: as text, cut."""

    subtask: int
    operator: str
    key: str
    samples: int


@frozen
class Samples:
    """Samples of a vertex in the last minute; there are none at the first question.

    keys: those with the most samples. keyed: how many samples found any key.
    """

    number: int
    slot: SlotId
    counts: tuple[FrameCount, ...]
    keys: tuple[KeyCount, ...] = ()
    keyed: int = 0


@frozen
class SlotLeaving:
    """The slot ends. error: why, where it was not asked to."""

    slot: SlotId
    error: TidegateError | None = None


STDOUT, STDERR = "stdout", "stderr"
"""Streams on which lines are printed."""


@frozen
class LogRecord:
    """A record of a log, or a printed line.

    level: a number of ``logging``. logger: its name; the stream of a line. text: without the
    traceback, which is ``trace``. operator: name of the step that was at work, with its task,
    subtask and attempt; "" and None outside of steps. slot: "" of the driver. stream: on which the
    driver is to print it too; "" for none. repeats: the line of a record that is told as such.
    """

    at_ms: int
    level: int
    logger: str
    text: str
    trace: str = ""
    operator: str = ""
    task: str = ""
    subtask: int | None = None
    attempt: int | None = None
    slot: str = ""
    stream: str = ""
    repeats: bool = False


@frozen
class Logged:
    """A slot tells records of its log, and lines that functions have printed.

    records_left_out, lines_left_out: how many more there were than the driver is to have.
    """

    slot: SlotId
    records: tuple[LogRecord, ...]
    records_left_out: int = 0
    lines_left_out: int = 0


@frozen
class FailedStep:
    """All that it takes to run a step that failed again, as the bytes of a file."""

    execution: ExecutionId
    operator: str
    bundle: bytes


ToDriver = (
    Offer
    | Logged
    | FailedStep
    | Pulse
    | SubtaskChanged
    | CheckpointAcknowledged
    | CheckpointDeclined
    | ToCoordinator
    | HasRead
    | Threads
    | Samples
    | SlotLeaving
)
