"""Windows of several kinds over numbers, and what they hold whatever fails meanwhile."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from tests.e2e.files import write_numbers
from tests.e2e.jobs import key_of
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.watch import kill_slot, view, wait_completed, wait_recovered
from tidegate import (
    DataStream,
    EventTimeSessionWindows,
    EventTimeTrigger,
    KeyedStream,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import FileSource

CHUNK = 100
GAP_MS = 20
TUMBLING, SLIDING, SESSIONS, PURGED = range(4)

Found = Counter[tuple[int, int, int, int]]
"""Kind, key, start of the window, sum of the numbers in it."""


def time_of(number: int, _: int = 0) -> int:
    """A millisecond each, and between chunks a pause that ends sessions."""
    return number + number // CHUNK * 5 * GAP_MS


def number_of(row: dict[str, int]) -> int:
    return row["number"]


def total(kind: int, key: int, window: TimeWindow, sums: Iterable[int]) -> list[dict[str, int]]:
    return [{"kind": kind, "key": key, "start": window.start, "sum": each} for each in sums]


def add(one: int, other: int) -> int:
    return one + other


def windowed(numbers: DataStream[int]) -> DataStream[Any]:
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    timed = numbers.assign_timestamps_and_watermarks(times)
    keyed: KeyedStream[int] = timed.key_by(key_of, key_type=Types.LONG())
    tumbling = TumblingEventTimeWindows(50)
    sliding = keyed.window(SlidingEventTimeWindows(60, 20))
    sessions = keyed.window(EventTimeSessionWindows(GAP_MS))
    purged = keyed.window(tumbling).trigger(PurgingTrigger(EventTimeTrigger()))
    return (
        keyed.window(tumbling)
        .reduce(add, partial(total, TUMBLING))
        .uid("tumbling")
        .union(
            sliding.reduce(add, partial(total, SLIDING)).uid("sliding"),
            sessions.reduce(add, partial(total, SESSIONS)).uid("sessions"),
            purged.reduce(add, partial(total, PURGED)).uid("purged"),
        )
    )


def expected(count: int) -> Found:
    """By a plain loop."""
    found: Found = Counter()
    for number in range(count):
        key, ms = key_of(number), time_of(number)
        for kind in (TUMBLING, PURGED):
            found[kind, key, ms - ms % 50] += number
        for start in range(ms - ms % 20 - 40, ms + 1, 20):
            found[SLIDING, key, start] += number
        first = number // CHUNK * CHUNK
        begins = next(n for n in range(first, first + CHUNK) if key_of(n) == key)
        found[SESSIONS, key, time_of(begins)] += number
    return Counter({(*place, value): 1 for place, value in found.items()})


def check_kills(jobs: Jobs) -> None:
    """Slots are killed between checkpoints: each window fires once, with all its numbers."""
    count, out = 6_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 100)
    # One file and one reader, so that the numbers come in order and none is ever late.
    write_numbers(jobs.folder / "in", files=1, rows_each=count)
    source = FileSource.parquet(str(jobs.folder / "in")).rate(2_000)
    rows = env.from_source(source, source_name="numbers").uid("numbers").set_parallelism(1)
    windowed(rows.map(number_of, Types.LONG())).sink_to(LedgerSink(out))
    client = jobs.start(env, "windows")
    for restart in (1, 2):
        wait_completed(client, view(client).checkpoints.counts.completed + 2)
        kill_slot(client, restart % 2)
        wait_recovered(client, restart)
    finished(client)
    rows = ledger_rows(out)
    assert Counter((r["kind"], r["key"], r["start"], r["sum"]) for r in rows) == expected(count)
