"""From a configuration to the settings of one job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.config import cancellation, high_availability, options
from tidegate.config.changelog import changelog_settings
from tidegate.config.checkpoint import checkpoint_settings
from tidegate.config.debloat import debloat_settings
from tidegate.config.options import RuntimeExecutionMode
from tidegate.config.rest import rest_settings
from tidegate.config.rocksdb import rocksdb_settings
from tidegate.config.security import link_settings
from tidegate.config.state_files import state_file_settings
from tidegate.config.warnings import SILENCED
from tidegate.errors import ConfigError
from tidegate.model.settings import (
    ExponentialDelay,
    FailoverStrategy,
    FailureRate,
    FixedDelay,
    JobSettings,
    NoRestart,
    RescaleSettings,
    RestartSettings,
    RestoreSettings,
    SlotSettings,
    ZooKeeperSettings,
)

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.model.settings import CheckpointSettings


def job_settings(configuration: Configuration) -> JobSettings:
    """All settings of a job. Raises ConfigError for what contradicts itself."""
    checkpoints = checkpoint_settings(configuration)
    return JobSettings(
        checkpoints=checkpoints,
        restart=restart_settings(configuration, checkpointing=checkpoints.periodic),
        failover=FailoverStrategy(configuration.get(options.FAILOVER_STRATEGY)),
        rescale=rescale_settings(configuration, checkpoints),
        restore=restore_settings(configuration),
        slot=slot_settings(configuration),
        slots_timeout_ms=configuration.get(options.SLOTS_START_TIMEOUT),
        last_checkpoint_ms=configuration.get(options.LAST_CHECKPOINT_TIMEOUT),
        exception_history_max=configuration.get(options.EXCEPTION_HISTORY),
        leader_beat_ms=configuration.get(high_availability.LEADER_BEAT_INTERVAL),
        leader_lease_ms=configuration.get(high_availability.LEADER_LEASE),
        trace_file=_trace_file(configuration),
        zookeeper=zookeeper_settings(configuration, checkpoints),
        rest=rest_settings(configuration),
        links=link_settings(configuration),
        parameters=configuration.get(options.GLOBAL_JOB_PARAMETERS) or {},
        silenced=configuration.get(SILENCED),
        summary=configuration.get(options.SUMMARY),
    )


def _trace_file(configuration: Configuration) -> str | None:
    reporters = configuration.get(options.TRACE_REPORTERS) or ()
    unknown = [name for name in reporters if name != "file"]
    if unknown:
        raise ConfigError(
            f"There is no trace reporter '{unknown[0]}'",
            where=configuration.where_set(options.TRACE_REPORTERS),
            remedy=f"Set {options.TRACE_REPORTERS.key} to 'file'.",
        )
    path = configuration.get(options.TRACE_FILE)
    if not reporters:
        return None
    if path is None:
        raise ConfigError(
            "Spans shall be written to a file, and there is no path for it",
            where=configuration.where_set(options.TRACE_REPORTERS),
            remedy=f"Set {options.TRACE_FILE.key}.",
        )
    return str(Path(path).absolute())


def restart_settings(configuration: Configuration, *, checkpointing: bool) -> RestartSettings:
    """When a failed job is restarted; unset, that depends on whether it is checkpointed."""
    default = "exponential-delay" if checkpointing else "disable"
    match configuration.get(options.RESTART_STRATEGY) or default:
        case "fixed-delay":
            return FixedDelay(
                attempts=configuration.get(options.FIXED_DELAY_ATTEMPTS),
                delay_ms=configuration.get(options.FIXED_DELAY),
            )
        case "failure-rate":
            return FailureRate(
                failures_max=configuration.get(options.FAILURE_RATE_MAX),
                interval_ms=configuration.get(options.FAILURE_RATE_INTERVAL),
                delay_ms=configuration.get(options.FAILURE_RATE_DELAY),
            )
        case "exponential-delay":
            return _exponential_delay(configuration)
        case _:
            return NoRestart()


def _exponential_delay(configuration: Configuration) -> ExponentialDelay:
    initial_ms = configuration.get(options.EXPONENTIAL_INITIAL)
    max_ms = configuration.get(options.EXPONENTIAL_MAX)
    if initial_ms > max_ms:
        raise ConfigError(
            f"The first wait before a restart is {initial_ms} ms, longer than the longest, "
            f"{max_ms} ms",
            where=configuration.where_set(options.EXPONENTIAL_INITIAL),
            remedy=f"Lower {options.EXPONENTIAL_INITIAL.key} or raise "
            f"{options.EXPONENTIAL_MAX.key}.",
        )
    return ExponentialDelay(
        initial_ms=initial_ms,
        max_ms=max_ms,
        multiplier=configuration.get(options.EXPONENTIAL_MULTIPLIER),
        reset_threshold_ms=configuration.get(options.EXPONENTIAL_RESET_THRESHOLD),
        jitter=configuration.get(options.EXPONENTIAL_JITTER),
        attempts_before_reset=configuration.get(options.EXPONENTIAL_ATTEMPTS),
    )


def rescale_settings(
    configuration: Configuration, checkpoints: CheckpointSettings
) -> RescaleSettings:
    """How long a rescale waits for a checkpoint; unset, that depends on how often there is one."""
    failures_max = configuration.get(options.RESCALE_CHECKPOINT_FAILURES)
    max_delay_ms = configuration.get(options.RESCALE_MAX_DELAY)
    if max_delay_ms is None:
        max_delay_ms = (checkpoints.interval_ms or 0) * (failures_max + 1)
    return RescaleSettings(max_delay_ms, failures_max)


def restore_settings(configuration: Configuration) -> RestoreSettings:
    """What to start from."""
    without = configuration.get(options.RESTORE_WITHOUT_IN_FLIGHT_DATA)
    return RestoreSettings(
        path=configuration.get(options.RESTORE_PATH),
        allow_non_restored=configuration.get(options.IGNORE_UNCLAIMED_STATE),
        claim_mode=configuration.get(options.RESTORE_CLAIM_MODE),
        without_in_flight_of=None if without < 0 else without,
        fork=configuration.get(options.FORK_NAME),
        fall_back=configuration.get(options.RESTORE_FALL_BACK),
    )


def zookeeper_settings(
    configuration: Configuration, checkpoints: CheckpointSettings
) -> ZooKeeperSettings | None:
    """Where the job's records are kept, where that is ZooKeeper."""
    if configuration.get(high_availability.HIGH_AVAILABILITY) != "ZOOKEEPER":
        return None
    if checkpoints.directory is None:
        raise ConfigError(
            "The job is to be highly available, but there is no folder for its checkpoints: they "
            "would end with the driver",
            where=configuration.where_set(high_availability.HIGH_AVAILABILITY),
            remedy=f"Set {options.CHECKPOINT_DIRECTORY.key}.",
        )
    root, cluster = (
        configuration.get(option).strip("/")
        for option in (high_availability.ZOOKEEPER_ROOT, high_availability.HA_CLUSTER)
    )
    login = high_availability.zookeeper_login(configuration)
    tls = high_availability.zookeeper_tls(configuration)
    creator_only = configuration.get(high_availability.ZOOKEEPER_ACL) == "creator"
    proved = tls is not None and tls.stores is not None and tls.stores.keystore is not None
    if creator_only and login is None and not proved:
        raise ConfigError(
            f"{high_availability.ZOOKEEPER_ACL.key} is creator, and ZooKeeper is not told who "
            "the creator is",
            where=configuration.where_set(high_availability.ZOOKEEPER_ACL),
            remedy=f"Set {high_availability.ZOOKEEPER_USERNAME.key} and its password, or "
            f"{high_availability.ZOOKEEPER_STORES.keystore.key}.",
        )
    return ZooKeeperSettings(
        quorum=_quorum(configuration),
        path="".join(f"/{part}" for part in (root, cluster) if part),
        session_timeout_ms=configuration.get(high_availability.ZOOKEEPER_SESSION_TIMEOUT),
        connection_timeout_ms=configuration.get(high_availability.ZOOKEEPER_CONNECTION_TIMEOUT),
        login=login,
        tls=tls,
        creator_only=creator_only,
    )


def _quorum(configuration: Configuration) -> str:
    given = configuration.get(high_availability.ZOOKEEPER_QUORUM) or ""
    servers = [server.strip() for server in given.split(",")]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(
                f"{high_availability.ZOOKEEPER_QUORUM.key} is {given!r}, which names no ZooKeeper "
                "servers",
                where=configuration.where_set(high_availability.ZOOKEEPER_QUORUM),
                remedy="Write host:port, several with commas between them; the node below which "
                f"Tidegate keeps its own is {high_availability.ZOOKEEPER_ROOT.key}.",
            )
    return ",".join(servers)


def slot_settings(configuration: Configuration) -> SlotSettings:
    """How slots work."""
    buffered = configuration.get(options.BUFFER_TIMEOUT_ENABLED)
    on_disk = configuration.get(options.STATE_BACKEND) == "rocksdb"
    return SlotSettings(
        rows=configuration.get(options.BATCH_ROWS),
        arrow_rows=configuration.get(options.BATCH_ARROW_ROWS),
        buffer_timeout_ms=configuration.get(options.BUFFER_TIMEOUT) if buffered else -1,
        credit=configuration.get(options.CHANNEL_CREDIT),
        yield_ms=configuration.get(options.LOOP_YIELD),
        slice_idle_ms=configuration.get(options.SNAPSHOT_SLICE_IDLE),
        slice_busy_ms=configuration.get(options.SNAPSHOT_SLICE_BUSY),
        pulse_ms=configuration.get(options.HEARTBEAT_INTERVAL),
        lease_ms=configuration.get(options.HEARTBEAT_TIMEOUT),
        cancel_interval_ms=configuration.get(cancellation.INTERVAL),
        cancel_timeout_ms=configuration.get(cancellation.TIMEOUT),
        object_reuse=configuration.get(options.OBJECT_REUSE),
        port_range=configuration.get(options.PORT_RANGE),
        part_bytes=configuration.get(options.SNAPSHOT_PART_SIZE),
        upload_threads=configuration.get(options.UPLOAD_THREADS),
        watermark_ms=configuration.get(options.AUTO_WATERMARK_INTERVAL),
        commit_retries=configuration.get(options.COMMITTER_RETRIES),
        debloat=debloat_settings(configuration),
        rocksdb=rocksdb_settings(configuration) if on_disk else None,
        final_only=configuration.get(options.RUNTIME_MODE) is RuntimeExecutionMode.BATCH,
        state_files=state_file_settings(configuration, on_disk=on_disk),
        changelog=changelog_settings(configuration),
        printed_max=configuration.get(options.PRINTED_LINES),
    )


def configuration_warnings(configuration: Configuration) -> list[str]:
    """What is set and has no effect, or another than the text says; a sentence each."""
    warnings = [
        f"{key} is an option of Flink that Tidegate does not read; it has no effect."
        for key in configuration.ignored_keys()
    ]
    retained = configuration.get(options.RETAINED_CHECKPOINTS)
    if retained <= 0:
        warnings.append(
            f"{options.RETAINED_CHECKPOINTS.key} is {retained}; at least one checkpoint is "
            f"kept, so {options.RETAINED_CHECKPOINTS.default} is used."
        )
    return warnings
