"""Addresses of listeners as text: a host and a port, with brackets around a host of IPv6."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import Final

ANNOUNCE: Final = "TIDEGATE_ANNOUNCE"
"""Environment variable of a node: the host at which others find it."""

_BRACKETED: Final = re.compile(r"\[([^\[\]]+)\](?::(\d+))?")
_NAMED: Final = re.compile(r"([^\s:\[\]/@]+)(?::(\d+))?")


def address_of(host: str, port: int) -> str:
    """Host and port as one text, such as ``10.1.0.7:50100`` or ``[::1]:50100``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parted(address: str) -> tuple[str, int | None]:
    """Host and port of an address; None for the port where it has none.

    A host of IPv6 may stand without brackets where no port follows. Raises ValueError.
    """
    if _is_ipv6(address):
        return address, None
    bracketed = _BRACKETED.fullmatch(address)
    found = bracketed or _NAMED.fullmatch(address)
    if found is None or (bracketed and not _is_ipv6(bracketed[1])):
        raise ValueError(f"{address!r} is not a host, or a host and a port")
    port = None if found[2] is None else int(found[2])
    if port is not None and port > 65_535:
        raise ValueError(f"{port} is no port")
    return found[1], port


def _is_ipv6(host: str) -> bool:
    try:
        return bool(IPv6Address(host))
    except ValueError:
        return False


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of an address that `address_of` has made."""
    host, port = parted(address)
    assert port is not None, "addresses that are announced have a port"
    return host, port


def leaves_machine(host: str, announce: str | None = None) -> bool:
    """True if links of a listener may come from other machines.

    host: the address that is bound. announce: another one that leads there, such as a tunnel's or
    a container's, with a port or without.
    """
    return not all(is_loopback(parted(each)[0]) for each in (host, announce or host))


def is_loopback(host: str) -> bool:
    """True if connections to this address stay on the machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
