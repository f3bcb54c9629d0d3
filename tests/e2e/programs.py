"""One job of many programs, and what each of them must give wherever and however it runs."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.e2e.arrow_jobs import column_counts
from tests.e2e.jobs import KEYS, key_of, running_counts, same
from tests.e2e.ledger import LedgerSink, ledger_rows
from tidegate import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
)
from tidegate.connectors import NumberSequenceSource

Row = dict[str, Any]
Program = Callable[["StreamExecutionEnvironment"], "DataStream[Row]"]

LINES = ["to be or not to be", "that is the question", "", "Grüße, 世界"] * 50
TOTAL = 6_000


def words(env: StreamExecutionEnvironment) -> DataStream[Row]:
    """Counts of words by a plain function, a lambda and a reduce."""
    ones = env.from_collection(LINES).flat_map(lambda line: [(word, 1) for word in line.split()])
    counts = ones.key_by(lambda one: one[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return counts.map(lambda count: {"word": count[0], "count": count[1]})


def exchanges(env: StreamExecutionEnvironment) -> DataStream[Row]:
    """Records through every exchange there is."""
    low = env.from_sequence(0, TOTAL // 2 - 1).rebalance().map(same)
    high = env.from_sequence(TOTAL // 2, TOTAL - 1).shuffle().map(same).rescale().map(same)
    once = low.union(high).forward().filter(lambda number: number % 3 == 0)
    everywhere = env.from_collection([-1, -2]).broadcast().map(lambda number: (number, 1))
    flagged = everywhere.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    first_only = flagged.filter(lambda pair: pair[1] == 1).map(lambda pair: pair[0])
    return once.global_().union(first_only).map(lambda number: {"number": number})


class Distinct(FlatMapFunction[int, Row]):
    """Emits a remainder the first time that a key sees it; map state in a keyed flat_map."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("seen", Types.LONG(), value_type_info=Types.LONG())
        self._seen = runtime_context.get_map_state(descriptor)

    def flat_map(self, value: int) -> Iterator[Row]:
        remainder = value % 5
        if not self._seen.contains(remainder):
            self._seen.put(remainder, value)
            yield {
                "key": key_of(value),
                "remainder": remainder,
                "keys": len(list(self._seen.keys())),
            }


def distinct(env: StreamExecutionEnvironment) -> DataStream[Row]:
    """The remainders that each key has seen."""
    return env.from_sequence(0, TOTAL - 1).key_by(key_of).flat_map(Distinct())


class Chunks(KeyedProcessFunction[int, Row]):
    """Emits the sum of each ten values of a key; list state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._held = runtime_context.get_list_state(ListStateDescriptor("held", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self._held.add(value)
        held = list(self._held.get())
        if len(held) == 10:
            self._held.clear()
            yield {"key": ctx.get_current_key(), "values": 10}


def chunks(env: StreamExecutionEnvironment) -> DataStream[Row]:
    """Tens of values by key."""
    return env.from_sequence(0, TOTAL - 1).key_by(key_of, key_type=Types.LONG()).process(Chunks())


def counts(env: StreamExecutionEnvironment) -> DataStream[Row]:
    """Running counts, a row at a time."""
    rows = running_counts(env, TOTAL, None)
    return rows.map(lambda row: {"key": row["key"], "count": row["count"]})


def columns(env: StreamExecutionEnvironment) -> DataStream[Row]:
    """Running counts of the even numbers over Arrow batches; rows again at the end."""
    rows = column_counts(env, NumberSequenceSource(0, TOTAL - 1, arrow=True), even=True)
    return rows.map(lambda row: {"key": row["key"], "count": row["count"]})


PROGRAMS: dict[str, Program] = {
    "words": words,
    "exchanges": exchanges,
    "distinct": distinct,
    "chunks": chunks,
    "counts": counts,
    "columns": columns,
}

Bag = Counter[tuple[Any, ...]]


def all_expected() -> dict[str, Bag]:
    """What each program gives, computed with nothing but Python's own means."""
    return {
        "words": Bag(
            (word, count)
            for word, total in Counter(word for line in LINES for word in line.split()).items()
            for count in range(1, total + 1)
        ),
        "exchanges": Bag((number,) for number in [*range(0, TOTAL, 3), -1, -2]),
        "distinct": Bag(
            (key, remainder)
            for key, remainder in {(key_of(number), number % 5) for number in range(TOTAL)}
        ),
        "chunks": Bag(
            (key, 10) for key in range(KEYS) for _ in range(len(range(key, TOTAL, KEYS)) // 10)
        ),
        "counts": running(range(TOTAL)),
        "columns": running(range(0, TOTAL, 2)),
    }


def running(numbers: range) -> Bag:
    """Every count of every key."""
    totals = Counter(key_of(number) for number in numbers)
    return Bag((key, count) for key, total in totals.items() for count in range(1, total + 1))


def build_all(env: StreamExecutionEnvironment, folder: Path) -> None:
    """All programs as one job, each with a sink of its own."""
    for name, program in PROGRAMS.items():
        program(env).sink_to(LedgerSink(folder / name)).name(name)


def all_found(folder: Path) -> dict[str, Bag]:
    """What each program gave. The order in which a key saw what is left out: it may differ."""
    left_out = ("keys",)
    return {
        name: Bag(
            tuple(value for field, value in row.items() if field not in left_out)
            for row in ledger_rows(folder / name)
        )
        for name in PROGRAMS
    }
