"""Savepoints of the releases before go on, whatever has moved in the code since.

Those in kept/ were taken by the code of 2026-11-26, before its format became a package of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import kept_program
from tests.e2e.kept_program import KEYS, OURS, number, program
from tidegate import Row, StreamExecutionEnvironment, Types

KEPT = Path(__file__).parent / "kept"


@pytest.mark.parametrize("name", ["hashmap", "rocksdb"])
def test_values_of_our_own_classes_are_found_under_the_names_that_they_had(name: str) -> None:
    settings = {
        "execution.state-recovery.path": str(KEPT / name),
        "state.backend.type": name,
    }
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    numbers = env.generate(number, 200, None, Types.LONG()).uid("numbers")
    with program(env, numbers, []).execute_and_collect("kept") as results:
        rows = list(results)

    first: dict[int, tuple[int, object, list[Row]]] = {}
    for key, count, ours, held in (row for row in rows if isinstance(row[0], int)):
        first.setdefault(key, (count, ours, held))
    assert first.keys() == set(range(KEYS))
    for key, (count, ours, held) in first.items():
        assert count > 0 and ours == OURS
        assert held == [Row(number=key + KEYS * each) for each in range(count)]

    rules = [row[1] for row in rows if row[0] == "rules"]
    assert rules and all(each == {"a": Row(rule="a"), "b": Row(rule="b")} for each in rules)
    windows = [row for row in rows if row[0] == "window"]
    assert sum(total for *_, total in windows) == sum(range(200))
    assert {type(window) for _, _, window, _ in windows} == {kept_program.TimeWindow}
