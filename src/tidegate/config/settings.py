"""Makes the settings of one job from a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config import (
    checkpointing,
    execution,
    high_availability,
    history,
    recovery,
    reporting,
    slots,
)
from tidegate.config.checkpointing import checkpoint_settings
from tidegate.config.high_availability import zookeeper_settings
from tidegate.config.metrics import reporter_settings, span_reporters
from tidegate.config.recovery import rescale_settings, restart_settings, restore_settings
from tidegate.config.rest import rest_settings
from tidegate.config.security import link_settings
from tidegate.config.slots import slot_settings
from tidegate.config.warnings import SILENCED
from tidegate.errors import ConfigError
from tidegate.model.settings import FailoverStrategy, JobSettings

if TYPE_CHECKING:
    from tidegate.config.metrics import KeyedConfig


_BEATS: Final = (
    (slots.HEARTBEAT_INTERVAL, slots.HEARTBEAT_TIMEOUT),
    (high_availability.LEADER_BEAT_INTERVAL, high_availability.LEADER_LEASE),
)


def job_settings(configuration: KeyedConfig) -> JobSettings:
    _check_beats(configuration)
    checkpoints = checkpoint_settings(configuration)
    return JobSettings(
        checkpoints=checkpoints,
        restart=restart_settings(configuration, checkpointing=checkpoints.periodic),
        failover=FailoverStrategy(configuration.get(recovery.FAILOVER_STRATEGY)),
        on_survivors=configuration.get(recovery.ON_SURVIVORS),
        rescale=rescale_settings(configuration, checkpoints),
        restore=restore_settings(configuration),
        slot=slot_settings(configuration),
        slots_timeout_ms=configuration.get(slots.SLOTS_START_TIMEOUT),
        last_checkpoint_ms=configuration.get(checkpointing.LAST_CHECKPOINT_TIMEOUT),
        exception_history_max=configuration.get(reporting.EXCEPTION_HISTORY),
        leader_beat_ms=configuration.get(high_availability.LEADER_BEAT_INTERVAL),
        leader_lease_ms=configuration.get(high_availability.LEADER_LEASE),
        span_reporters=span_reporters(configuration),
        zookeeper=zookeeper_settings(configuration, checkpoints),
        rest=rest_settings(configuration),
        archive_directory=configuration.get(history.ARCHIVE_DIRECTORY),
        reporters=reporter_settings(configuration),
        links=link_settings(configuration),
        parameters=configuration.get(execution.GLOBAL_JOB_PARAMETERS) or {},
        silenced=configuration.get(SILENCED),
        summary=configuration.get(reporting.SUMMARY),
        summary_file=configuration.get(reporting.SUMMARY_FILE),
        given=configuration.to_dict(),
    )


def _check_beats(configuration: KeyedConfig) -> None:
    for beat, lease in _BEATS:
        beat_ms, lease_ms = configuration.get(beat), configuration.get(lease)
        if lease_ms < 2 * beat_ms:
            raise ConfigError(
                f"{lease.key} is {lease_ms} ms, but signs of life come every {beat_ms} ms "
                f"({beat.key}): one that is late would be taken for a death",
                where=configuration.where_set(
                    beat if beat.key in configuration.key_set() else lease
                ),
                remedy=f"Make {lease.key} at least twice {beat.key}.",
            )
