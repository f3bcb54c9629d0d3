"""Addresses of this machine's network interfaces, and the choice of one by its network."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import ConfigError
from tidegate.model.addresses import ANNOUNCE, is_loopback, parted

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK_KEY: Final = "tidegate.net.network"

_UP: Final = 1
_IPV4_AT, _IPV6_AT = 4, 8
"""Bytes of a socket address before the host's own address."""


class _Interface(ctypes.Structure):
    """The first fields of C's ``struct ifaddrs``, which are the same on Linux and macOS."""


_Interface._fields_ = [
    ("next", ctypes.POINTER(_Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def local_addresses() -> list[str]:
    """Addresses of all interfaces that are up, of IPv4 and of IPv6, in the system's order.

    An address of IPv6 that holds on one link alone has its interface behind it: ``fe80::1%eth0``.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Interface)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "the system does not tell its addresses")
    try:
        return list(_addresses(first))
    finally:
        libc.freeifaddrs(first)


def _addresses(at: Any) -> Iterator[str]:
    while at:
        entry = at.contents
        if entry.address and entry.flags & _UP:
            # Linux has the family in two bytes, macOS in the second one, behind a length.
            raw = ctypes.string_at(entry.address, 2)
            family = raw[1] if sys.platform == "darwin" else int.from_bytes(raw, sys.byteorder)
            if family == socket.AF_INET:
                yield socket.inet_ntop(family, ctypes.string_at(entry.address + _IPV4_AT, 4))
            elif family == socket.AF_INET6:
                found = socket.inet_ntop(family, ctypes.string_at(entry.address + _IPV6_AT, 16))
                local = ipaddress.IPv6Address(found).is_link_local
                yield f"{found}%{entry.name.decode()}" if local else found
        at = entry.next


def announced_from(host: str) -> str | None:
    """Host that this node announces in place of its own, such as one of a NAT in front of it.

    host: the one that is listened at; a link that stays on the machine needs no other. None if the
    node's environment names none. Raises ConfigError.
    """
    given = os.environ.get(ANNOUNCE)
    if not given or is_loopback(host):
        return None
    try:
        announced, port = parted(given)
    except ValueError:
        announced, port = "", None
    if not announced or port is not None:
        raise ConfigError(
            f"{ANNOUNCE} is {given!r} on node {socket.gethostname()}, which is not a host",
            where="environment variables",
            remedy="Give a host name or an address, without a port.",
        )
    return announced


def address_in(network: str) -> str:
    """An address of this machine in a network, such as ``10.1.0.0/16``; the first of several.

    All of 127.0.0.0/8 is this machine's. Raises ConfigError, with the addresses that it has.
    """
    within = ipaddress.ip_network(network)
    have = local_addresses()
    for each in have:
        if ipaddress.ip_address(each) in within:
            return each
    if within.is_loopback and within.num_addresses == 1:
        return str(within.network_address)
    raise ConfigError(
        f"node {socket.gethostname()} has no address in the network {network}; it has "
        f"{', '.join(have)}",
        where=NETWORK_KEY,
        remedy="Name a network in which each node has an address.",
    )
