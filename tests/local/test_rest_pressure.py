"""A job that is held back, as its pages show it."""

import time

import pytest

from tests.e2e.rest import DAY_MS, SERVED, Rest
from tests.e2e.runtimes import Jobs
from tests.e2e.savepoints import event_time_of
from tests.e2e.watch import until
from tidegate import Types, WatermarkStrategy

pytestmark = pytest.mark.slow


def slow(number: int) -> int:
    time.sleep(0.005)
    return number


@pytest.mark.feature("F292")
def test_behind_a_slow_sink_all_is_held_back_and_event_time_goes_on(jobs: Jobs) -> None:
    settings = {"heartbeat.interval": "100 ms", "tidegate.batch.rows": 32, **SERVED}
    env = jobs.checkpointed(2, DAY_MS, **settings)
    numbers = env.generate(int, None, None, Types.LONG()).uid("numbers")
    times = WatermarkStrategy.for_monotonous_timestamps()
    timed = numbers.assign_timestamps_and_watermarks(times.with_timestamp_assigner(event_time_of))
    keyed = timed.key_by(lambda number: number % 16, Types.LONG()).map(lambda number: number)
    keyed.rebalance().map(slow).print()
    client = jobs.start(env, "held back")
    rest = Rest.of(client)
    vertices = rest.get(rest.job)["vertices"]
    pages = [f"{rest.job}/vertices/{vertex['id']}" for vertex in vertices]
    source, middle, sink = (f"{page}/backpressure" for page in pages)

    def held_back() -> bool:
        seen = [rest.get(page) for page in (source, middle)]
        assert {page["status"] for page in seen} <= {"ok", "deprecated"}
        return all(
            page["backpressureLevel"] == "high" and len(page["subtasks"]) == 2 for page in seen
        )

    until(held_back, "source and middle are held back")
    for page in (source, middle):
        seen = rest.get(page)
        assert seen["backpressure-level"] == "high" and seen["end-timestamp"] > 0
        assert [subtask["subtask"] for subtask in seen["subtasks"]] == [0, 1]
        assert max(subtask["ratio"] for subtask in seen["subtasks"]) > 0.5
        for subtask in seen["subtasks"]:
            shares = [subtask[share] for share in ("ratio", "idleRatio", "busyRatio")]
            assert all(0 <= share <= 1 for share in shares) and sum(shares) == pytest.approx(
                1, abs=0.3
            )

    def at_work() -> bool:
        last = rest.get(sink)
        assert last["backpressureLevel"] == "ok"
        busy = [subtask["busyRatio"] > 0.5 for subtask in last["subtasks"]]
        return busy == [True, True]

    until(at_work, "the slow step is at work all the time")
    check_watermarks(rest, pages)


def check_watermarks(rest: Rest, pages: list[str]) -> None:
    """Sources read none; each other subtask's advances."""
    assert rest.get(f"{pages[0]}/watermarks") == []
    for page in pages[1:]:
        seen: list[dict[str, int]] = []

        def advanced(page: str = page, seen: list[dict[str, int]] = seen) -> bool:
            found = rest.get(f"{page}/watermarks")
            assert [one["id"] for one in found] == [
                "0.currentInputWatermark",
                "1.currentInputWatermark",
            ]
            seen.append({one["id"]: int(one["value"]) for one in found})
            return all(seen[-1][id] > seen[0][id] for id in seen[0])

        until(advanced, f"the watermarks of {page} advance")
