"""Settings that travel with a job: how it is checkpointed and restarted."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from flinkformat.snapshots import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping


class CheckpointingMode(Enum):
    """The guarantee; it chooses the barrier handler."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"


class LoopForm(Enum):
    """Form of the loops around user functions; AUTO is compiled where that was done."""

    AUTO = "auto"
    COMPILED = "compiled"
    INTERPRETED = "interpreted"


class ClaimMode(Enum):
    """Ownership of the files of the snapshot that a job starts from."""

    NO_CLAIM = "NO_CLAIM"
    CLAIM = "CLAIM"


@frozen
class CheckpointSettings:
    """Flink's ``JobCheckpointingSettings``: made by config.checkpointing, already validated.

    interval_ms: None if nothing is triggered periodically (the coordinator exists all the same).
    All durations are milliseconds. storage: ``jobmanager`` or ``filesystem``. directory: root URL
    of the checkpoints, None for the JobManager's memory. merged_file_max_bytes: how large a file
    gets that the states of a subtask share; None for a file each. key_file: holds what snapshots
    are signed with; None if they are not.
    """

    interval_ms: int | None = None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    unaligned: bool = False
    aligned_timeout_ms: int = 0
    during_recovery: bool = True
    subtasks_a_channel_state_file: int = 5
    retention: RetentionPolicy = RetentionPolicy.RETAIN_ON_CANCELLATION
    retained_max: int = 2
    after_tasks_finish: bool = True
    interval_during_backlog_ms: int | None = None
    storage: str = "jobmanager"
    directory: str | None = None
    savepoint_directory: str | None = None
    inline_threshold_bytes: int = 20 * 1024
    merged_file_max_bytes: int | None = None
    key_file: str | None = None
    snapshot_compression: bool = False
    state_backend: str = "hashmap"
    history_max: int = 10
    pause_sources: bool = False

    def __post_init__(self) -> None:
        assert self.interval_ms is None or self.interval_ms > 0, "an interval takes time"
        assert self.timeout_ms > 0, "a checkpoint has time"
        assert self.min_pause_ms >= 0, "a pause is not negative"
        assert self.max_concurrent > 0, "one checkpoint may be under way"
        assert self.tolerable_failures >= 0, "failures are counted"
        assert self.subtasks_a_channel_state_file > 0, "a file has somebody's data"

    @property
    def periodic(self) -> bool:
        return self.interval_ms is not None


@frozen
class NoRestart:
    """The first failure ends the job."""


@frozen
class FixedDelay:
    """At most ``attempts`` restarts, each after ``delay_ms``."""

    attempts: int = 1
    delay_ms: int = 1_000


@frozen
class FailureRate:
    """Restart while no more than ``failures_max`` failures fall into ``interval_ms``."""

    failures_max: int = 1
    interval_ms: int = 60_000
    delay_ms: int = 1_000


@frozen
class ExponentialDelay:
    """Restart after a wait that grows with each failure. jitter: share of the wait, 0 to 1."""

    initial_ms: int = 1_000
    max_ms: int = 60_000
    multiplier: float = 1.5
    reset_threshold_ms: int = 3_600_000
    jitter: float = 0.1
    attempts_before_reset: int = 2**31 - 1


RestartSettings = NoRestart | FixedDelay | FailureRate | ExponentialDelay


class FailoverStrategy(Enum):
    """Part of a job that restarts when a subtask fails: connected subtasks, or all."""

    REGION = "region"
    FULL = "full"


@frozen
class RestoreSettings:
    """The snapshot that a job starts from (Flink's ``SavepointRestoreSettings``).

    path: directory of a checkpoint or savepoint, or its ``_metadata``; None starts empty.
    without_in_flight_of: the checkpoint whose in-flight data are to be lost; None for none.
    fork: the job's name where it is a fork, so that what another job's snapshot holds for sinks is
    left to that job; None if it is none. fall_back: go back to an older checkpoint where the
    newest is damaged.
    """

    path: str | None = None
    allow_non_restored: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    without_in_flight_of: int | None = None
    fork: str | None = None
    fall_back: bool = False


@frozen
class DebloatSettings:
    """Buffer debloating, as Flink names it; durations in milliseconds.

    target_ms: how long a subtask should need for what is in flight to it. period_ms: time between
    two measurements. samples: over which the size is averaged. threshold_percent: the least change
    of the size that senders are told.
    """

    target_ms: int = 1_000
    period_ms: int = 200
    samples: int = 20
    threshold_percent: int = 25


@frozen
class RocksDBSettings:
    """How a slot keeps keyed state on disk.

    memory_bytes: of all key spaces of the slot; write_buffer_ratio of it for write buffers.
    cache_entries: kept as Python values. compression: by level. bloom_bits: a key; 0 for no filter.
    """

    memory_bytes: int = 256 << 20
    write_buffer_ratio: float = 0.5
    cache_entries: int = 200_000
    block_bytes: int = 4096
    write_buffer_bytes: int = 64 << 20
    write_buffer_count: int = 2
    compaction_style: str = "LEVEL"
    level_base_bytes: int = 256 << 20
    target_file_bytes: int = 64 << 20
    dynamic_level_size: bool = False
    compression: tuple[str, ...] = ("SNAPPY_COMPRESSION",)
    bloom_bits: int = 10
    threads: int = 2
    files_open: int = -1


@frozen
class StateFileSettings:
    """How files of state are written, and where state on disk is worked with.

    incremental: whether checkpoints name again what did not change. transfer_threads: files of one
    operator that are on their way at a time. folders: of each machine, for working in; none take
    the default. copies_folder: for copies of the last checkpoint; None for where it is worked.
    keeps_copies, takes_copies: whether there are such copies, and whether a restore uses them.
    """

    incremental: bool = False
    transfer_threads: int = 4
    folders: tuple[str, ...] = ()
    copies_folder: str | None = None
    keeps_copies: bool = False
    takes_copies: bool = False


@frozen
class ChangelogSettings:
    """How changes of keyed state are logged, for each operator of a subtask.

    materialize_ms: time between two snapshots of all of it; None for none. failures_max: of these,
    one after the other. in_memory: whether the log is in the metadata. persist_bytes: written to
    the log before a checkpoint asks for it. in_flight_bytes: that may wait for their upload.
    """

    materialize_ms: int | None = 600_000
    failures_max: int = 3
    in_memory: bool = False
    persist_bytes: int = 5 << 20
    in_flight_bytes: int = 100 << 20
    compressed: bool = False


@frozen
class LogSettings:
    """Limits of the log of a job, and where it is kept.

    levels: of loggers in slots, by name; "" is the root. records_max: log records a second that a
    slot sends; lines_max: lines that functions print; bytes_max: of both together. kept_bytes: of
    them that the driver keeps. file: to which it adds them; None for none. as_json: the form of its
    lines.
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    records_max: int = 200
    lines_max: int = 0
    bytes_max: int = 256 << 10
    kept_bytes: int = 4 << 20
    file: str | None = None
    as_json: bool = False


@frozen
class ReplaySettings:
    """Limits of replay bundles, and their place. directory: on the driver's machine.

    bytes_max: of a bundle. rows: the last inputs of the step that it has.
    """

    directory: str
    bytes_max: int = 4 << 20
    rows: int = 100


@frozen
class SlotSettings:
    """How slots work; all durations in milliseconds.

    rows, arrow_rows: rows of a full batch. buffer_timeout_ms: age at which a part-filled batch is
    sent; 0 sends at once, -1 only full ones. credit: batches in flight per channel.
    cancel_interval_ms: time between two tries to break off a call of a cancelled subtask; 0 for one
    try. cancel_timeout_ms: after this the slot's process is ended; 0 for never.
    watermark_ms: time between two periodic watermarks, 0 for none. commit_retries: tries to commit
    beside the first. debloat: None if row batches always have ``rows`` rows. final_only: the
    input is bounded, and only what it comes to in the end counts. part_bytes: of so much encoded
    state is written before there is more. rocksdb: None if keyed state is in memory. changelog:
    None if changes of it are not logged. trace_functions: pure functions are evaluated over
    columns. loops: form of the loops around user functions. metrics_max: metrics that the functions
    of an operator may have in one subtask. replay: None if nothing is kept of steps that fail.
    repeatable: a subtask may be run once more for some of its readers, so that what it emits has to
    be the same, in the same order.
    """

    rows: int = 2_048
    arrow_rows: int = 65_536
    buffer_timeout_ms: int = 100
    credit: int = 4
    yield_ms: float = 1.0
    slice_idle_ms: float = 0.3
    slice_busy_ms: float = 10.0
    pulse_ms: int = 1_000
    lease_ms: int = 10_000
    cancel_interval_ms: int = 200
    cancel_timeout_ms: int = 1_000
    object_reuse: bool = False
    port_range: tuple[int, int] = (0, 0)
    network: str | None = None
    upload_threads: int = 4
    part_bytes: int = 8 << 20
    watermark_ms: int = 200
    commit_retries: int = 10
    debloat: DebloatSettings | None = None
    final_only: bool = False
    rocksdb: RocksDBSettings | None = None
    state_files: StateFileSettings = field(default_factory=StateFileSettings)
    changelog: ChangelogSettings | None = None
    log: LogSettings = field(default_factory=LogSettings)
    trace_functions: bool = True
    loops: LoopForm = LoopForm.AUTO
    metrics_max: int = 1_000
    replay: ReplaySettings | None = None
    repeatable: bool = False

    def __post_init__(self) -> None:
        assert self.rows > 0 and self.arrow_rows > 0, "a batch has rows"
        assert self.credit > 0, "a channel without credit never sends"
        assert self.buffer_timeout_ms >= -1, "-1 sends full batches only"


@frozen
class TlsStores:
    """Files with certificates: PEM or PKCS12, with the passwords that open them.

    keystore: own certificate and its key; None if there is no need to prove oneself.
    truststore: certificates that are trusted; None if the other end need not prove itself.
    """

    keystore: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    truststore: str | None = None
    truststore_password: str | None = field(default=None, repr=False)


@frozen
class ZooKeeperLogin:
    """Name and password of a driver at ZooKeeper, by SASL with DIGEST-MD5."""

    username: str
    password: str = field(repr=False)


@frozen
class ZooKeeperTls:
    """How ZooKeeper's servers are reached. check_names: whether a certificate is of its host.

    stores: None trusts what this machine trusts, and proves nothing of the driver.
    """

    stores: TlsStores | None
    check_names: bool = True


@frozen
class ZooKeeperSettings:
    """Where record chains are kept. quorum: ``host:port,…``. path: node above those of the jobs.

    login, tls: None goes without. creator_only: nobody else may read or change what is kept.
    """

    quorum: str
    path: str
    session_timeout_ms: int = 10_000
    connection_timeout_ms: int = 15_000
    login: ZooKeeperLogin | None = None
    tls: ZooKeeperTls | None = None
    creator_only: bool = False


class LinkProtection(Enum):
    """Protection of links between driver and slots; AUTO encrypts those that leave the machine."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@frozen
class LinkSettings:
    """Protection of links within a job. stores: own certificates; None for those of the run."""

    protection: LinkProtection = LinkProtection.AUTO
    stores: TlsStores | None = None


@frozen
class RestSettings:
    """Where the driver serves REST. ports: first and last that it may take; 0 for any.

    address: under which clients reach it; None for the one that it is bound to. store_ms: how long
    the result of an operation can be read. allowed_hosts: further names that it answers under.
    savepoint_directories: where requests may put savepoints, beside the job's own folder for them.
    token_file: holds what requests must bring; None if they need nothing. tls: None for plain
    HTTP. jar: with the files of Flink's dashboard; None if only questions are answered.
    flame_graphs: whether slots are asked where their time goes.
    """

    ports: tuple[int, int]
    bind_address: str = "localhost"
    address: str | None = None
    store_ms: int = 300_000
    allowed_hosts: tuple[str, ...] = ()
    savepoint_directories: tuple[str, ...] = ()
    token_file: str | None = None
    tls: TlsStores | None = None
    jar: str | None = None
    flame_graphs: bool = True


@frozen
class RescaleSettings:
    """How long a rescale waits for the next completed checkpoint: so long, or so many failures."""

    max_delay_ms: int = 0
    checkpoint_failures_max: int = 2


@frozen
class MetricFilter:
    """Chooses metrics: by logical scope, such as ``taskmanager.job.task``, by names, and by kinds.

    Scope and names are patterns with ``*`` and ``?``.
    """

    scope: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]


@frozen
class PrometheusSettings:
    """A port at which Prometheus fetches metrics. port: of a range the first that is free.

    filters_labels: characters of label values other than letters, digits, ``_`` and ``:`` become
    ``_``.
    """

    port: tuple[int, int]
    host: str
    filters_labels: bool = True


@frozen
class PrometheusPushSettings:
    """A Pushgateway. random_suffix: whether ``job_name`` gets one. deletes: at the job's end."""

    url: str
    job_name: str
    grouping: Mapping[str, str]
    random_suffix: bool = True
    deletes: bool = True
    filters_labels: bool = True


@frozen
class OpenTelemetrySettings:
    """A receiver of OpenTelemetry over HTTP.

    endpoint: its URL, with ``/v1/metrics``, or ``/v1/traces`` for spans.
    """

    endpoint: str
    service_name: str
    service_version: str = ""
    timeout_ms: int = 10_000


@frozen
class JsonLinesSettings:
    """A file on the driver's machine, to which a line of JSON is added for each metric or span."""

    path: str


ReporterTarget = (
    PrometheusSettings | PrometheusPushSettings | OpenTelemetrySettings | JsonLinesSettings
)


@frozen
class ReporterSettings:
    """One reporter of metrics. interval_ms: between two reports.

    excluded_variables, additional_variables: of all metrics. A metric is reported if one of
    ``includes`` chooses it, and none of ``excludes``.
    """

    name: str
    target: ReporterTarget
    interval_ms: int = 10_000
    excluded_variables: tuple[str, ...] = ()
    additional_variables: Mapping[str, str] = field(default_factory=dict)
    includes: tuple[MetricFilter, ...] = ()
    excludes: tuple[MetricFilter, ...] = ()


@frozen
class JobSettings:
    """All settings of one job.

    parameters: what user functions may ask for by name. span_reporters: who is told of checkpoints
    and starts, as spans. leader_beat_ms: time between two signs of life of the driver.
    leader_lease_ms: after this long without one another may take the job over. zookeeper: given
    where the job is highly available; a driver that is started again then goes on.
    rest: None if the driver serves no REST interface. archive_directory: where the driver leaves
    what the job has last shown; None for beside its checkpoints. reporters: of metrics.
    repeats_max: the same failure so many times, with no checkpoint completed between, ends the job;
    None leaves that to ``restart``.
    silenced: names of the warnings that are not logged. summary: whether the driver says at the end
    what the job did. summary_file: where it adds that as JSON; None for nowhere.
    last_checkpoint_ms: how long a job that is to be suspended waits for a checkpoint. on_survivors:
    whether slots that live host the subtasks of a lost one until another one has come. given: what
    these settings were made of, as text by key.
    """

    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    restart: RestartSettings = field(default_factory=NoRestart)
    repeats_max: int | None = None
    failover: FailoverStrategy = FailoverStrategy.REGION
    on_survivors: bool = False
    rescale: RescaleSettings = field(default_factory=RescaleSettings)
    restore: RestoreSettings = field(default_factory=RestoreSettings)
    slot: SlotSettings = field(default_factory=SlotSettings)
    slots_timeout_ms: int = 60_000
    last_checkpoint_ms: int = 10_000
    exception_history_max: int = 16
    leader_beat_ms: int = 500
    leader_lease_ms: int = 3_000
    span_reporters: tuple[JsonLinesSettings | OpenTelemetrySettings, ...] = ()
    zookeeper: ZooKeeperSettings | None = None
    rest: RestSettings | None = None
    archive_directory: str | None = None
    reporters: tuple[ReporterSettings, ...] = ()
    links: LinkSettings = field(default_factory=LinkSettings)
    parameters: Mapping[str, str] = field(default_factory=dict)
    silenced: tuple[str, ...] = ()
    summary: bool = True
    summary_file: str | None = None
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
