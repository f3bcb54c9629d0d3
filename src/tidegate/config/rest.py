"""REST interface of a job: whether and where its driver serves one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.security import store_options
from tidegate.config.values import BooleanType, DurationType, ListType, PortRangeType, TextType
from tidegate.errors import ConfigError
from tidegate.model.settings import RestSettings

if TYPE_CHECKING:
    from tidegate.model.settings import TlsStores

LOCALHOST: Final = "localhost"

REST_PORT: Final[ConfigOption[tuple[int, int] | None]] = ConfigOption(
    "rest.port",
    PortRangeType(),
    None,
    "Port at which the job's driver serves the REST interface, or a range of which it takes the "
    "first free port; 0 takes any. If this and rest.bind-port are unset, the interface is not "
    "served.",
    old_keys=("web.port",),
    differs=(
        "Flink's cluster always serves 8081. Here each job has a driver of its own, and opens a "
        "port only on request."
    ),
)
REST_BIND_PORT: Final[ConfigOption[tuple[int, int] | None]] = ConfigOption(
    "rest.bind-port",
    PortRangeType(),
    None,
    "Overrides rest.port.",
    old_keys=("jobmanager.web.port",),
    differs="As rest.port.",
)
REST_ADDRESS: Final[ConfigOption[str | None]] = ConfigOption(
    "rest.address",
    TextType(),
    None,
    "Name under which clients reach the interface, used in messages; by default, the address that "
    "it is bound to, or the machine's host name if that is every address.",
    old_keys=("jobmanager.rpc.address",),
)
REST_BIND_ADDRESS: Final = ConfigOption(
    "rest.bind-address",
    TextType(),
    LOCALHOST,
    "Address that the REST interface is bound to. Whoever reaches it can stop the job: leave it "
    "on this machine, or admit only people you trust; 0.0.0.0 and :: mean every address.",
    old_keys=("web.address", "jobmanager.web.address"),
    differs="Flink binds every address.",
)
REST_STORE_DURATION: Final = ConfigOption(
    "rest.async.store-duration",
    DurationType(),
    300_000,
    "Time for which the result of an operation can be read after its end.",
)
REST_ALLOWED_HOSTS: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "tidegate.rest.allowed-hosts",
    ListType(),
    (),
    "Names under which clients may address the REST interface, beside localhost, rest.address, the "
    "dialled address and, if every address is bound, the machine's host name. Requests under any "
    "other name are refused, since a foreign page can give its own name to this machine.",
)
REST_SAVEPOINT_DIRECTORIES: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "tidegate.rest.savepoint-dirs",
    ListType(),
    (),
    "Folders, beside execution.checkpointing.savepoint-dir, below which requests may create or "
    "delete savepoints; '*' allows every place that the driver can reach.",
)
REST_TOKEN_FILE: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.rest.token-file",
    TextType(),
    None,
    "File with a token of at least 16 characters that every request must carry, as "
    "'Authorization: Bearer <token>'. Only its owner may have access to it.",
)
REST_WEB_JAR: Final[ConfigOption[str | None]] = ConfigOption(
    "rest.web.jar",
    TextType(),
    None,
    "Jar with Flink's own web dashboard, such as flink-runtime-web-2.3.0.jar; its page "
    "is served at /index.html, read out of the jar.",
)
REST_FLAME_GRAPHS: Final = ConfigOption(
    "rest.flamegraph.enabled",
    BooleanType(),
    True,
    "Whether REST and the page may have slots sample where the time of their functions goes, as "
    "flame graphs. Slots sample for a minute after each request, and cost nothing else.",
    differs="In Flink it is false.",
)
REST_TLS: Final = ConfigOption(
    "security.ssl.rest.enabled",
    BooleanType(),
    False,
    "Serve the REST interface over TLS, with security.ssl.rest.keystore.",
)
REST_CLIENTS_PROVED: Final = ConfigOption(
    "security.ssl.rest.authentication-enabled",
    BooleanType(),
    False,
    "Answer only clients with a certificate that security.ssl.rest.truststore accepts.",
)
REST_STORES: Final = store_options(
    "security.ssl.rest", "the REST interface", "its clients are known"
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    REST_PORT,
    REST_BIND_PORT,
    REST_ADDRESS,
    REST_BIND_ADDRESS,
    REST_STORE_DURATION,
    REST_ALLOWED_HOSTS,
    REST_SAVEPOINT_DIRECTORIES,
    REST_TOKEN_FILE,
    REST_WEB_JAR,
    REST_FLAME_GRAPHS,
    REST_TLS,
    REST_CLIENTS_PROVED,
    *REST_STORES.all(),
)


def rest_settings(configuration: ReadableConfig) -> RestSettings | None:
    ports = configuration.get(REST_BIND_PORT) or configuration.get(REST_PORT)
    if ports is None:
        return None
    return RestSettings(
        ports=ports,
        bind_address=configuration.get(REST_BIND_ADDRESS),
        address=configuration.get(REST_ADDRESS),
        store_ms=configuration.get(REST_STORE_DURATION),
        allowed_hosts=configuration.get(REST_ALLOWED_HOSTS),
        savepoint_directories=configuration.get(REST_SAVEPOINT_DIRECTORIES),
        token_file=configuration.get(REST_TOKEN_FILE),
        tls=_tls(configuration),
        jar=configuration.get(REST_WEB_JAR),
        flame_graphs=configuration.get(REST_FLAME_GRAPHS),
    )


def _tls(configuration: ReadableConfig) -> TlsStores | None:
    if not configuration.get(REST_TLS):
        return None
    proved = configuration.get(REST_CLIENTS_PROVED)
    stores = REST_STORES.read(configuration, both_ends=proved)
    if stores is None:
        raise ConfigError(
            f"{REST_TLS.key} is true, and there is no {REST_STORES.keystore.key}",
            where=configuration.where_set(REST_TLS),
            remedy="Name a PEM or PKCS12 file with a key and its certificate.",
        )
    return stores
