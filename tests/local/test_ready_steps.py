"""Ready steps find the same where a slot is killed."""

from collections import Counter
from typing import Any

import pytest

from tests.e2e.examples import Example, check, killed
from tests.e2e.runtimes import Jobs
from tidegate import DataStream, WatermarkStrategy

ROWS = [(f"k{n * n % 5}", n * 37 % 101, n * 20) for n in range(400)]
"""Key, points and time of each."""


def keyed(rows: DataStream[Any]) -> Any:
    return rows.key_by(lambda row: row[0])


def first_rows(rows: list[Any]) -> list[Any]:
    return list({row[0]: row for row in reversed(rows)}.values())


def numbered(rows: list[Any]) -> list[Any]:
    return [(key, n + 1) for key, count in Counter(map(key_of, rows)).items() for n in range(count)]


def key_of(row: Any) -> str:
    return row[0]


def points_of(row: Any) -> int:
    return row[1]


def rankings(rows: list[Any]) -> list[Any]:
    found: list[Any] = []
    ranked: dict[str, list[Any]] = {}
    for row in rows:
        before = ranked.get(row[0], [])
        after = sorted([*before, row], key=points_of, reverse=True)[:3]
        if after != before:
            ranked[row[0]] = after
            found.append((row[0], after))
    return found


def rates(rows: list[Any]) -> list[Any]:
    counts = Counter((key, at // 1_000) for key, _, at in rows)
    return [(key, 1_000 * second + 1_000, float(n)) for (key, second), n in counts.items()]


def timed(rows: DataStream[Any]) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, before: row[2]
    )
    return rows.assign_timestamps_and_watermarks(strategy).set_parallelism(1)


STEPS = {
    "deduplicate": Example(lambda rows: keyed(rows).deduplicate().uid("step"), [], first_rows),
    "count": Example(lambda rows: keyed(rows).count().uid("step"), [], numbered),
    "top_n": Example(lambda rows: keyed(rows).top_n(3, by=points_of).uid("step"), [], rankings),
    "rate": Example(lambda rows: keyed(timed(rows)).rate("1 s").uid("step"), [], rates),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_ready_step_loses_and_doubles_nothing_by_a_kill(jobs: Jobs, name: str) -> None:
    check(jobs, killed(STEPS[name], ROWS, 170), 2)
