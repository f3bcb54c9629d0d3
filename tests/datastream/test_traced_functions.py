"""Functions of rows that are evaluated over columns, and what a program is told of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate import (
    Configuration,
    Count,
    JobFailed,
    Max,
    Row,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tidegate import DataStream, TimeWindow


def functions_of(text: str) -> list[str]:
    said = (" is evaluated over columns", " is called for each ")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if any(each in line for each in said)]


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
                "max is called for each row: the rows are not declared as numbers, or records of "
                "numbers and texts",
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


def test_it_is_told_which_window_functions_are_evaluated_over_columns() -> None:
    times = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda n, _: n * 1000)
    traced = Configuration.from_dict({"pipeline.trace-functions": "true"})
    env = StreamExecutionEnvironment.local(configuration=traced)
    numbers = env.from_sequence(0, 9).assign_timestamps_and_watermarks(times)
    keyed = numbers.map(lambda n: (n % 3, n)).key_by(lambda pair: pair[0])
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(2)))

    def shown(key: int, window: TimeWindow, rows: Iterable[tuple[int, int]]) -> list[str]:
        return [str(rows)]

    added = lambda old, new: (old[0], old[1] + new[1])  # noqa: E731
    windows.reduce(added, lambda key, window, rows: [(window.start, rows[0][1])]).print()
    windows.reduce(added, shown).print()
    line = shown.__code__.co_firstlineno + 1
    told = [each for each in functions_of(env.explain()) if each.startswith("window function")]
    assert told == [
        "window function is evaluated over columns",
        f"window function is called for each window: line {line} calls a function",
    ]


WORDS = [("a", 1), ("b", 2), ("a\0", 3), ("ä", 4), ("a", 5), ("é", 6), ("b", 7)]
WORD = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.mark.parametrize("trace", ["true", "false"])
def test_texts_come_to_the_same_as_columns_and_as_rows(trace: str) -> None:
    settings = Configuration.from_dict({"pipeline.trace-functions": trace})
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    keyed = env.from_collection(WORDS, WORD).key_by(itemgetter(0), Types.STRING())
    sums = keyed.reduce(lambda old, new: (old[0], old[1] + new[1]))
    kept = sums.filter(lambda row: row[0] != "b").map(lambda row: (row[1] * 2, "n", row[0]))
    counted = keyed.running(Count().alias("n"), Max("f1").alias("most"))
    # By whole numbers, so that texts are what a reduce over columns keeps.
    last = keyed.key_by(lambda row: row[1] % 2).reduce(lambda old, new: (new[0], old[1] + new[1]))
    with kept.execute_and_collect() as rows:
        assert sorted(rows) == [
            (2, "n", "a"), (6, "n", "a\0"), (8, "n", "ä"), (12, "n", "a"), (12, "n", "é")
        ]  # fmt: skip
    with counted.execute_and_collect() as rows:
        assert max(row for row in rows if row[0] == "b") == ("b", 7, 2, 7)
    with last.execute_and_collect() as rows:
        assert sorted(row[1] for row in rows) == [1, 2, 4, 6, 9, 12, 16]


@pytest.mark.feature("F211")
@pytest.mark.parametrize("trace", ["true", "false"])
def test_rows_with_nulls_come_to_the_same_as_columns_and_as_rows(
    trace: str, tmp_path: Path
) -> None:
    table = pa.table(
        {
            "shop": ["a", None, "b", "a", "b", None] * 50,
            "n": pa.array([None, 1, 2, 3, None, 4] * 50, pa.int32()),
            "price": [1.5, None, 0.5, 2.0, None, 3.0] * 50,
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=70)
    settings = Configuration.from_dict({"pipeline.trace-functions": trace})
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    source = FileSource.parquet(str(tmp_path / "in.parquet"))
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "file")
    kept = rows.filter(lambda row: row["n"] != 3).map(lambda row: (row["shop"], row["n"], 7))
    with kept.execute_and_collect() as found:
        assert Counter(found) == {
            ("a", None, 7): 50, (None, 1, 7): 50, ("b", 2, 7): 50, ("b", None, 7): 50,
            (None, 4, 7): 50,
        }  # fmt: skip
    there = kept.rebalance().filter(lambda row: row[1] == 2).map(lambda row: row[1] + 1)
    with there.execute_and_collect() as found:
        assert list(found) == [3] * 50
    named = rows.filter(lambda row: (row["price"] is not None) & (row["shop"] != "b")).map(
        lambda row: {"shop": row["shop"], "cost": row["price"] * 2, "from": "file"}
    )
    with (
        named.key_by("cost").filter(lambda row: row["shop"] is None).execute_and_collect() as found
    ):
        assert list(found) == [{"shop": None, "cost": 6.0, "from": "file"}] * 50
    totals = kept.key_by(lambda row: row[2]).reduce(lambda old, new: (new[0], old[1], old[2] + 1))
    with totals.execute_and_collect() as found:
        assert max(row[2] for row in found) == 7 + 249
    failing: list[tuple[Callable[[], DataStream[Any]], str]] = [
        (lambda: rows.map(lambda row: row["price"] * 2), "unsupported operand"),
        (lambda: rows.key_by("shop").map(lambda row: row["n"]), "NoneType"),
        (lambda: kept.key_by(lambda row: row[1]).map(lambda row: row[0]), "NoneType"),
    ]
    for stream, why in failing:
        with pytest.raises(JobFailed, match=why), stream().execute_and_collect() as found:
            list(found)


@pytest.mark.parametrize("trace", ["true", "false"])
def test_rows_of_a_declared_type_come_to_the_same_as_columns_and_as_rows(trace: str) -> None:
    settings = Configuration.from_dict({"pipeline.trace-functions": trace})
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    sale = Types.ROW_NAMED(["shop", "amount"], [Types.STRING(), Types.LONG()])
    sales = env.from_collection([("a", 1), ("b", 2), ("a", None), ("c", 4)], sale)
    kept = sales.key_by("shop").filter(lambda row: row.amount is not None)
    doubled = kept.map(lambda row: (row["shop"], row[1] * 2), sale).key_by(lambda row: row.shop)
    with doubled.running(Count().alias("n")).execute_and_collect() as rows:
        assert sorted(rows, key=itemgetter("shop")) == [
            Row(shop="a", amount=2, n=1), Row(shop="b", amount=4, n=1), Row(shop="c", amount=8, n=1)
        ]  # fmt: skip


@dataclass
class Sale:
    shop: str
    amount: int


SALES = [Sale("a", 1), Sale("b", 2), Sale("a", 3), Sale("c", 4)]


@pytest.mark.parametrize("trace", ["true", "false"])
def test_dicts_and_dataclasses_come_to_the_same_as_columns_and_as_rows(trace: str) -> None:
    settings = Configuration.from_dict({"pipeline.trace-functions": trace})
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    sales = env.from_collection(SALES, Sale).key_by("shop").filter(lambda sale: sale.amount != 4)
    totals = sales.key_by(lambda sale: sale.shop).running(Count().alias("n"), Max("amount"))
    dicts = env.from_collection([vars(sale) for sale in SALES]).key_by("shop")
    kept = dicts.filter(lambda sale: sale["shop"] != "b").map(lambda sale: sale["amount"] * 2)
    with sales.execute_and_collect() as rows:
        assert sorted(rows, key=attrgetter("amount")) == SALES[:3]
    with totals.execute_and_collect() as rows:
        assert max(rows, key=attrgetter("n")) == Row(shop="a", amount=3, n=2, amount_max=3)
    with kept.execute_and_collect() as rows:
        assert sorted(rows) == [2, 6, 8]


@dataclass
class Trade:
    symbol: str
    price: float
    count: int = 1


@pytest.mark.parametrize("trace", ["true", "false"])
@pytest.mark.parametrize("typed", [True, False])
def test_records_come_to_the_same_as_columns_and_as_rows(trace: str, typed: bool) -> None:
    settings = Configuration.from_dict({"pipeline.trace-functions": trace})
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    numbers = env.from_sequence(0, 99).assign_timestamps_and_watermarks(times)
    names = env.from_collection([("a", 0), ("b", 1), ("c", 2)], WORD)
    pairs = names.union(numbers.map(lambda n: ("n", n), WORD))
    trades = pairs.map(lambda pair: Trade(pair[0], pair[1] * 0.5), Trade if typed else None)
    keyed = trades.key_by(lambda trade: trade.symbol, Types.STRING())
    sums = keyed.reduce(lambda a, b: Trade(a.symbol, a.price + b.price, a.count + b.count))
    with sums.execute_and_collect() as rows:
        found = sorted(rows, key=lambda trade: (trade.symbol, trade.count))
    assert found[:3] == [Trade(name, at * 0.5) for at, name in enumerate("abc")]
    assert [trade.count for trade in found[3:]] == list(range(1, 101))
    assert found[-1] == Trade("n", 99 * 50 * 0.5, 100)
    timed = numbers.map(lambda n: Trade("n", n * 0.5)).key_by(lambda trade: trade.symbol)
    windows = timed.window(TumblingEventTimeWindows.of(Time.milliseconds(40)))
    counts = windows.reduce(
        lambda a, b: Trade(a.symbol, a.price + b.price, a.count + b.count),
        lambda key, window, found: [(key, window.start, found[0].price, found[0].count)],
    )
    with counts.execute_and_collect() as rows:
        assert sorted(rows) == [("n", 0, 390.0, 40), ("n", 40, 1190.0, 40), ("n", 80, 895.0, 20)]
