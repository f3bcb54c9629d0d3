"""The REST interface of a job: whether its driver serves one, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import DurationType, PortRangeType, TextType
from tidegate.model.settings import RestSettings

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration

LOCALHOST: Final = "localhost"

REST_PORT: Final[ConfigOption[tuple[int, int] | None]] = ConfigOption(
    "rest.port",
    PortRangeType(),
    None,
    "Port at which the job's driver serves the REST interface, or a range of which it takes the "
    "first that is free; 0 takes any. Unset, and with rest.bind-port unset, none is served.",
    old_keys=("web.port",),
    differs="Flink's cluster always serves 8081. Here each job has a driver of its own, and opens "
    "a port only where it is told to.",
)
REST_BIND_PORT: Final[ConfigOption[tuple[int, int] | None]] = ConfigOption(
    "rest.bind-port",
    PortRangeType(),
    None,
    "The same, and goes before rest.port.",
    old_keys=("jobmanager.web.port",),
    differs="As rest.port.",
)
REST_ADDRESS: Final[ConfigOption[str | None]] = ConfigOption(
    "rest.address",
    TextType(),
    None,
    "Name under which clients reach the interface, for what is said of it; unset takes the "
    "address that it is bound to.",
    old_keys=("jobmanager.rpc.address",),
)
REST_BIND_ADDRESS: Final = ConfigOption(
    "rest.bind-address",
    TextType(),
    LOCALHOST,
    "Address that the REST interface is bound to. Whoever reaches it can stop the job: leave it on "
    "this machine, or let only those in whom you trust; 0.0.0.0 is every address.",
    old_keys=("web.address", "jobmanager.web.address"),
    differs="Flink binds every address.",
)
REST_STORE_DURATION: Final = ConfigOption(
    "rest.async.store-duration",
    DurationType(),
    300_000,
    "How long the result of an operation that was asked for can be read after its end.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    REST_PORT,
    REST_BIND_PORT,
    REST_ADDRESS,
    REST_BIND_ADDRESS,
    REST_STORE_DURATION,
)


def rest_settings(configuration: Configuration) -> RestSettings | None:
    """Where the REST interface is served; None where it is not."""
    ports = configuration.get(REST_BIND_PORT) or configuration.get(REST_PORT)
    if ports is None:
        return None
    return RestSettings(
        ports=ports,
        bind_address=configuration.get(REST_BIND_ADDRESS),
        address=configuration.get(REST_ADDRESS),
        store_ms=configuration.get(REST_STORE_DURATION),
    )
