"""Where the driver listens, and where slots find it: the options."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption
from tidegate.config.values import AddressType, NetworkType

DRIVER_ADDRESS: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.net.driver-address",
    AddressType(),
    None,
    "Address at which slots find the driver, with the port where it is to be a certain one. By "
    "default the one at which the driver listens, or Spark's driver.",
)
DRIVER_BIND: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.net.driver-bind-address",
    AddressType(),
    None,
    "Address at which the driver listens, with the port if it is to be a certain one. By default "
    "tidegate.net.driver-address, and its port, if this machine has it, else that of Spark's "
    "driver.",
)

NETWORK: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.net.network",
    NetworkType(),
    None,
    "Network of the links of slots, such as '10.1.0.0/16': on a node with several interfaces each "
    "slot, and the driver, takes the one whose address lies in it. By default the one that leads "
    "to the driver.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (DRIVER_ADDRESS, DRIVER_BIND, NETWORK)
