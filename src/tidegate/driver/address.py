"""Where the driver listens, and where slots find it."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.config.net import DRIVER_ADDRESS, DRIVER_BIND, NETWORK
from tidegate.errors import ConfigError
from tidegate.model.addresses import ANNOUNCE, parted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.config.configuration import Configuration

LOCALHOST: Final = "127.0.0.1"
_ANY: Final = frozenset({"0.0.0.0", "::"})


@frozen
class DriverAddress:
    """bind: the host to listen on. announce: the one that slots dial, or such a host and port.

    ports: first and last port to listen on, if they are to be others than those of slots.
    """

    bind: str
    announce: str
    ports: tuple[int, int] | None = None


def told_address(
    configuration: Configuration, found: Callable[[], DriverAddress], *, one_machine: bool
) -> DriverAddress:
    """The address as options say; what they leave open is found.

    one_machine: slots run on this one. Raises ConfigError for a network that it has no address in.
    """
    announce, bind = configuration.get(DRIVER_ADDRESS), configuration.get(DRIVER_BIND)

    def left_open() -> DriverAddress:
        here = _in_network(configuration.get(NETWORK), must=one_machine)
        address = found() if here is None else DriverAddress(here, here)
        return replace(address, announce=_announced_from(address.bind) or address.announce)

    if bind is not None:
        host, port = parted(bind)
        if announce is None:
            announce = left_open().announce if host in _ANY else _announced_from(host) or host
        return DriverAddress(host, announce, None if port is None else (port, port))
    if announce is None:
        return left_open()
    host, port = parted(announce)
    if is_here(host):
        return DriverAddress(host, announce, None if port is None else (port, port))
    return DriverAddress(left_open().bind, announce)


def _in_network(network: str | None, *, must: bool) -> str | None:
    """Address of this machine in a network; None for a driver that may be outside of it."""
    if network is None:
        return None
    from tidegate.transport.interfaces import address_in

    try:
        return address_in(network)
    except ConfigError:
        if must:
            raise
        return None


def _announced_from(host: str) -> str | None:
    if ANNOUNCE not in os.environ:
        return None
    from tidegate.transport.interfaces import announced_from

    return announced_from(host)


def is_here(host: str) -> bool:
    """True if this machine can listen at an address, and not at all of its addresses at once."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return host not in _ANY
