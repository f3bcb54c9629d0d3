"""Types, rolling aggregates and small calls, as a program sees them: on the local runtime."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tidegate import (
    CheckpointedFunction,
    DataStreamUtils,
    JobFailed,
    MapFunction,
    OutputTag,
    ProcessFunction,
    Row,
    SinkFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidegate.connectors import DataGeneratorSource

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate import DataStream, RuntimeContext, SnapshotContext

LONG, STRING = Types.LONG(), Types.STRING()
PAIR = Types.TUPLE([STRING, LONG])
NAMED = Types.ROW_NAMED(["k", "n"], [STRING, LONG])
SALES = [("x", 3, 0.5), ("y", 7, 1.5), ("x", 2, 2.5), ("x", 2, 3.5), ("y", 9, 4.5)]


class Sale(NamedTuple):
    shop: str
    amount: int
    day: float


@dataclass(frozen=True)
class Sold:
    shop: str
    amount: int
    day: float


def local(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.local(parallelism)


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


def failure(stream: DataStream[Any]) -> str:
    with pytest.raises(JobFailed) as failed:
        collected(stream)
    return str(failed.value)


# What is declared is what arrives


@pytest.mark.parametrize("chained", [True, False])
def test_results_arrive_as_declared_chained_or_not(chained: bool) -> None:
    env = local()
    if not chained:
        env.disable_operator_chaining()
    numbers = env.from_collection([1, 2])
    rows = numbers.map(lambda n: (f"a{n}", np.int64(n)), NAMED)
    assert collected(rows.map(lambda row: (row.k, row["n"], type(row.n)))) == [
        ("a1", 1, int), ("a2", 2, int),
    ]  # fmt: skip
    assert collected(rows.map(lambda row: row, PAIR)) == [("a1", 1), ("a2", 2)]
    assert collected(rows) == [Row(k="a1", n=1), Row(k="a2", n=2)]
    assert collected(numbers.map(lambda n: Row("a", n))) == [Row("a", 1), Row("a", 2)]


def test_each_kind_of_step_brings_its_results_to_the_type() -> None:
    env = local()
    stream = env.from_collection([1, 2], Types.INT())
    assert collected(stream.flat_map(lambda n: [(n, None)], Types.ROW([LONG, LONG]))) == [
        Row(f0=1, f1=None), Row(f0=2, f1=None),
    ]  # fmt: skip
    assert collected(stream.key_by(lambda n: n).map(Wrapped(), NAMED)) == [
        Row(k="1", n=1), Row(k="2", n=2),
    ]  # fmt: skip
    narrowed = env.generate(lambda n: n + 0.1, 1, None, Types.FLOAT())
    assert collected(narrowed) == [0.10000000149011612]
    source = DataGeneratorSource(lambda n: ("a", n), 1)
    assert collected(env.from_source(source, None, "pairs", NAMED)) == [Row(k="a", n=0)]


class Wrapped(MapFunction[int, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", LONG))

    def map(self, value: int) -> Any:
        return [str(value), value]


def test_a_side_output_is_of_its_tags_type() -> None:
    odd = OutputTag("odd", Types.ROW([LONG]))

    class Split(ProcessFunction[int, Any]):
        def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
            yield (odd, (value,)) if value % 2 else (str(value), value)

    split = local().from_collection([1, 2, 3]).process(Split(), PAIR)
    assert collected(split.get_side_output(odd)) == [Row(f0=1), Row(f0=3)]
    assert collected(split) == [("2", 2)]


def test_a_collection_is_of_its_type() -> None:
    moment = datetime.datetime.fromisoformat("2024-02-29T12:00:00.123456")
    of = Types.ROW_NAMED(["at", "x"], [Types.SQL_TIMESTAMP(), Types.FLOAT()])
    (row,) = collected(local().from_collection([(moment, 0.1)], of))
    assert row == Row(at=moment.replace(microsecond=123_000), x=0.10000000149011612)


def test_a_row_that_is_changed_after_it_was_emitted_arrives_as_it_was() -> None:
    shared = Row("a", 0)

    def count(n: int) -> Row:
        shared[1] = n
        return shared

    rows = local().from_collection([1, 2]).map(count, NAMED)
    assert collected(rows) == [Row(k="a", n=1), Row(k="a", n=2)]


def test_branches_get_values_of_their_own() -> None:
    env = local()
    rows = env.from_collection([("a", 1)], NAMED)

    def change(row: Row) -> Row:
        row.n = 7
        return row

    assert sorted(r.n for r in collected(rows.map(change, NAMED).union(rows.filter(bool)))) == [
        1,
        7,
    ]


def test_a_reduce_keeps_the_type_of_its_input() -> None:
    rows = local().from_collection([("a", 1), ("a", 2), ("a", 3)], NAMED)
    sums = rows.key_by("k").reduce(lambda x, y: (x.k, x.n + y.n))
    assert collected(sums) == [Row(k="a", n=1), Row(k="a", n=3), Row(k="a", n=6)]


def test_a_result_of_another_type_is_told_with_operator_field_and_value() -> None:
    numbers = local().from_collection([0])
    text = failure(numbers.map(lambda n: ("a", str(n)), NAMED).name("pairs"))
    for part in (
        "operator 'pairs'",
        "field 'n'",
        "'0', a str, is not of type Long",
        "at the result ('a',",
    ):
        assert part in text


def test_a_reduce_that_leaves_its_type_is_told() -> None:
    rows = local().from_collection([("a", 1), ("a", 2)], NAMED).key_by("k")
    text = failure(rows.reduce(lambda x, y: "x"))
    assert "operator 'Reduce'" in text
    assert "'x', a str, is not of type RowTypeInfo(k: String, n: Long)" in text


def test_what_a_source_gives_of_another_type_is_told() -> None:
    text = failure(local().generate(lambda n: str(n), 1, None, int))
    assert "'Data Generator'" in text
    assert "'0', a str, is not of type Long" in text


# Rolling aggregates


def test_a_rolling_aggregate_gives_what_each_key_has_come_to() -> None:
    env = local()
    rows = [Row(**Sale(*sale)._asdict()) for sale in SALES]
    keyed = env.from_collection(rows).key_by("shop")
    sums = keyed.sum("amount").map(lambda row: ("sum", row.shop, row.amount, row.day))
    least = keyed.min_by("amount").map(lambda row: ("min_by", row.shop, row.amount, row.day))
    found = collected(sums.union(least))
    assert [row[1:] for row in found if row[0] == "sum"] == [
        ("x", 3, 0.5), ("y", 7, 1.5), ("x", 5, 0.5), ("x", 7, 0.5), ("y", 16, 1.5),
    ]  # fmt: skip
    assert [row[1:] for row in found if row[0] == "min_by"] == [
        ("x", 3, 0.5), ("y", 7, 1.5), ("x", 2, 2.5), ("x", 2, 2.5), ("y", 7, 1.5),
    ]  # fmt: skip


def test_a_sum_beyond_its_type_is_told() -> None:
    numbers = local().from_collection([100, 100], Types.BYTE()).key_by(lambda n: 0)
    assert "200, an int, is not of type Byte" in failure(numbers.sum())


# Keys


def test_a_collected_keyed_stream_has_the_keys() -> None:
    keyed = local().from_collection([1, 2]).key_by(lambda n: n % 2)
    with keyed.execute_and_collect() as rows:
        assert list(rows) == [Row(f0=1, f1=1), Row(f0=0, f1=2)]
    assert keyed.execute_and_collect(limit=5) == [Row(f0=1, f1=1), Row(f0=0, f1=2)]


def test_a_column_that_a_record_does_not_have_is_told() -> None:
    text = failure(local().from_collection([{"shop": "x"}]).name("rows").key_by("shp").reduce(max))
    assert "there is no column 'shp' in the row {'shop': 'x'}; it has shop" in text
    assert "the edge from 'Source: rows' to 'Reduce" in text


def test_a_column_chooses_the_partition() -> None:
    sales = local().from_collection([{"shop": 0}, {"shop": 1}])
    keys: list[object] = []

    def first(key: object, count: int) -> int:
        keys.append(key)
        return 0

    assert len(collected(sales.partition_custom(first, "shop").map(lambda row: row))) == 2


def test_keys_that_are_there_already_need_no_exchange() -> None:
    sales = local().from_collection(SALES).key_by(lambda sale: sale[0])
    kept = sales.map(lambda sale: (sale[0], sale[1]), PAIR)
    keyed = DataStreamUtils.reinterpret_as_keyed_stream(kept, lambda sale: sale[0], str)
    assert collected(keyed.sum(1)) == [("x", 3), ("y", 7), ("x", 5), ("x", 7), ("y", 16)]
    assert [row.f1 for row in keyed.execute_and_collect(limit=9)] == [sale[:2] for sale in SALES]


@pytest.mark.slow
@pytest.mark.parametrize("chained", [True, False])
def test_keys_in_several_subtasks(chained: bool) -> None:
    env = local(2)
    if not chained:
        env.disable_operator_chaining()
    words = [f"w{n % 10}" for n in range(100)]
    kept = env.from_collection(words).key_by(lambda w: w).map(lambda w: (w, 1), PAIR)
    keyed = DataStreamUtils.reinterpret_as_keyed_stream(kept, lambda pair: pair[0])
    assert sorted(collected(keyed.sum(1))) == sorted(
        (f"w{n % 10}", n // 10 + 1) for n in range(100)
    )
    strange = DataStreamUtils.reinterpret_as_keyed_stream(kept, lambda pair: f"{pair[0]}!")
    assert "key_by would send it to" in failure(strange.sum(1))


# Small calls


def test_a_projection_takes_fields_in_their_order() -> None:
    sales = local().from_collection(SALES[:2], Types.TUPLE([STRING, LONG, Types.DOUBLE()]))
    assert collected(sales.project(2, 0)) == [(0.5, "x"), (1.5, "y")]
    assert collected(sales.project(1)) == [(3,), (7,)]


def test_lines_of_a_text_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("to be\nor not\n", encoding="utf-8")
    lines = local().read_text_file(str(tmp_path / "lines.txt"))
    assert (collected(lines), lines.get_type()) == (["to be", "or not"], STRING)


class Append(SinkFunction[int], CheckpointedFunction):
    """Gathers records and writes them when told to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        self._gathered = [f"open {runtime_context.get_index_of_this_subtask()}"]

    def invoke(self, value: int, context: SinkFunction.Context) -> None:
        if value < 0:
            raise ValueError("below zero")
        stamps = (context.timestamp(), context.current_watermark() < 0)
        assert context.current_processing_time() > 0
        self._gathered.append(f"{value} {stamps}")

    def snapshot_state(self, context: SnapshotContext) -> None:
        self._write()

    def finish(self) -> None:
        self._write()

    def close(self) -> None:
        self._gathered.append("closed")
        self._write()

    def _write(self) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in self._gathered)
        self._gathered = []


def test_a_sink_function_gets_each_record(tmp_path: Path) -> None:
    env = local()
    sink = env.from_collection([1, 2]).add_sink(Append(tmp_path / "out"))
    sink.name("append").slot_sharing_group("writers")
    env.execute()
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == [
        "open 0", "1 (None, True)", "2 (None, True)", "closed",
    ]  # fmt: skip


def test_a_sink_function_that_fails_says_where_and_is_closed(tmp_path: Path) -> None:
    env = local()
    env.from_collection([1, -1]).add_sink(Append(tmp_path / "out")).name("append")
    with pytest.raises(JobFailed, match="operator 'Sink: append' raised ValueError: below zero"):
        env.execute()
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines()[-1] == "closed"


def test_a_plain_function_is_a_sink(tmp_path: Path) -> None:
    env = local()
    env.from_collection(["a", "b"]).key_by(str).add_sink(lambda name: (tmp_path / name).touch())
    env.execute()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_print_is_in_flinks_form(capfd: pytest.CaptureFixture[str]) -> None:
    env = local()
    rows = env.from_collection([("a", True, None)], Types.ROW([STRING, Types.BOOLEAN(), LONG]))
    rows.print()
    rows.map(lambda row: (row[0], 1.5), tuple[str, float]).print("typed")
    rows.map(lambda row: (row[0], True)).print("any")
    rows.key_by("f0").print("keyed")
    env.execute()
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "+I[a,True,None]",
        "any> ('a', True)",
        "keyed> +I[a,True,None]",
        "typed> (a,1.5)",
    ]


def test_a_union_of_a_keyed_stream_has_plain_values() -> None:
    env = local()
    keyed = env.from_collection([1, 2]).key_by(lambda n: n)
    assert sorted(collected(keyed.union(env.from_collection([3])))) == [1, 2, 3]
