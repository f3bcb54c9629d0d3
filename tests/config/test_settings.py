from __future__ import annotations

import socket

import pytest

from tidegate.config import checkpointing, execution, slots
from tidegate.config.configuration import Configuration, configuration_warnings
from tidegate.config.settings import job_settings
from tidegate.errors import ConfigError
from tidegate.model.settings import (
    ChangelogSettings,
    ClaimMode,
    DebloatSettings,
    ExponentialDelay,
    FailoverStrategy,
    FailureRate,
    FixedDelay,
    JobSettings,
    NoRestart,
    RescaleSettings,
    RestartSettings,
    SlotSettings,
    TlsStores,
    ZooKeeperLogin,
    ZooKeeperSettings,
    ZooKeeperTls,
)


def restart_of(settings: dict[str, str]) -> RestartSettings:
    return job_settings(Configuration.from_dict(settings)).restart


def test_with_nothing_set_the_defaults_of_the_options_are_those_of_the_settings() -> None:
    settings = job_settings(Configuration())
    assert settings == JobSettings(checkpoints=settings.checkpoints)


def test_restart_depends_on_checkpointing_where_nothing_is_set() -> None:
    assert restart_of({}) == NoRestart()
    assert restart_of({"execution.checkpointing.interval": "1 s"}) == ExponentialDelay()


def test_what_a_failure_takes_along_is_read_and_anything_else_refused() -> None:
    key = "jobmanager.execution.failover-strategy"
    assert job_settings(Configuration.from_dict({key: "full"})).failover is FailoverStrategy.FULL
    with pytest.raises(ConfigError, match="region"):
        job_settings(Configuration.from_dict({key: "some"}))


def test_buffer_debloating_is_off_unless_enabled_and_has_flinks_defaults() -> None:
    key = "taskmanager.network.memory.buffer-debloat."
    given = {f"{key}target": "500 ms", f"{key}samples": "3"}
    assert job_settings(Configuration.from_dict(given)).slot.debloat is None
    on = {f"{key}enabled": "true"}
    assert job_settings(Configuration.from_dict(on)).slot.debloat == DebloatSettings()
    both = job_settings(Configuration.from_dict({**on, **given})).slot.debloat
    assert both == DebloatSettings(target_ms=500, samples=3)
    with pytest.raises(ConfigError, match="threshold"):
        job_settings(Configuration.from_dict({**on, f"{key}threshold-percentages": "101"}))


def test_a_rescale_waits_for_three_intervals_unless_it_is_told_otherwise() -> None:
    trigger = "jobmanager.adaptive-scheduler.rescale-trigger"

    def waits(**settings: str) -> RescaleSettings:
        return job_settings(Configuration.from_dict(settings)).rescale

    interval = {"execution.checkpointing.interval": "2 s"}
    failures = {f"{trigger}.max-checkpoint-failures": "4"}
    assert waits() == RescaleSettings(max_delay_ms=0, checkpoint_failures_max=2)
    assert waits(**interval) == RescaleSettings(max_delay_ms=6_000)
    assert waits(**interval, **failures) == RescaleSettings(10_000, 4)
    assert waits(**interval, **{f"{trigger}.max-delay": "1 s"}) == RescaleSettings(1_000)


def test_each_restart_strategy_is_read_with_its_options() -> None:
    assert restart_of({"restart-strategy": "none"}) == NoRestart()
    assert restart_of(
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "0 s",
        }
    ) == FixedDelay(attempts=3, delay_ms=0)
    assert restart_of(
        {
            "restart-strategy.type": "failurerate",
            "restart-strategy.failure-rate.max-failures-per-interval": "2",
        }
    ) == FailureRate(failures_max=2)
    assert restart_of(
        {
            "restart-strategy.type": "Exponential_Delay",
            "restart-strategy.exponential-delay.max-backoff": "2 min",
        }
    ) == ExponentialDelay(max_ms=120_000)


def test_a_first_wait_longer_than_the_longest_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than the longest"):
        restart_of(
            {
                "restart-strategy.type": "exponential-delay",
                "restart-strategy.exponential-delay.initial-backoff": "2 min",
            }
        )


def test_what_to_start_from_is_read() -> None:
    restore = job_settings(
        Configuration.from_dict(
            {
                "execution.savepoint.path": "/s/chk-7",
                "execution.state-recovery.claim-mode": "claim",
                "execution.state-recovery.ignore-unclaimed-state": "true",
            }
        )
    ).restore
    assert restore.path == "/s/chk-7"
    assert restore.claim_mode is ClaimMode.CLAIM
    assert restore.allow_non_restored


@pytest.mark.feature("F251")
def test_flinks_third_claim_mode_is_refused_by_naming_the_other_two() -> None:
    configuration = Configuration()
    with pytest.raises(ConfigError) as refused:
        configuration.set("execution.state-recovery.claim-mode", "LEGACY")
        job_settings(configuration)
    assert "NO_CLAIM" in str(refused.value) and "CLAIM" in refused.value.remedy


def test_slots_are_told_how_to_work() -> None:
    configuration = Configuration()
    assert job_settings(configuration).slot == SlotSettings()
    configuration.set(execution.BUFFER_TIMEOUT_ENABLED, False).set(slots.PORT_RANGE, "1-2")
    assert job_settings(configuration).slot == SlotSettings(buffer_timeout_ms=-1, port_range=(1, 2))


def test_changes_of_state_are_logged_as_it_says() -> None:
    configuration = Configuration.from_dict(
        {
            "state.backend.changelog.enabled": "true",
            "state.changelog.periodic-materialize.interval": "5 min",
            "dstl.dfs.preemptive-persist-threshold": "1 mb",
            "state.changelog.storage": "memory",
        }
    )
    changelog = job_settings(configuration).slot.changelog
    assert changelog == ChangelogSettings(
        materialize_ms=300_000, persist_bytes=1 << 20, in_memory=True
    )
    configuration.set_string("state.changelog.periodic-materialize.enabled", "false")
    changelog = job_settings(configuration).slot.changelog
    assert changelog is not None and changelog.materialize_ms is None
    with pytest.raises(ConfigError, match=r"state\.changelog\.storage"):
        configuration.set_string("state.changelog.storage", "kafka")


def test_what_has_no_effect_is_said() -> None:
    configuration = Configuration().set("rest.profiling.enabled", True)
    configuration.set(checkpointing.RETAINED_CHECKPOINTS, -3)
    first, second = configuration_warnings(configuration)
    assert first.startswith("rest.profiling.enabled is an option of Flink")
    assert second == (
        "execution.checkpointing.num-retained is -3; at least one checkpoint is kept, so 2 is used."
    )


@pytest.mark.parametrize("quorum", [None, "", "zk-1", "zk-1:2181/flink", "zk-1:2181,,", "zk:x"])
def test_servers_that_are_none_are_refused(quorum: str | None) -> None:
    configuration = Configuration().set("high-availability.type", "zookeeper")
    configuration.set("execution.checkpointing.dir", "/c")
    if quorum is not None:
        configuration.set("high-availability.zookeeper.quorum", quorum)
    with pytest.raises(ConfigError, match="names no ZooKeeper servers") as refused:
        job_settings(configuration)
    assert "host:port" in refused.value.remedy


def test_high_availability_needs_a_folder_that_outlives_the_driver() -> None:
    configuration = Configuration().set("high-availability.type", "zookeeper")
    configuration.set("high-availability.zookeeper.quorum", "zk:2181")
    with pytest.raises(ConfigError, match="no folder for its checkpoints") as refused:
        job_settings(configuration)
    assert "execution.checkpointing.dir" in refused.value.remedy


def test_zookeeper_is_found_by_flinks_keys_and_their_older_spellings() -> None:
    configuration = Configuration.from_dict(
        {
            "recovery.mode": "zookeeper",
            "recovery.zookeeper.quorum": "zk-1:2181, zk-2:2182",
            "high-availability.zookeeper.path.root": "/base/",
            "high-availability.cluster-id": "blue",
            "high-availability.zookeeper.client.session-timeout": "4 s",
            "execution.checkpointing.dir": "/c",
        }
    )
    assert job_settings(configuration).zookeeper == ZooKeeperSettings(
        "zk-1:2181,zk-2:2182", "/base/blue", session_timeout_ms=4_000
    )
    assert job_settings(Configuration()).zookeeper is None


def secured(**options: object) -> ZooKeeperSettings:
    settings: dict[str, object] = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": "zk:2181",
        "execution.checkpointing.dir": "/c",
    }
    for key, value in options.items():
        prefix = "high-availability.zookeeper.client" if key == "acl" else "tidegate.ha.zookeeper"
        settings[f"{prefix}.{key.replace('__', '.').replace('_', '-')}"] = value
    found = job_settings(Configuration.from_dict(settings)).zookeeper
    assert found is not None
    return found


def test_zookeeper_is_told_who_the_driver_is_and_reached_over_tls() -> None:
    found = secured(username="tide", password="hunter2", acl="creator")
    assert found.login == ZooKeeperLogin("tide", "hunter2") and found.creator_only
    assert "hunter2" not in repr(found)
    assert secured(ssl__enabled=True).tls == ZooKeeperTls(None)
    found = secured(
        ssl__enabled=True,
        ssl__keystore="own.p12",
        ssl__keystore_password="hunter3",
        ssl__hostname_verification=False,
        acl="creator",
    )
    assert found.tls == ZooKeeperTls(TlsStores("own.p12", "hunter3"), check_names=False)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"username": "tide"}, "password is not"),
        ({"password": "hunter2"}, "username is not"),
        ({"acl": "creator"}, "no user is set"),
        ({"acl": "creator", "ssl__enabled": True, "ssl__truststore": "ca.pem"}, "no user is set"),
        ({"ssl__truststore": "ca.pem"}, "enabled is not true"),
    ],
)
def test_half_of_what_secures_zookeeper_is_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        secured(**options)


def test_a_kind_of_high_availability_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="KUBERNETES"):
        Configuration().set("high-availability.type", "KUBERNETES")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"heartbeat.interval": "10 s"}, "heartbeat.timeout is 10000 ms, but signs of life come"),
        ({"heartbeat.timeout": "1 s"}, "heartbeat.timeout at least twice heartbeat.interval"),
        ({"tidegate.ha.beat-interval": "2 s"}, "tidegate.ha.lease is 3000 ms"),
    ],
)
def test_a_beat_that_is_as_slow_as_its_lease_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        job_settings(Configuration.from_dict(given))
    ten = {"heartbeat.interval": "10 s", "heartbeat.timeout": "50 s"}
    assert job_settings(Configuration.from_dict(ten)).slot.pulse_ms == 10_000


def test_a_heartbeat_timeout_that_links_cannot_have_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"heartbeat.timeout is '30 d', which is above 24 d"
    ) as told:
        Configuration.from_dict({"heartbeat.timeout": "30 d"})
    assert "at least 100 ms and at most 24 d" in told.value.remedy
    longest = Configuration.from_dict({"heartbeat.timeout": "24 d"}).get(slots.HEARTBEAT_TIMEOUT)
    with socket.socket() as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, longest)
        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == longest
