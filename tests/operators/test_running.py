"""Running aggregates of rows of declared types, beside those of Arrow batches and a plain loop."""

import datetime
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.columnar_world import ALL, ColumnarSubtask
from tests.state.world import MAX_PARALLELISM, Subtask, restored, snapshot
from tidegate import Collect, Count, First, GraphError, Last, Max, Mean, Min, Row, Sum, Types
from tidegate.api.aggregates import Aggregate
from tidegate.api.rows.column_rows import TUPLE, ColumnRows, RowForm
from tidegate.errors import UnsupportedKey, UserCodeFailed
from tidegate.model.duration import Instant
from tidegate.model.elements import ArrowBatch, Batch, RowBatch
from tidegate.operators.aggregates.aggregated_rows import AggregatedRows
from tidegate.operators.aggregates.running import RunningOperator
from tidegate.typeinfo.hints import declared_type
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import LONG, TypeInformation

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
OF_FIELD = tuple(
    type(each)("f1").alias(f"{each.suffix}_of_f1") for each in ALL if each.column is not None
)
EACH = (Count(), *OF_FIELD)


def test_dicts_are_aggregated_wherever_their_batches_end() -> None:
    keyed = Keyed(lambda: RunningOperator((Sum("v"), Count("v").alias("known")), "k"))
    for row in ({"k": 1, "v": 5.5}, {"k": 1, "v": 5}, {"k": 1, "v": None}, {"k": 1}):
        keyed.rows([row], key=lambda row: row["k"])
    found = [row for batch in keyed.batches for row in batch.batch.to_pylist()]
    assert [row["v_sum"] for row in found] == [5.5, 10.5, 10.5, 10.5]
    assert [row["known"] for row in found] == [1, 2, 2, 2]


class Keyed:
    """An operator in several subtasks, given rows in one form or the other."""

    def __init__(
        self,
        make: Callable[[], RunningOperator],
        subtasks: Sequence[Subtask] = (),
        key_type: TypeInformation | None = LONG,
    ) -> None:
        self.make = make
        self._hasher = KeyHasher(key_type, MAX_PARALLELISM)
        states = subtasks or [Subtask(key_type=key_type)]
        self.subtasks = [
            ColumnarSubtask(make(), state, index, len(states), 1000)
            for index, state in enumerate(states)
        ]

    def rows(
        self, values: list[Any], key: Callable[[Any], object], stamps: list[int] | None = None
    ) -> None:
        """Rows as objects, each to its key's subtask."""
        keys, groups = self._hasher.keyed([key(value) for value in values])
        for each in self.subtasks:
            own = each.subtask.key_groups
            chosen = [i for i, group in enumerate(groups) if own.first <= group <= own.last]
            if chosen:
                part = RowBatch(
                    [values[i] for i in chosen],
                    None if stamps is None else [stamps[i] for i in chosen],
                    [keys[i] for i in chosen],
                    [int(groups[i]) for i in chosen],
                )
                each.operator.process(part, 0, each.out)

    def columns(self, values: list[tuple[int, Any]], form: str, rows_form: RowForm = TUPLE) -> None:
        """Pairs as columns, by their first field: "columns" of rows, or "arrow"."""
        keys = np.array([value[0] for value in values], np.int64)
        numbers = np.array([value[1] for value in values])
        groups = self._hasher.key_groups(keys.tolist())
        for each in self.subtasks:
            own = each.subtask.key_groups
            chosen = np.flatnonzero((groups >= own.first) & (groups <= own.last))
            if not len(chosen):
                continue
            fields = [keys[chosen], numbers[chosen]]
            part: Batch
            if form == "columns":
                part = ColumnRows(fields, form=rows_form, key_column=0, groups=groups[chosen])
            else:
                part = ArrowBatch(pa.record_batch(fields, ["f0", "f1"]), None, "f0", groups[chosen])
            each.operator.process(part, 0, each.out)

    def restored(self, parallelism: int) -> "Keyed":
        states = [snapshot(each.subtask) for each in self.subtasks]
        return Keyed(self.make, restored(states, parallelism))

    @property
    def batches(self) -> list[Batch]:
        return [batch for each in self.subtasks for batch in each.out.batches]

    @property
    def values(self) -> list[Any]:
        return [value for each in self.subtasks for value in each.out.values]


def of_rows(row_type: TypeInformation, *aggregates: Aggregate) -> Callable[[], RunningOperator]:
    rows = AggregatedRows(row_type, aggregates, "running")
    return lambda: RunningOperator(aggregates, None, LONG, rows)


def loop(rows: list[tuple[int, Any]]) -> dict[int, list[tuple[object, ...]]]:
    """Each aggregate of EACH after each row, by key, by plain Python."""
    counts: dict[int, int] = defaultdict(int)
    values: dict[int, list[Any]] = defaultdict(list)
    found: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for key, value in rows:
        counts[key] += 1
        seen = values[key]
        if value is not None:
            seen.append(value)
        total = None
        for each in seen:
            total = each if total is None else total + each
        found[key].append(
            (
                *(key, value, counts[key], len(seen), total),
                *(min(seen, default=None), max(seen, default=None)),
                None if total is None else total / len(seen),
                *((seen[0], seen[-1]) if seen else (None, None)),
                *(list(seen), len(set(seen))),
            )
        )
    return found


def by_key(values: list[Any]) -> dict[int, list[tuple[object, ...]]]:
    found: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for value in values:
        row = tuple(value.values()) if isinstance(value, dict) else value
        found[row[0]].append(row)
    return found


NUMBERS = st.integers(-(2**40), 2**40)
KEYS = st.integers(0, 4)


@given(st.lists(st.tuples(KEYS, NUMBERS | st.none()), min_size=1, max_size=60), st.data())
def test_rows_get_what_a_loop_finds_whatever_form_they_come_in_and_go_on_in(
    rows: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    running = Keyed(of_rows(PAIR, *EACH))
    found: list[Any] = []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[start:stop]
        if not part:
            continue
        form = data.draw(st.sampled_from(["rows", "columns", "arrow"]))
        if form == "rows" or any(value is None for _, value in part):
            running.rows(part, lambda row: row[0])
        else:
            running.columns(part, form)
        if data.draw(st.booleans()):
            found += running.values
            running = running.restored(data.draw(st.integers(1, 3)))
    found += running.values
    assert by_key(found) == loop(rows)


@given(st.lists(st.tuples(KEYS, st.floats(-1e9, 1e9)), min_size=1, max_size=60))
def test_sums_of_floats_are_those_of_python_in_each_form(rows: list[tuple[int, float]]) -> None:
    row_type = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
    for form in ("rows", "columns"):
        running = Keyed(of_rows(row_type, *EACH))
        if form == "rows":
            running.rows(rows, lambda row: row[0])
        else:
            running.columns(rows, form)
        assert by_key(running.values) == loop(rows)


def test_aggregates_are_added_removed_and_widened_at_a_restore() -> None:
    narrow = Types.TUPLE([Types.LONG(), Types.INT()])
    running = Keyed(of_rows(narrow, Count(), Max("f1"), Sum("f1")))
    running.rows([(1, 7), (2, 3)], lambda row: row[0])
    running.make = of_rows(PAIR, Max("f1"), Count(), Min("f1"))
    running = running.restored(2)
    running.rows([(1, 5), (2, 2**40), (1, 6)], lambda row: row[0])
    assert by_key(running.values) == {
        1: [(1, 5, 7, 2, 5), (1, 6, 7, 3, 5)],
        2: [(2, 2**40, 2**40, 2, 2**40)],
    }


def test_columns_stay_columns_and_no_row_is_made() -> None:
    running = Keyed(of_rows(PAIR, Count(), Sum("f1"), Mean("f1")))
    running.columns([(1, 5), (2, 6), (1, 7)], "columns")
    [made] = running.batches
    assert type(made) is ColumnRows and made.key_column is None
    assert [each.dtype for each in made.columns] == [np.int64] * 4 + [np.float64]
    assert made.values == [(1, 5, 1, 5, 5.0), (2, 6, 1, 6, 6.0), (1, 7, 2, 12, 6.0)]


@pytest.mark.parametrize(
    ("of", "values"), [(Types.INT(), [3, 1]), (Types.FLOAT(), [0.5, 0.25])], ids=str
)
def test_columns_of_narrower_types_give_what_rows_give(
    of: TypeInformation, values: list[Any]
) -> None:
    made = of_rows(Types.TUPLE([Types.LONG(), of]), Min("f1"), Max("f1"), Sum("f1"), Mean("f1"))
    rows = [(1, value) for value in values]
    by_rows, by_columns = Keyed(made), Keyed(made)
    by_rows.rows(rows, lambda row: row[0])
    by_columns.columns(rows, "columns")
    assert type(by_columns.batches[0]) is ColumnRows
    assert by_columns.values == by_rows.values
    kinds = [[type(each) for each in row] for row in by_rows.values]
    assert [[type(each) for each in row] for row in by_columns.values] == kinds


def test_rows_stay_columns_with_their_results() -> None:
    named = Types.ROW_NAMED(["k", "v"], [Types.LONG(), Types.LONG()])
    made = of_rows(named, Count().alias("n"), Sum("v"))
    given = [Row(k=1, v=5), Row(k=2, v=6), Row(k=1, v=7)]
    by_rows, by_columns = Keyed(made), Keyed(made)
    by_rows.rows(given, lambda row: row["k"])
    form = RowForm(names=("k", "v"), record=Row)
    by_columns.columns([(1, 5), (2, 6), (1, 7)], "columns", form)
    assert type(by_columns.batches[0]) is ColumnRows
    assert repr(by_columns.values) == repr(by_rows.values)


def test_results_that_are_no_plain_numbers_make_rows_of_columns() -> None:
    running = Keyed(of_rows(PAIR, Collect("f1")))
    running.columns([(1, 5), (1, 7)], "columns")
    assert running.values == [(1, 5, [5]), (1, 7, [5, 7])]


@pytest.mark.parametrize("form", ["rows", "columns", "arrow"])
def test_sums_wrap_around_as_they_do_in_flink(form: str) -> None:
    running = Keyed(of_rows(PAIR, Sum("f1")))
    rows = [(1, 2**63 - 1), (1, 1)]
    if form == "rows":
        running.rows(rows, lambda row: row[0])
    else:
        running.columns(rows, form)
    assert by_key(running.values)[1] == [(1, 2**63 - 1, 2**63 - 1), (1, 1, -(2**63))]


def test_rows_keep_their_order_and_their_timestamps() -> None:
    running = Keyed(of_rows(PAIR, Count()))
    running.rows([(2, 0), (1, 0), (2, 0)], lambda row: row[0], [7, 6, 5])
    assert running.values == [(2, 0, 1), (1, 0, 1), (2, 0, 2)]
    assert running.subtasks[0].out.stamps == [7, 6, 5]


@dataclass
class Sale:
    """A record of a dataclass."""

    shop: str
    price: float


class Tick(NamedTuple):
    """A record of a named tuple."""

    symbol: str
    price: float


@pytest.mark.parametrize(
    ("row_type", "rows", "column", "made"),
    [
        (
            Types.TUPLE([Types.STRING(), Types.LONG()]),
            [("a", 1), ("a", 2)],
            "f1",
            [("a", 1, 1, 1), ("a", 2, 2, 3)],
        ),
        (
            Types.ROW_NAMED(["k", "x"], [Types.STRING(), Types.INT()]),
            [Row(k="a", x=1), Row(k="a", x=2)],
            "x",
            [Row(k="a", x=1, count=1, total=1), Row(k="a", x=2, count=2, total=3)],
        ),
        (
            declared_type(Sale, where="test"),
            [Sale("a", 1.5), Sale("a", 2.0)],
            "price",
            [
                Row(shop="a", price=1.5, count=1, total=1.5),
                Row(shop="a", price=2.0, count=2, total=3.5),
            ],
        ),
        (
            declared_type(Tick, where="test"),
            [Tick("a", 1.5)],
            "price",
            [Row(symbol="a", price=1.5, count=1, total=1.5)],
        ),
        (Types.LONG(), [3, 4], "value", [(3, 1, 3), (4, 2, 7)]),
    ],
    ids=["tuple", "row", "dataclass", "named tuple", "number"],
)
def test_each_kind_of_row_gets_a_field_for_each_aggregate(
    row_type: TypeInformation, rows: list[Any], column: str, made: list[object]
) -> None:
    running = Keyed(of_rows(row_type, Count(), Sum(column).alias("total")))
    running.rows(rows, lambda _: 1)
    assert running.values == made


NOW = datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("of", "values", "aggregates", "wanted", "types"),
    [
        (Types.INT(), [3, 4], (Sum, Max), [7, 4], "Long Integer"),
        (Types.FLOAT(), [0.5, 1.5], (Sum, Min, Mean), [2.0, 0.5, 1.0], "Double Float Double"),
        (Types.BOOLEAN(), [True, True], (Sum, Last), [2, True], "Long Boolean"),
        (Types.BIG_INT(), [2**70, 1], (Sum, Min), [2**70 + 1, 1], "BigInteger BigInteger"),
        (Types.BIG_DEC(), [Decimal("1.5"), Decimal(1)], (Sum,), [Decimal("2.5")], "BigDecimal"),
        (Types.STRING(), ["b", "a"], (Min, First), ["a", "b"], "String String"),
        (Types.INSTANT(), [NOW, NOW], (Max,), [NOW], "Instant"),
        (
            Types.SQL_DATE(),
            [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)],
            (Min, Collect),
            [datetime.date(2020, 1, 1), [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]],
            "SqlTimeTypeInfo(Date) ListTypeInfo<SqlTimeTypeInfo(Date)>",
        ),
        (Types.LIST(Types.LONG()), [[1], [2, 3]], (Last,), [[2, 3]], "ListTypeInfo<Long>"),
    ],
    ids=lambda each: str(each) if isinstance(each, TypeInformation) else "",
)
def test_results_are_values_of_their_declared_types(
    of: TypeInformation, values: list[Any], aggregates: Any, wanted: list[object], types: str
) -> None:
    chosen = [each("f1") for each in aggregates]
    row_type = Types.TUPLE([Types.LONG(), of])
    running = Keyed(of_rows(row_type, *chosen))
    running.rows([(1, value) for value in values], lambda row: row[0])
    last = running.values[-1][2:]
    assert list(last) == wanted and [type(each) for each in last] == [type(each) for each in wanted]
    made = AggregatedRows(row_type, chosen, "running").result_type
    assert " ".join(map(str, made.children[2:])) == types


def test_rows_of_no_declared_type_become_arrow_batches_keyed_in_any_way() -> None:
    running = Keyed(lambda: RunningOperator([Count(), Sum("x")], None), key_type=None)
    running.rows([{"k": "a", "x": 1}, {"k": "ab", "x": 2}], lambda row: len(row["k"]))
    running.rows([{"k": "b", "x": 5}], lambda row: len(row["k"]))
    assert running.values == [
        {"k": "a", "x": 1, "count": 1, "x_sum": 1},
        {"k": "ab", "x": 2, "count": 1, "x_sum": 2},
        {"k": "b", "x": 5, "count": 2, "x_sum": 6},
    ]


def of_two(kind: TypeInformation, aggregate: Aggregate) -> Keyed:
    rows = AggregatedRows(Types.TUPLE([Types.LONG(), kind]), [aggregate], "running")
    return Keyed(lambda: RunningOperator([aggregate], None, LONG, rows))


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (Types.LONG(), 2**70, 1),
        (Types.STRING(), "\ud800", "a"),
        (Types.BIG_DEC(), Decimal("2.0000000000000000000001"), Decimal(1)),
        (Types.BIG_INT(), 10**38, 1),
        (Types.INSTANT(), Instant(10, 999), Instant(10, 1000)),
    ],
    ids=str,
)
def test_a_value_that_a_column_does_not_hold_names_field_and_row(
    kind: TypeInformation, value: object, kept: object
) -> None:
    running = of_two(kind, Last("f1"))
    with pytest.raises(UserCodeFailed, match=r"field 'f1' is .*, which a column of") as raised:
        running.rows([(1, kept), (1, value)], lambda row: row[0])
    assert raised.value.where.endswith(f"at the row {(1, value)!r}") and raised.value.remedy


def test_a_sum_that_its_column_does_not_hold_names_the_aggregate() -> None:
    running = of_two(Types.BIG_INT(), Sum("f1"))
    with pytest.raises(UserCodeFailed, match=r"Sum\('f1'\) have come to what a column can't"):
        running.rows([(1, 9 * 10**37)] * 3, lambda row: row[0])


@pytest.mark.parametrize("key", [(1, 2), uuid.UUID(int=1), Decimal("1.5")], ids=str)
def test_keys_that_columns_do_not_hold_are_refused(key: object) -> None:
    running = Keyed(lambda: RunningOperator([Count()], None), key_type=None)
    with pytest.raises(UnsupportedKey) as raised:
        running.rows([{"x": 1}], lambda _: key)
    assert "Key by" in raised.value.remedy


@pytest.mark.parametrize(
    ("aggregate", "what"),
    [
        (Sum("f2"), "there is no field 'f2'"),
        (Count().alias("f1"), "there is a field 'f1' already"),
        (Max("f1"), "field 'f1' is of no declared type"),
    ],
)
def test_aggregates_that_do_not_fit_the_declared_rows_are_refused(
    aggregate: Aggregate, what: str
) -> None:
    row_type = Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
    with pytest.raises(GraphError, match=what):
        AggregatedRows(row_type, [aggregate], "running")
