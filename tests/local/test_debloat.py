"""Jobs under backpressure with little data in flight, and what their checkpoints show of it."""

import pytest

from tests.e2e.backpressure import (
    check_killed_while_debloated,
    debloated_durations_ms,
    start_skewed,
)
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import completed, wait_completed

pytestmark = pytest.mark.slow


@pytest.mark.feature("F246")
def test_batches_get_smaller_until_what_is_in_flight_takes_the_target_time(jobs: Jobs) -> None:
    durations_ms = debloated_durations_ms(jobs, 5, 0.0005)
    print(f"aligned, under backpressure, debloated: {durations_ms} ms")
    assert len(durations_ms) >= 5


@pytest.mark.feature("F246")
def test_a_kill_while_batches_are_debloated_loses_and_doubles_nothing(jobs: Jobs) -> None:
    check_killed_while_debloated(jobs, 60_000)


@pytest.mark.feature("F121")
def test_a_skewed_input_shows_in_alignment_and_in_what_is_read_meanwhile(jobs: Jobs) -> None:
    client = start_skewed(jobs)
    seen = wait_completed(client, 3)
    client.cancel().result(timeout=100)
    names = {vertex.id: vertex.name for vertex in seen.vertices}
    waited_ms = 0
    for checkpoint in completed(seen):
        assert checkpoint.processed_bytes > 0
        for vertex in checkpoint.vertices:
            for share in vertex.acknowledged:
                if "KeyedProcess" in names[vertex.vertex]:
                    waited_ms += share.alignment_ms
                    assert share.processed_bytes > 0
                elif "Source" in names[vertex.vertex]:
                    assert share.alignment_ms == share.processed_bytes == 0
    assert waited_ms > 0
