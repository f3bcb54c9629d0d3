"""A job on a standalone cluster of three hosts, and what dies under it."""

import os
from random import Random

import pytest

from tests.cluster.conftest import StartJob
from tests.cluster.job import ClusterJob
from tests.cluster.kills import KINDS, check_files, check_nothing_lost, kill_executors
from tests.cluster.standalone import WORKERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(420),
    pytest.mark.xdist_group("cluster"),
]


@pytest.fixture
def chance() -> Random:
    """Draws what is killed; the first seed is as good as any."""
    return Random(1)


@pytest.mark.feature("F306")
def test_slot_executor_and_worker_die_and_nothing_is_lost_or_doubled(
    start_job: StartJob, chance: Random
) -> None:
    job = start_job(rows=40_000)
    assert sorted(job.on_worker().values()) == list(WORKERS), "a slot on each host"
    check_slots_tell_their_hosts(job)
    for kind in ("slot", "executor", "worker"):
        report(kind, KINDS[kind](job, chance))
    assert check_nothing_lost(job) == 40_000


@pytest.mark.feature("F306")
def test_a_killed_driver_is_followed_by_one_that_goes_on_from_the_latest_checkpoint(
    start_job: StartJob, chance: Random
) -> None:
    job = start_job(rows=20_000, spark={"spark.driver.bindAddress": "0.0.0.0"})
    report("driver", KINDS["driver"](job, chance))
    assert check_nothing_lost(job) == 20_000


@pytest.mark.feature("F302", "F306")
def test_an_executor_dies_with_what_a_batch_has_shuffled_and_nothing_is_lost_or_doubled(
    start_job: StartJob, chance: Random
) -> None:
    job = start_job(rows=900, batch=True)
    assert kill_executors(job, chance, 2), "the batch runs when it is hit"
    assert check_nothing_lost(job) == 900
    check_files(job)


def check_slots_tell_their_hosts(job: ClusterJob) -> None:
    """What REST says of a slot's host is true, where hosts have names of their own."""
    told = {slot.pid: slot.host for slot in job.slots()}
    if job.cluster.network.named:
        assert told == job.on_worker()
    assert len(told) == 3


def report(kind: str, took_s: float) -> None:
    """Prints what a recovery took, with the load of the machine."""
    print(f"{kind}: recovered in {took_s:.1f} s at a load of {os.getloadavg()[0]:.1f}")
