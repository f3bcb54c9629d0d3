"""Where a slot's process listens, before it is one."""

import socket
from contextlib import closing

import pytest

from tidegate.errors import ConfigError
from tidegate.model.control import SlotInvitation
from tidegate.slot.process.serve import serve

NAMED = "127.1"
"""The system takes it for 127.0.0.1, as Debian takes a node's own name for 127.0.1.1."""


def test_a_node_that_takes_the_drivers_name_for_its_own_loopback_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")  # heaps of the process of tests stay as they are
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    with closing(socket.create_server(("127.0.0.1", 0))) as driver:
        address = f"{NAMED}:{driver.getsockname()[1]}"
        with pytest.raises(ConfigError) as refused:
            serve(SlotInvitation(address, b"secret"))
    assert f"node {socket.gethostname()} reaches the driver at {address}" in refused.value.what
    assert refused.value.where == "tidegate.net.network"
