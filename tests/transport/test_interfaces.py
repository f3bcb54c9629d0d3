"""Addresses of this machine, and what a node announces."""

import socket

import psutil
import pytest

from tidegate.errors import ConfigError
from tidegate.model.addresses import ANNOUNCE
from tidegate.transport.interfaces import address_in, announced_from, local_addresses


def test_addresses_are_those_that_the_system_tells() -> None:
    kinds = (socket.AF_INET, socket.AF_INET6)
    up = {name for name, found in psutil.net_if_stats().items() if found.isup}
    known = {
        each.address
        for name, found in psutil.net_if_addrs().items()
        for each in found
        if name in up and each.family in kinds
    }
    assert set(local_addresses()) == known


@pytest.mark.parametrize(
    ("network", "address"),
    [("127.0.0.0/8", "127.0.0.1"), ("127.0.0.2/32", "127.0.0.2"), ("::1/128", "::1")],
)
def test_a_network_picks_the_address_that_lies_in_it(network: str, address: str) -> None:
    assert address_in(network) == address


def test_a_node_without_an_address_in_the_network_is_named_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError) as refused:
        address_in("198.51.100.0/24")
    said = refused.value.what
    assert f"node {socket.gethostname()} has no address in the network 198.51.100.0/24" in said
    assert "127.0.0.1" in said


def test_a_node_announces_what_its_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ANNOUNCE, raising=False)
    assert announced_from("10.1.0.7") is None
    monkeypatch.setenv(ANNOUNCE, "node-3.example")
    assert announced_from("10.1.0.7") == "node-3.example"
    assert announced_from("127.0.0.1") is None, "such a link stays on the machine"


@pytest.mark.parametrize("given", ["node:50100", "a b", "[::1"])
def test_what_a_node_cannot_announce_is_refused_by_name(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ANNOUNCE, given)
    with pytest.raises(ConfigError, match=f"{ANNOUNCE} is .* which is not a host"):
        announced_from("10.1.0.7")
