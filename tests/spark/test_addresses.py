"""Slots on Spark find their driver at the address that is told, or the job says why not."""

from contextlib import closing
from socket import create_server

import pytest

from tests.e2e.files import committed_rows
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.verify import check_each_counted_once
from tidegate import ConfigError, JobFailed
from tidegate.connectors import FileSink

TOTAL = 1_000


@pytest.mark.feature("F308")
@pytest.mark.parametrize(
    "settings",
    [
        {"tidegate.net.driver-bind-address": "::1", "tidegate.security.internal": "on"},
        {"tidegate.net.driver-bind-address": "127.0.0.2", "tidegate.net.network": "127.0.0.3/32"},
    ],
    ids=["IPv6", "two addresses"],
)
def test_a_job_runs_at_the_addresses_that_are_told(settings: dict[str, object], jobs: Jobs) -> None:
    env, out = jobs.checkpointed(2, 100, **settings), jobs.folder / "out"
    running_counts(env, TOTAL, 2_000).sink_to(FileSink.parquet(str(out), COUNT_SCHEMA))
    finished(jobs.start(env, "counts"))
    check_each_counted_once(committed_rows(out), TOTAL)


@pytest.mark.feature("F308")
def test_a_driver_that_slots_cannot_dial_ends_the_job_at_once(jobs: Jobs) -> None:
    with closing(create_server(("127.0.0.1", 0))) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    told = {
        "tidegate.net.driver-address": address,
        "tidegate.net.driver-bind-address": "127.0.0.1",
    }
    env = jobs.checkpointed(2, 100, **told)
    running_counts(env, TOTAL, 2_000).print()
    error = failure_of(jobs.start(env, "counts"))
    assert isinstance(error, JobFailed), error
    assert f"cannot reach the driver at {address}" in error.what
    assert "spark.driver.host" in error.remedy
    assert "tidegate.net.driver-bind-address" in error.remedy


def test_slots_without_a_free_port_end_the_job_with_the_range(jobs: Jobs) -> None:
    with closing(create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        narrow = {
            "tidegate.net.driver-bind-address": "127.0.0.1:0",
            "tidegate.net.port-range": str(port),
        }
        env = jobs.checkpointed(1, 100, **narrow)
        running_counts(env, TOTAL, 2_000).print()
        error = failure_of(jobs.start(env, "counts"))
    assert isinstance(error, JobFailed | ConfigError), error
    assert f"no port from {port} to {port} is free" in str(error)
