"""The name or address of an interface, for whoever is to reach it."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.model.settings import RestSettings


def announced(settings: RestSettings) -> str:
    """Name or address under which clients are told to reach the interface."""
    if settings.address is not None:
        return settings.address
    if is_everywhere(settings.bind_address):
        return socket.gethostname()
    return settings.bind_address


def is_everywhere(address: str) -> bool:
    """True for an address that stands for all those of a machine, such as ``0.0.0.0``."""
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return address == ""
