"""Warnings of what only a running step can be seen doing."""

from typing import Any

import pytest

from tests.e2e.runtimes import Jobs
from tidegate import OutputTag, ProcessFunction, WatermarkStrategy

ODD = OutputTag("odd")


class Parted(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        yield (ODD, value) if value % 2 else value


def warnings(capsys: pytest.CaptureFixture[str], name: str) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if f"warning={name}" in line]


@pytest.mark.slow
def test_a_side_output_that_nobody_reads_is_warned_about_once(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    env = jobs.env(2)
    assert sorted(env.from_sequence(1, 6).process(Parted()).name("Parted").collect()) == [2, 4, 6]
    (line,) = warnings(capsys, "unread-side-output")
    assert "Parted" in line and "tag=odd" in line


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"tidegate.warnings.silenced": "unread-side-output"}])
def test_one_that_is_read_or_silenced_is_not(
    jobs: Jobs, capsys: pytest.CaptureFixture[str], settings: dict[str, object]
) -> None:
    parted = jobs.env(2, **settings).from_sequence(1, 6).process(Parted())
    found = parted if settings else parted.union(parted.get_side_output(ODD))
    assert len(list(found.collect())) == (3 if settings else 6)
    assert warnings(capsys, "unread-side-output") == []


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "count"), [(1, 1), (1_000, 0)])
def test_event_times_in_seconds_are_warned_about_once(
    jobs: Jobs, capsys: pytest.CaptureFixture[str], unit: int, count: int
) -> None:
    times = [1_700_000_000 * unit + n for n in range(10)]
    assigned = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda time, before: time
    )
    timed = jobs.env(2).from_collection(times).assign_timestamps_and_watermarks(assigned)
    assert sorted(timed.collect()) == times
    lines = warnings(capsys, "times-before-1980")
    assert len(lines) == count
    assert all("given=1700000000" in line and "1970-01-20" in line for line in lines)
