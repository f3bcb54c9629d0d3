"""High availability: where leadership of jobs is recorded, and how leaders show that they live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.security import store_options
from tidegate.config.values import BooleanType, ChoiceType, DurationType, TextType
from tidegate.errors import ConfigError
from tidegate.model.settings import TlsStores, ZooKeeperLogin, ZooKeeperSettings, ZooKeeperTls

if TYPE_CHECKING:
    from tidegate.model.settings import CheckpointSettings

HIGH_AVAILABILITY: Final = ConfigOption(
    "high-availability.type",
    ChoiceType(("NONE", "ZOOKEEPER")),
    "NONE",
    "With ZOOKEEPER, ZooKeeper records who leads a job and which checkpoints it has, and a "
    "restarted driver resumes its job. With NONE, the checkpoint folder records this, and a job "
    "resumes only on request, with execution.state-recovery.path: latest.",
    old_keys=("high-availability", "recovery.mode"),
)
HA_CLUSTER: Final = ConfigOption(
    "high-availability.cluster-id",
    TextType(),
    "/default",
    "Separates jobs of the same name that share one ZooKeeper.",
    old_keys=(
        "high-availability.zookeeper.path.namespace",
        "recovery.zookeeper.path.namespace",
    ),
)
ZOOKEEPER_QUORUM: Final[ConfigOption[str | None]] = ConfigOption(
    "high-availability.zookeeper.quorum",
    TextType(),
    None,
    "Servers of ZooKeeper, as host:port,host:port.",
    old_keys=("recovery.zookeeper.quorum",),
)
ZOOKEEPER_ROOT: Final = ConfigOption(
    "high-availability.zookeeper.path.root",
    TextType(),
    "/tidegate",
    "Node below which Tidegate keeps everything.",
    old_keys=("recovery.zookeeper.path.root",),
    differs="Flink keeps other nodes below its own; both can share one ZooKeeper.",
)
ZOOKEEPER_SESSION_TIMEOUT: Final = ConfigOption(
    "high-availability.zookeeper.client.session-timeout",
    DurationType(at_least_ms=1_000),
    10_000,
    "A server that has been silent for two thirds of this time is replaced by another.",
    old_keys=("recovery.zookeeper.client.session-timeout",),
    differs="In Flink a leader ends with its session. Here nothing depends on it, so a server that "
    "does not answer is noticed sooner.",
)
ZOOKEEPER_CONNECTION_TIMEOUT: Final = ConfigOption(
    "high-availability.zookeeper.client.connection-timeout",
    DurationType(at_least_ms=100),
    15_000,
    "Time that connecting, and each call, waits for an answer.",
    old_keys=("recovery.zookeeper.client.connection-timeout",),
)
ZOOKEEPER_ACL: Final = ConfigOption(
    "high-availability.zookeeper.client.acl",
    ChoiceType(("open", "creator")),
    "open",
    "With creator, only this user can read and change what the job keeps in ZooKeeper. This needs "
    "tidegate.ha.zookeeper.username, or a keystore whose certificate the servers accept as a "
    "user. Existing nodes of the job are locked at the start.",
)
ZOOKEEPER_USERNAME: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.ha.zookeeper.username",
    TextType(),
    None,
    "User name of the driver at ZooKeeper, by SASL with DIGEST-MD5.",
)
ZOOKEEPER_PASSWORD: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.ha.zookeeper.password",
    TextType(),
    None,
    "Password of that user.",
)
ZOOKEEPER_SASL_DISABLED: Final = ConfigOption(
    "zookeeper.sasl.disable",
    BooleanType(),
    False,
    "Do not log in to ZooKeeper, even if a user is named.",
)
ZOOKEEPER_TLS: Final = ConfigOption(
    "tidegate.ha.zookeeper.ssl.enabled",
    BooleanType(),
    False,
    "Connect to ZooKeeper's servers over TLS, 1.2 or newer, at their secure client port.",
)
ZOOKEEPER_STORES: Final = store_options(
    "tidegate.ha.zookeeper.ssl",
    "the driver, where the servers ask for one",
    "the servers are known, in place of those that this machine trusts",
)
ZOOKEEPER_NAMES_CHECKED: Final = ConfigOption(
    "tidegate.ha.zookeeper.ssl.hostname-verification",
    BooleanType(),
    True,
    "Require that a server's certificate names the host in the quorum.",
)
LEADER_BEAT_INTERVAL: Final = ConfigOption(
    "tidegate.ha.beat-interval",
    DurationType(at_least_ms=10),
    500,
    "Time between two heartbeats of a job's leader.",
)
LEADER_LEASE: Final = ConfigOption(
    "tidegate.ha.lease",
    DurationType(at_least_ms=20),
    3_000,
    "A leader whose heartbeat has not changed for this long is considered dead.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    HIGH_AVAILABILITY,
    HA_CLUSTER,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    ZOOKEEPER_ACL,
    ZOOKEEPER_USERNAME,
    ZOOKEEPER_PASSWORD,
    ZOOKEEPER_SASL_DISABLED,
    ZOOKEEPER_TLS,
    *ZOOKEEPER_STORES.all(),
    ZOOKEEPER_NAMES_CHECKED,
    LEADER_BEAT_INTERVAL,
    LEADER_LEASE,
)


def zookeeper_settings(
    configuration: ReadableConfig, checkpoints: CheckpointSettings
) -> ZooKeeperSettings | None:
    if configuration.get(HIGH_AVAILABILITY) != "ZOOKEEPER":
        return None
    if checkpoints.directory is None:
        raise ConfigError(
            "The job is to be highly available, but there is no folder for its checkpoints: they "
            "would end with the driver",
            where=configuration.where_set(HIGH_AVAILABILITY),
            remedy="Set execution.checkpointing.dir.",
        )
    root, cluster = (
        configuration.get(option).strip("/") for option in (ZOOKEEPER_ROOT, HA_CLUSTER)
    )
    login = _login(configuration)
    tls = _tls(configuration)
    creator_only = configuration.get(ZOOKEEPER_ACL) == "creator"
    proved = tls is not None and tls.stores is not None and tls.stores.keystore is not None
    if creator_only and login is None and not proved:
        raise ConfigError(
            f"{ZOOKEEPER_ACL.key} is creator, but no user is set for ZooKeeper",
            where=configuration.where_set(ZOOKEEPER_ACL),
            remedy=f"Set {ZOOKEEPER_USERNAME.key} and its password, or "
            f"{ZOOKEEPER_STORES.keystore.key}.",
        )
    return ZooKeeperSettings(
        quorum=_quorum(configuration),
        path="".join(f"/{part}" for part in (root, cluster) if part),
        session_timeout_ms=configuration.get(ZOOKEEPER_SESSION_TIMEOUT),
        connection_timeout_ms=configuration.get(ZOOKEEPER_CONNECTION_TIMEOUT),
        login=login,
        tls=tls,
        creator_only=creator_only,
    )


def _quorum(configuration: ReadableConfig) -> str:
    given = configuration.get(ZOOKEEPER_QUORUM) or ""
    servers = [server.strip() for server in given.split(",")]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(
                f"{ZOOKEEPER_QUORUM.key} is {given!r}, which names no ZooKeeper servers",
                where=configuration.where_set(ZOOKEEPER_QUORUM),
                remedy="Write host:port, separated by commas; the node for Tidegate's records is "
                f"set by {ZOOKEEPER_ROOT.key}.",
            )
    return ",".join(servers)


def _login(configuration: ReadableConfig) -> ZooKeeperLogin | None:
    username, password = map(configuration.get, (ZOOKEEPER_USERNAME, ZOOKEEPER_PASSWORD))
    if username is None or password is None:
        if username != password:
            known, missing = ZOOKEEPER_USERNAME, ZOOKEEPER_PASSWORD
            if username is None:
                known, missing = missing, known
            raise ConfigError(
                f"{known.key} is set, and {missing.key} is not",
                where=configuration.where_set(known),
                remedy="Name both.",
            )
        return None
    if configuration.get(ZOOKEEPER_SASL_DISABLED):
        return None
    return ZooKeeperLogin(username, password)


def _tls(configuration: ReadableConfig) -> ZooKeeperTls | None:
    stores = ZOOKEEPER_STORES.named(configuration)
    if configuration.get(ZOOKEEPER_TLS):
        some = None if stores == TlsStores() else stores
        return ZooKeeperTls(some, configuration.get(ZOOKEEPER_NAMES_CHECKED))
    for option, value in (
        (ZOOKEEPER_STORES.keystore, stores.keystore),
        (ZOOKEEPER_STORES.truststore, stores.truststore),
    ):
        if value is not None:
            raise ConfigError(
                f"{option.key} is set, and {ZOOKEEPER_TLS.key} is not true",
                where=configuration.where_set(option),
                remedy=f"Set {ZOOKEEPER_TLS.key}: true.",
            )
    return None
