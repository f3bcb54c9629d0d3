"""Hosts and ports as text, of IPv4, of IPv6 and by name."""

import pytest

from tidegate.model.addresses import address_of, host_and_port, parted


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.0.7", "10.1.0.7:50100"),
        ("node-3.example", "node-3.example:50100"),
        ("::1", "[::1]:50100"),
        ("fe80::1%eth0", "[fe80::1%eth0]:50100"),
    ],
)
def test_host_and_port_come_back_from_an_address(host: str, address: str) -> None:
    assert address_of(host, 50_100) == address
    assert host_and_port(address) == (host, 50_100)


@pytest.mark.parametrize(
    ("text", "host"),
    [("node", "node"), ("::1", "::1"), ("[::1]", "::1"), ("fd00:1::2", "fd00:1::2")],
)
def test_a_port_may_be_left_out(text: str, host: str) -> None:
    assert parted(text) == (host, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "node:",
        "node:x",
        "node:70000",
        "[::1",
        "::1]:5",
        "[]:5",
        "a b",
        "a:b:c",
        "[a]:5",
        "http://a:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host|is no port"):
        parted(text)
