"""Checkpoints of a job whose last step is slow."""

import pytest

from tests.e2e.backpressure import (
    ALIGNMENT_TIMEOUT,
    check_killed_under_backpressure,
    check_rescaled_under_backpressure,
    durations_ms,
    start_slow,
    wait_persisted,
)
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import view

pytestmark = pytest.mark.slow


@pytest.mark.feature("F237", "F160", "F152", "F153")
def test_kills_under_backpressure_lose_and_double_nothing(jobs: Jobs) -> None:
    check_killed_under_backpressure(jobs)


@pytest.mark.feature("F238")
def test_kills_after_alignment_has_timed_out_lose_and_double_nothing(jobs: Jobs) -> None:
    check_killed_under_backpressure(jobs, **{ALIGNMENT_TIMEOUT: "100 ms"})


@pytest.mark.feature("F241")
def test_an_unaligned_checkpoint_goes_on_at_other_parallelisms(jobs: Jobs) -> None:
    check_rescaled_under_backpressure(jobs, (2, 3, 1))


@pytest.mark.feature("F237")
def test_unaligned_checkpoints_do_not_wait_for_a_slow_step(jobs: Jobs) -> None:
    aligned_ms = durations_ms(
        jobs, 1, 0.0005, **{"execution.checkpointing.unaligned.enabled": "false"}
    )
    unaligned_ms = durations_ms(jobs, 4, 0.0005)
    print(f"under backpressure: aligned {aligned_ms} ms, unaligned {unaligned_ms} ms")
    assert aligned_ms[0] > 3_000
    assert sorted(unaligned_ms)[1] < 1_000


@pytest.mark.feature("F160", "F175", "F238")
def test_in_flight_data_show_in_the_figures_and_lie_beside_the_state(jobs: Jobs) -> None:
    client, _ = start_slow(jobs, 2)
    found = wait_persisted(client)
    client.cancel().result(timeout=30)
    shares = [share for vertex in found.vertices for share in vertex.subtasks if share is not None]
    assert sum(share.persisted_bytes for share in shares) == found.persisted_bytes > 0
    assert all(share.unaligned for share in shares)
    newest = view(client).checkpoints.latest_completed
    assert newest is not None and newest.pointer is not None
