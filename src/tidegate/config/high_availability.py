"""High availability: where it is kept who leads a job, and how leaders show that they live."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import ChoiceType, DurationType, TextType

HIGH_AVAILABILITY: Final = ConfigOption(
    "high-availability.type",
    ChoiceType(("NONE", "ZOOKEEPER")),
    "NONE",
    "ZOOKEEPER keeps there who leads a job and which checkpoints it has, and a driver that is "
    "started again goes on with its job. NONE keeps that in the checkpoint folder, and a job goes "
    "on when it is told to, with execution.state-recovery.path: latest.",
    old_keys=("high-availability", "recovery.mode"),
)
HA_CLUSTER: Final = ConfigOption(
    "high-availability.cluster-id",
    TextType(),
    "/default",
    "Keeps jobs of the same name apart that share one ZooKeeper.",
    old_keys=(
        "high-availability.zookeeper.path.namespace",
        "recovery.zookeeper.path.namespace",
    ),
)
ZOOKEEPER_QUORUM: Final[ConfigOption[str | None]] = ConfigOption(
    "high-availability.zookeeper.quorum",
    TextType(),
    None,
    "The servers, as host:port,host:port.",
    old_keys=("recovery.zookeeper.quorum",),
)
ZOOKEEPER_ROOT: Final = ConfigOption(
    "high-availability.zookeeper.path.root",
    TextType(),
    "/tidegate",
    "The node below which Tidegate keeps everything.",
    old_keys=("recovery.zookeeper.path.root",),
    differs="Flink keeps other nodes below its own; both can share one ZooKeeper.",
)
ZOOKEEPER_SESSION_TIMEOUT: Final = ConfigOption(
    "high-availability.zookeeper.client.session-timeout",
    DurationType(at_least_ms=1_000),
    10_000,
    "A server that has not been heard of for two thirds of this is left for another.",
    old_keys=("recovery.zookeeper.client.session-timeout",),
    differs="In Flink a leader ends with its session. Here nothing hangs on it, so a server that "
    "does not answer is noticed sooner.",
)
ZOOKEEPER_CONNECTION_TIMEOUT: Final = ConfigOption(
    "high-availability.zookeeper.client.connection-timeout",
    DurationType(at_least_ms=100),
    15_000,
    "How long connecting, and each call, waits for an answer.",
    old_keys=("recovery.zookeeper.client.connection-timeout",),
)
LEADER_BEAT_INTERVAL: Final = ConfigOption(
    "tidegate.ha.beat-interval",
    DurationType(at_least_ms=10),
    500,
    "Time between two signs of life of a job's leader.",
)
LEADER_LEASE: Final = ConfigOption(
    "tidegate.ha.lease",
    DurationType(at_least_ms=20),
    3_000,
    "A leader whose sign of life has not changed for this long is taken for dead.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    HIGH_AVAILABILITY,
    HA_CLUSTER,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    LEADER_BEAT_INTERVAL,
    LEADER_LEASE,
)
