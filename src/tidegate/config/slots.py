"""How slots work: the options, and the settings made of them."""

from __future__ import annotations

from typing import Final

from tidegate.config import execution, reporting, state_backend
from tidegate.config.execution import RuntimeExecutionMode
from tidegate.config.metrics import USER_METRICS_MAX
from tidegate.config.net import NETWORK
from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.rocksdb import rocksdb_settings
from tidegate.config.state_backend import changelog_settings, state_file_settings
from tidegate.config.values import (
    BooleanType,
    DurationType,
    IntegerType,
    MemoryType,
    NumberType,
    PortRangeType,
)
from tidegate.model.settings import DebloatSettings, SlotSettings

_KIB: Final = 1024

BATCH_ROWS: Final = ConfigOption(
    "tidegate.batch.rows",
    IntegerType(at_least=1, at_most=65_536),
    2_048,
    "Rows of a full row batch; 1024 to 4096 is fastest. Batches are smaller in front of a slow "
    "step.",
)
BATCH_ARROW_ROWS: Final = ConfigOption(
    "tidegate.batch.arrow-rows",
    IntegerType(at_least=1, at_most=1 << 24),
    65_536,
    "Rows of a full Arrow batch, and of one of rows that are columns, such as a sequence of "
    "numbers.",
)
CHANNEL_CREDIT: Final = ConfigOption(
    "tidegate.net.credit",
    IntegerType(at_least=1, at_most=1_024),
    4,
    "Number of batches in flight in one channel before its sender waits; fewer if batches have "
    "only one or two rows.",
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
    "Time within which the next missing slot must arrive; the job waits as long as slots keep "
    "arriving.",
)
HEARTBEAT_INTERVAL: Final = ConfigOption(
    "heartbeat.interval",
    DurationType(at_least_ms=10),
    1_000,
    "Time between two heartbeats of a slot.",
    differs=(
        "Flink beats every 10 s. A heartbeat here costs next to nothing, and users wait for the "
        "detection of a dead slot."
    ),
)
_LINK_TIMEOUT_MAX_MS: Final = 24 * 86_400_000
"""Links get it as a limit of TCP, which has 31 bits for milliseconds."""

HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout",
    DurationType(at_least_ms=100, at_most_ms=_LINK_TIMEOUT_MAX_MS),
    10_000,
    "A peer without a heartbeat for this long is considered dead.",
    differs=(
        "Flink waits 50 s. A closed connection reveals most losses at once; this bounds the rest."
    ),
)
CANCELLATION_INTERVAL: Final = ConfigOption(
    "task.cancellation.interval",
    DurationType(),
    200,
    "Time between two attempts to interrupt a user's function in a cancelled subtask, by raising "
    "an exception in it. The first attempt is made at once; with 0 it is the only one.",
    differs="Python functions end sooner or not at all.",
)
CANCELLATION_TIMEOUT: Final = ConfigOption(
    "task.cancellation.timeout",
    DurationType(),
    1_000,
    "Time that a call may continue after its subtask was cancelled; then the slot's process is "
    "ended. Operators that are being closed have at least 10 s. 0 waits for ever.",
    differs=(
        "A slot's process is replaced within milliseconds, and holds nothing that is not in a "
        "checkpoint."
    ),
)
LOOP_YIELD: Final = ConfigOption(
    "tidegate.loop.yield-ms",
    NumberType(above=0.0),
    1.0,
    "Milliseconds of work after which a slot's loop attends to everything else.",
)
SNAPSHOT_SLICE_IDLE: Final = ConfigOption(
    "tidegate.snapshot.slice-idle-ms",
    NumberType(above=0.0),
    0.3,
    "Milliseconds that a slot encodes state at a time while its input is slow.",
)
SNAPSHOT_SLICE_BUSY: Final = ConfigOption(
    "tidegate.snapshot.slice-busy-ms",
    NumberType(above=0.0),
    10.0,
    "Milliseconds that a slot encodes state at a time while it is saturated.",
)
SNAPSHOT_PART_SIZE: Final = ConfigOption(
    "tidegate.snapshot.part-size",
    MemoryType(),
    8 * _KIB * _KIB,
    "Size of encoded state of an operator in memory that is written as one part while more is "
    "encoded. Up to four times as much may wait; then encoding waits.",
)
UPLOAD_THREADS: Final = ConfigOption(
    "tidegate.io.threads",
    IntegerType(at_least=1, at_most=256),
    4,
    "Number of threads of a slot for uploads and for connectors' blocking calls. Readers wait for "
    "records on threads of their own.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    BATCH_ROWS,
    BATCH_ARROW_ROWS,
    CHANNEL_CREDIT,
    PORT_RANGE,
    SLOTS_START_TIMEOUT,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    CANCELLATION_INTERVAL,
    CANCELLATION_TIMEOUT,
    LOOP_YIELD,
    SNAPSHOT_SLICE_IDLE,
    SNAPSHOT_SLICE_BUSY,
    SNAPSHOT_PART_SIZE,
    UPLOAD_THREADS,
)


def slot_settings(configuration: ReadableConfig) -> SlotSettings:
    buffered = configuration.get(execution.BUFFER_TIMEOUT_ENABLED)
    on_disk = configuration.get(state_backend.STATE_BACKEND) == "rocksdb"
    return SlotSettings(
        rows=configuration.get(BATCH_ROWS),
        arrow_rows=configuration.get(BATCH_ARROW_ROWS),
        buffer_timeout_ms=configuration.get(execution.BUFFER_TIMEOUT) if buffered else -1,
        credit=configuration.get(CHANNEL_CREDIT),
        yield_ms=configuration.get(LOOP_YIELD),
        slice_idle_ms=configuration.get(SNAPSHOT_SLICE_IDLE),
        slice_busy_ms=configuration.get(SNAPSHOT_SLICE_BUSY),
        pulse_ms=configuration.get(HEARTBEAT_INTERVAL),
        lease_ms=configuration.get(HEARTBEAT_TIMEOUT),
        cancel_interval_ms=configuration.get(CANCELLATION_INTERVAL),
        cancel_timeout_ms=configuration.get(CANCELLATION_TIMEOUT),
        object_reuse=configuration.get(execution.OBJECT_REUSE),
        port_range=configuration.get(PORT_RANGE),
        network=configuration.get(NETWORK),
        part_bytes=configuration.get(SNAPSHOT_PART_SIZE),
        upload_threads=configuration.get(UPLOAD_THREADS),
        watermark_ms=configuration.get(execution.AUTO_WATERMARK_INTERVAL),
        commit_retries=configuration.get(execution.COMMITTER_RETRIES),
        debloat=debloat_settings(configuration),
        rocksdb=rocksdb_settings(configuration) if on_disk else None,
        final_only=configuration.get(execution.RUNTIME_MODE) is RuntimeExecutionMode.BATCH,
        state_files=state_file_settings(configuration, on_disk=on_disk),
        changelog=changelog_settings(configuration),
        log=reporting.log_settings(configuration),
        replay=reporting.replay_settings(configuration),
        trace_functions=configuration.get(execution.TRACE_FUNCTIONS),
        loops=configuration.get(execution.LOOPS),
        metrics_max=configuration.get(USER_METRICS_MAX),
    )


DEBLOAT_ENABLED: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.enabled",
    BooleanType(),
    False,
    "Make row batches in front of a slow step so small that the rows in flight take the target "
    "time. Without it, a batch takes the step at most 20 ms.",
)
DEBLOAT_TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target",
    DurationType(at_least_ms=1),
    1_000,
    "Time that a subtask should need for the rows in flight to it.",
)
DEBLOAT_PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period",
    DurationType(at_least_ms=1),
    200,
    "Time between two measurements; only time in which a subtask is not idle counts.",
)
DEBLOAT_SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples",
    IntegerType(at_least=1),
    20,
    "Number of measurements over which the size is averaged.",
)
DEBLOAT_THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages",
    IntegerType(at_least=0, at_most=100),
    25,
    "Smallest change of the size, in percent, that is sent to senders.",
)

DEBLOAT_OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    DEBLOAT_ENABLED,
    DEBLOAT_TARGET,
    DEBLOAT_PERIOD,
    DEBLOAT_SAMPLES,
    DEBLOAT_THRESHOLD,
)


def debloat_settings(configuration: ReadableConfig) -> DebloatSettings | None:
    if not configuration.get(DEBLOAT_ENABLED):
        return None
    return DebloatSettings(
        target_ms=configuration.get(DEBLOAT_TARGET),
        period_ms=configuration.get(DEBLOAT_PERIOD),
        samples=configuration.get(DEBLOAT_SAMPLES),
        threshold_percent=configuration.get(DEBLOAT_THRESHOLD),
    )
