"""What a server of Spark Connect may forbid, and where executors find a driver behind it."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from tidegate import ConfigError
from tidegate.driver.address import DriverAddress
from tidegate.spark.access.connect import ConnectAccess

OURS = "127.0.0.1"
LIMIT_S = 100


def forbidden(*_: object, **__: object) -> Any:
    raise PySparkException("[NOT_SUPPORTED] the host does not allow it\nand more")


def session(host: str = "localhost", **conf: str) -> Any:
    """A session as far as its access goes. conf: of the server; the host has no other settings."""
    return SimpleNamespace(
        is_stopped=False,
        interruptTag=lambda tag: [],
        conf=SimpleNamespace(get=conf.get),
        client=SimpleNamespace(host=host),
        addArtifacts=forbidden,
    )


def test_a_server_that_does_not_end_queries_is_refused_before_anything_runs() -> None:
    spark = session()
    ConnectAccess(spark).refuse_unfit()
    spark.interruptTag = forbidden
    with pytest.raises(ConfigError, match="does not end queries by their tag") as refused:
        ConnectAccess(spark).refuse_unfit()
    assert "the host does not allow it" in refused.value.what
    assert "and more" not in refused.value.what
    assert "spark-submit --deploy-mode cluster" in refused.value.remedy


def test_settings_that_a_host_keeps_to_itself_are_as_by_default() -> None:
    spark = session()
    spark.conf = SimpleNamespace(get=forbidden)
    access = ConnectAccess(spark)
    access.refuse_unfit()
    assert access.cores is None and access.setting("spark.task.cpus", "1") == "1"


@pytest.mark.parametrize(("master", "cores"), [("local[*]", None), ("local[4]", 4)])
def test_cores_of_a_servers_machine_are_not_taken_to_be_ours(
    master: str, cores: int | None
) -> None:
    assert ConnectAccess(session(**{"spark.master": master})).cores == cores


def test_settings_that_a_host_refuses_leave_none_of_the_others_changed() -> None:
    settings = {"kept": "before"}

    class Conf:
        def get(self, key: str, default: str | None) -> str | None:
            return settings.get(key, default)

        def set(self, key: str, value: str) -> None:
            if key == "refused":
                forbidden()
            settings[key] = value

        def unset(self, key: str) -> None:
            settings.pop(key, None)

    class Session:
        conf = Conf()

    access: Any = ConnectAccess(cast("Any", Session()))
    for _ in range(2):
        wanted = {"kept": "ours", "new": "ours", "refused": "ours"}
        with pytest.raises(PySparkException), access.with_settings(wanted):
            raise AssertionError("it has none of these settings")
        assert settings == {"kept": "before"}


def test_a_host_that_takes_no_files_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="does not take a file for its executors") as refused:
        ConnectAccess(session()).give_archive("packages.tar.gz", "packages")
    assert "have them installed" in refused.value.remedy


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_executors_of_a_server_on_this_machine_find_the_driver_there(host: str) -> None:
    conf = {"spark.master": "local[4]"}
    address = ConnectAccess(session(host, **conf)).driver_address()
    assert address in (DriverAddress(OURS, OURS), DriverAddress("::1", "::1"))


def test_other_executors_find_it_where_they_find_the_servers_driver() -> None:
    conf = {"spark.master": "spark://elsewhere:7077", "spark.driver.host": "127.0.0.5"}
    assert ConnectAccess(session(**conf)).driver_address() == DriverAddress(
        "127.0.0.5", "127.0.0.5"
    )


@pytest.mark.parametrize("driver", ["198.51.100.7", ""])
def test_a_tunnel_to_a_server_elsewhere_asks_for_an_address(driver: str) -> None:
    conf = {"spark.master": "yarn", "spark.driver.host": driver}
    with pytest.raises(ConfigError, match="through this machine's own loopback") as refused:
        ConnectAccess(session(**conf)).driver_address()
    for option in ("tidegate.net.driver-address", "tidegate.net.driver-bind-address"):
        assert option in refused.value.remedy


def test_a_server_without_a_route_asks_for_an_address() -> None:
    with pytest.raises(ConfigError, match=r"no route to Spark Connect's server nowhere\.invalid"):
        ConnectAccess(session("nowhere.invalid")).driver_address()


def test_a_classic_session_loads_nothing_of_connect() -> None:
    program = (
        "import sys; import tidegate.spark.elastic, tidegate.spark.frames;"
        "from tidegate.spark.access import classic;"
        "print([each for each in sys.modules if each.startswith('pyspark.sql.connect')"
        " or each == 'tidegate.spark.access.connect'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
