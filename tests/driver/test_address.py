"""Where the driver listens, and the address that is told of it, as options say."""

import pytest

from tidegate.config.configuration import Configuration
from tidegate.driver.address import DriverAddress, told_address
from tidegate.model.addresses import ANNOUNCE

FOUND = DriverAddress("192.0.2.7", "192.0.2.7")
ADDRESS, BIND = "tidegate.net.driver-address", "tidegate.net.driver-bind-address"
ELSEWHERE = "198.51.100.7"


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, FOUND),
        ({ADDRESS: "127.0.0.2"}, DriverAddress("127.0.0.2", "127.0.0.2")),
        (
            {ADDRESS: "127.0.0.2:50100"},
            DriverAddress("127.0.0.2", "127.0.0.2:50100", (50100, 50100)),
        ),
        ({ADDRESS: f"{ELSEWHERE}:50100"}, DriverAddress(FOUND.bind, f"{ELSEWHERE}:50100")),
        (
            {ADDRESS: "127.0.0.2:50100", BIND: "127.0.0.3:50200"},
            DriverAddress("127.0.0.3", "127.0.0.2:50100", (50200, 50200)),
        ),
        ({BIND: "127.0.0.3"}, DriverAddress("127.0.0.3", "127.0.0.3")),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_the_driver_listens_where_it_can_be_found(
    settings: dict[str, str], address: DriverAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ANNOUNCE, raising=False)
    configuration = Configuration.from_dict(settings)
    assert told_address(configuration, lambda: FOUND, one_machine=False) == address
