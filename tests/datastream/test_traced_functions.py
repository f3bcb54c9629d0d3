"""Functions of rows that are evaluated over columns, and what a program is told of it."""

from __future__ import annotations

from operator import itemgetter

import pytest

from tidegate import Configuration, StreamExecutionEnvironment, WatermarkStrategy


def functions_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if " is " in line]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"pipeline.trace-functions": "true"},
            [
                "timestamps is evaluated over columns",
                "map is evaluated over columns",
                "filter is called for each row: line {line} calls a function",
                "key_by is evaluated over columns",
                "reduce is evaluated over columns",
                "key_by is evaluated over columns",
                "max is called for each row: the rows are not declared as numbers, or as tuples "
                "of numbers",
            ],
        ),
        (
            {"pipeline.trace-functions": "false"},
            [
                f"{call} is called for each row: pipeline.trace-functions is off"
                for call in ("timestamps", "map", "filter", "key_by", "reduce", "key_by", "max")
            ],
        ),
    ],
)
def test_it_is_told_which_functions_are_evaluated_over_columns(
    settings: dict[str, str], expected: list[str]
) -> None:
    def some(pair: tuple[int, int]) -> bool:
        return len(pair) > 1

    times = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda n, _: n * 1000)
    env = StreamExecutionEnvironment.local(configuration=Configuration.from_dict(settings))
    numbers = env.from_sequence(0, 9).assign_timestamps_and_watermarks(times)
    pairs = numbers.map(lambda n: (n % 3, n)).filter(some).key_by(lambda pair: pair[0])
    reduced = pairs.reduce(lambda old, new: (old[0], old[1] + new[1])).key_by(itemgetter(0)).max(1)
    reduced.print()
    line = some.__code__.co_firstlineno + 1
    assert functions_of(env.explain()) == [each.format(line=line) for each in expected]
