"""Typed records, rolling aggregates and keys in place, over a restore at another parallelism."""

from pathlib import Path

import pytest

from tests.e2e import restores
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import SLOWLY, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tidegate import DataStreamUtils, StreamExecutionEnvironment, Types

pytestmark = pytest.mark.slow

KEYS = 7
TOTAL = 4_000
READING = Types.ROW_NAMED(["key", "n", "value"], [Types.STRING(), Types.LONG(), Types.FLOAT()])


def reading(number: int) -> tuple[str, int, float]:
    return f"k{number % KEYS}", 1, number * 31 % 997


def build(env: StreamExecutionEnvironment, rate: int | None, folder: Path) -> None:
    readings = env.generate(reading, TOTAL, rate, READING).uid("readings")
    keyed = readings.key_by("key")
    counted = keyed.sum("n").uid("counts")
    newest = DataStreamUtils.reinterpret_as_keyed_stream(counted, "key").max_by("n").uid("newest")
    counts = newest.map(lambda row: {"key": row["key"], "count": row["n"]})
    greatest = keyed.max("value").uid("greatest")
    values = greatest.map(lambda row: {"key": row["key"], "greatest": row["value"]})
    counts.union(values).sink_to(LedgerSink(folder)).uid("ledger")


@pytest.mark.parametrize("then", [1, 2])
def test_aggregates_go_on_where_the_checkpoint_left_them(jobs: Jobs, then: int) -> None:
    env = jobs.checkpointed(1, 100, **RETAIN)
    build(env, SLOWLY, jobs.folder / "out")
    before = stopped_with_checkpoint(jobs.start(env, "before"))
    env = jobs.checkpointed(then, 100, **{restores.RESTORE_PATH: before.pointer})
    build(env, None, jobs.folder / "out")
    finished(jobs.start(env, "after"))
    rows = ledger_rows(jobs.folder / "out")
    assert len(rows) == 2 * TOTAL
    for key in range(KEYS):
        values = [reading(number)[2] for number in range(key, TOTAL, KEYS)]
        of_key = [row for row in rows if row["key"] == f"k{key}"]
        counts = sorted(row["count"] for row in of_key if "count" in row)
        assert counts == list(range(1, len(values) + 1))
        assert max(row["greatest"] for row in of_key if "greatest" in row) == max(values)
