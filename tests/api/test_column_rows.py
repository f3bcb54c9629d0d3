"""Rows as columns are the rows that they were made from, whatever is done with them."""

from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row, RowKind
from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.api.rows.batches import copied, take
from tidegate.api.rows.column_rows import (
    TUPLE,
    VALUE,
    ColumnRows,
    as_columns,
    fields_of_type,
    joined,
)
from tidegate.api.rows.conversion import Conversion
from tidegate.errors import UserCodeFailed
from tidegate.model.elements import RowBatch
from tidegate.model.nullable import FieldValues, masked
from tidegate.traced.calls import batch_call
from tidegate.transport import codec
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import Types

pytestmark = pytest.mark.hypothesis

longs = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.just("\0"), max_size=5)
rows_of_all_kinds = st.tuples(longs, st.floats(allow_nan=False), st.booleans(), texts)
rows_with_nulls = st.tuples(
    longs, *(st.none() | of for of in (st.floats(allow_nan=False), st.booleans(), texts, longs))
)
tables = st.lists(rows_of_all_kinds, min_size=1, max_size=9) | st.lists(
    rows_with_nulls, min_size=1, max_size=9
)
Rows = list[tuple[Any, ...]]
KINDS = (np.int64, np.float64, np.bool_, np.object_, np.int64)


FORMS = both_forms()


class Text(str):
    """Not exactly a `str`."""

    __slots__ = ()


class Whole(int):
    """Not exactly an `int`."""


@dataclass
class Sale:
    shop: str
    amount: int


class Point(NamedTuple):
    x: int


class Pair(NamedTuple):
    first: object
    second: object


def columns_of(rows: Rows, *, keyed: bool = False) -> ColumnRows:
    columns: list[FieldValues] = []
    for field, kind in zip(zip(*rows, strict=True), KINDS, strict=False):
        absent = np.array([value is None for value in field])
        nothing = None if kind is np.object_ else kind()
        filled = [nothing if value is None else value for value in field]
        columns.append(masked(np.array(filled, kind), absent))
    stamps = np.arange(len(rows), dtype=np.int64)
    if not keyed:
        return ColumnRows(columns, form=TUPLE, stamps=stamps)
    groups = (np.arange(len(rows)) % 128).astype(np.int16)
    return ColumnRows(columns, form=TUPLE, stamps=stamps, key_column=0, groups=groups)


def plain(batch: RowBatch) -> RowBatch:
    return RowBatch(batch.values, batch.timestamps_ms, batch.keys, batch.key_groups)


@given(tables, st.booleans())
def test_rows_are_made_of_columns(rows: Rows, keyed: bool) -> None:
    batch = columns_of(rows, keyed=keyed)
    assert batch.values == rows
    assert [[*map(type, row)] for row in batch.values] == [[*map(type, row)] for row in rows]
    assert batch.has_nulls == (None in [value for row in rows for value in row])
    assert batch.keys == ([row[0] for row in rows] if keyed else None)
    assert batch.values is batch.values


@given(tables, st.data())
def test_parts_are_those_of_the_rows(rows: Rows, data: st.DataObject) -> None:
    batch = columns_of(rows, keyed=True)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert plain(batch.piece(start, stop)) == plain(batch).piece(start, stop) or start == stop
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True))
    if len(chosen) < len(rows):
        assert plain(batch.take(np.array(chosen))) == take(plain(batch), chosen)


@given(tables, tables)
def test_joined_rows_follow_each_other(first: Rows, second: Rows) -> None:
    width = min(len(first[0]), len(second[0]))
    rows = [row[:width] for row in first + second]
    parts = [columns_of(part, keyed=True) for part in (rows[: len(first)], rows[len(first) :])]
    both = joined(parts)
    assert parts[0].shape == parts[1].shape == both.shape
    assert both.values == rows
    assert both.keys == [row[0] for row in rows]


@given(tables, st.booleans())
def test_columns_come_back_from_the_wire(rows: Rows, keyed: bool) -> None:
    sent = columns_of(rows, keyed=keyed)
    data = memoryview(b"".join(codec.encode(sent)))
    codec.check_batch(data)
    got = codec.decode(data)
    assert isinstance(got, ColumnRows) and got.shape == sent.shape
    assert plain(got) == plain(sent)


def test_halves_of_surrogate_pairs_go_over_the_wire_as_rows() -> None:
    sent = columns_of([(1, 1.0, True, "\ud800"), (2, 2.0, False, "a")], keyed=True)
    got = codec.decode(memoryview(b"".join(codec.encode(sent))))
    assert got == plain(sent)


@given(tables)
def test_what_is_false_or_null_is_left_out(rows: Rows) -> None:
    batch = columns_of(rows)
    for at, column in enumerate(batch.columns):
        assert column.nonzero()[0].tolist() == [n for n, row in enumerate(rows) if row[at]]


def test_rows_without_nulls_are_no_longer_a_column_with_nulls() -> None:
    batch = columns_of([(1, None, None, None), (2, 1.0, True, "a"), (3, 2.0, False, "b")])
    for part in (batch.piece(1, 3), batch.take(np.array([1, 2]))):
        assert not part.has_nulls and part.values == batch.values[1:]
    assert batch.every(0, 2).has_nulls


def test_texts_are_written_behind_the_numbers() -> None:
    texts = np.array(["a", "", "a\0b"], np.object_)
    sent = ColumnRows([texts, np.arange(3)], form=TUPLE, stamps=np.arange(3))
    data = b"".join(codec.encode(sent))
    assert data.endswith(msgspec.msgpack.encode(["a", "", "a\0b"]))
    got = codec.decode(memoryview(data))
    assert isinstance(got, ColumnRows) and plain(got) == plain(sent)


class Derived(Pair):
    """Has attributes of its own."""


class Renamed(Pair):
    """Reads a field as something else."""

    __slots__ = ()

    @property
    def first(self) -> object:  # type: ignore[override]
        return "renamed"


class Backwards(NamedTuple):
    first: object
    second: object

    def __getitem__(self, at: object) -> object:  # type: ignore[override]
        return "backwards"


class ByHand(tuple):
    """A tuple that says of itself that it has names."""

    _fields = ("first", "second")


@dataclass
class Plain:
    first: object
    second: object = 2


@dataclass(frozen=True)
class Frozen:
    first: object
    second: object


@dataclass
class Checked:
    """Reads as something else than what it holds, or would look at what it is made of."""

    first: object

    def __post_init__(self) -> None:
        self.made = self.first


@dataclass(slots=True)
class Slotted:
    first: object


class Shown:
    """A property over an attribute."""

    def __get__(self, instance: object, owner: type) -> object:
        return self if instance is None else "shown"

    def __set__(self, instance: Any, value: object) -> None:
        instance.__dict__["first"] = value


@dataclass
class Computed:
    first: object


Computed.first = Shown()  # type: ignore[assignment]


@dataclass
class Watched:
    first: object

    def __getattribute__(self, name: str) -> object:
        return object.__getattribute__(self, name)


LEAVES = (
    st.none() | st.booleans() | longs | st.just(2**63) | st.floats(allow_nan=False) | texts
    | st.builds(Text, texts) | st.builds(Whole, st.integers(0, 9)) | st.binary(max_size=2)
    | st.just(("a",))
)  # fmt: skip
WRONG = (
    LEAVES | st.lists(LEAVES, max_size=3).map(tuple) | st.builds(Pair, LEAVES, LEAVES)
    | st.lists(LEAVES, max_size=2) | st.builds(Row, LEAVES)
    | st.builds(lambda a, b: Row(a=a, b=b), LEAVES, LEAVES)
    | st.builds(lambda a: Row.of_kind(RowKind.DELETE, a=a), LEAVES)
    | st.builds(Plain, LEAVES, LEAVES) | st.builds(Frozen, LEAVES, LEAVES)
    | st.dictionaries(st.sampled_from(["a", "b", 1, Text("a")]), LEAVES, max_size=3)
    | st.sampled_from([Slotted, Checked, Computed, Watched]).map(lambda kind: kind(1))
)  # fmt: skip
FITTING = st.sampled_from([longs, texts, st.booleans(), st.floats(allow_nan=False)]).flatmap(
    lambda of: st.lists(of, min_size=1, max_size=4)
) | st.sampled_from(
    [
        st.tuples(texts, longs),
        st.builds(Plain, texts, longs),
        st.builds(Pair, texts, longs),
        st.builds(Frozen, longs, longs),
        st.fixed_dictionaries({"a": texts, "b": st.booleans()}),
        st.builds(Checked, longs),
        st.builds(lambda a, b: Row(a=a, b=b), st.none() | longs, texts),
        st.none() | longs,
        st.tuples(texts | st.none(), longs | st.none()),
        st.builds(Plain, texts | st.none(), longs | st.none()),
        st.builds(Pair, st.booleans() | st.none(), texts),
        st.fixed_dictionaries({"a": texts | st.none(), "b": st.floats(allow_nan=False)}),
    ]
).flatmap(lambda of: st.lists(of, min_size=1, max_size=4))


@examples(500)
@given(FITTING | st.lists(WRONG, min_size=1, max_size=3), st.lists(WRONG, max_size=1), st.data())
def test_columns_are_made_of_rows_that_they_give_back(
    fitting: list[object], wrong: list[object], data: st.DataObject
) -> None:
    values = list(data.draw(st.permutations([*fitting, *wrong])))
    plain_form, compiled = (as_columns(RowBatch(values), loops) for loops in FORMS)
    # Interpreted, dicts and objects are left as they are.
    assert (plain_form is None) == (compiled is None) or (
        compiled is not None and compiled.form.names
    )
    for made in (plain_form, compiled):
        if made is not None:
            assert repr(made.values) == repr(values)
            assert [*map(type, made.values)] == [*map(type, values)]
            if made.form.is_mutable and made.form.record not in (None, Row):
                assert [*map(vars, made.values)] == [*map(vars, values)]


@pytest.mark.parametrize(
    "values",
    [
        [None],
        [None, None, Text("a")],
        [("a", 1), (Text("b"), 2)],
        [("a", 1), ("b", Whole(2))],
        [("a", 1), ("b", True)],
        [("a", 1), ("b", 1.0)],
        [("a", 1), Pair("b", 2)],
        [Pair("b", 2), ("a", 1)],
        [Pair("b", None)],
        [Derived("a", 1)],
        [Renamed("a", 1)],
        [Backwards("a", 1)],
        [ByHand(("a", 1))],
        [("a", 1), ("b",)],
        [("a", 2**63)],
        [Text("a")],
        [()],
        [{}],
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [{Text("a"): 1}],
        [{"a": 1}, {Text("a"): 1}],
        [{1: 1}],
        [{"a": None}],
        [{"a": 1}, OrderedDict(a=1)],
        [Plain(1), Frozen(1, 2)],
        [Plain(1, None)],
        [Row(1)],
        [Row(a=1), Row(b=1)],
        [Row(a=1), Row(1)],
        [Row(a=1), Row.of_kind(RowKind.DELETE, a=1)],
        [Row(a=1), {"a": 1}],
        [Slotted(1)],
        [Computed(1)],
        [Watched(1)],
    ],
)
def test_rows_that_columns_would_change_stay_rows(values: list[object]) -> None:
    assert [as_columns(RowBatch(values), loops) for loops in FORMS] == [None, None]


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1, "b": "x"}, {"a": 2, "b": "\ud800"}],
        [Plain("x", 1), Plain("y", 2)],
        [Frozen(1.0, True), Frozen(-0.0, False)],
        [Checked(1), Checked(2)],
        [Pair("x", 1), Pair("y", 2)],
        [{"a": None, "b": "x"}, {"a": 1.5, "b": None}, {"a": None, "b": None}],
        [Plain(None, True), Plain("y", False), Plain("z", None)],
        [Pair(None, 1), Pair("y", None), Pair("z", 3)],
        [Row(a=1, b="x"), Row(a=2, b=None)],
    ],
)
def test_dicts_and_dataclasses_are_columns_that_come_back_from_the_wire(
    values: list[object],
) -> None:
    made = as_columns(RowBatch(values), FORMS[1])
    assert made is not None
    got = codec.decode(memoryview(b"".join(codec.encode(made))))
    assert repr(plain(got)) == repr(RowBatch(values))
    assert [*map(type, got.values)] == [*map(type, values)]


def test_an_object_whose_class_cannot_be_imported_goes_over_the_wire() -> None:
    @dataclass
    class Local:
        first: int

    made = as_columns(RowBatch([Local(1), Local(2)]), FORMS[1])
    assert made is not None
    got = codec.decode(memoryview(b"".join(codec.encode(made))))
    assert isinstance(got, ColumnRows) and got.values == [Local(1), Local(2)]


def test_rows_that_can_change_are_each_consumers_own() -> None:
    made = as_columns(RowBatch([{"a": 1}, {"a": 2}]), FORMS[1])
    assert made is not None
    other = copied(made)
    made.values[0]["a"] = 5  # type: ignore[index]
    assert other.values == [{"a": 1}, {"a": 2}]
    for value in ((1, 2), Pair(1, 2)):
        flat = as_columns(RowBatch([value]), FORMS[1])
        assert flat is not None and copied(flat) is flat


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (lambda row: row["a"], {"a": 1, "b": "x"}, [1]),
        (itemgetter("b"), {"a": 1, "b": "x"}, ["x"]),
        (lambda row: row.a, {"a": 1, "b": "x"}, None),
        (lambda row: row[0], {"a": 1, "b": "x"}, None),
        (lambda row: row["c"], {"a": 1, "b": "x"}, None),
        (lambda row: row.first, Plain(1, "x"), [1]),
        (attrgetter("second"), Plain(1, "x"), ["x"]),
        (lambda row: row["first"], Plain(1, "x"), None),
        (lambda row: row[0], Plain(1, "x"), None),
        (lambda row: row, Plain(1, "x"), None),
        (lambda row: row.second, Pair(1, "x"), ["x"]),
        (lambda row: row[-2], Pair(1, "x"), [1]),
        (lambda row: row["first"], Pair(1, "x"), None),
        (lambda row: row.count, Pair(1, "x"), None),
        (lambda row: row.made, Checked(1), [1]),
        (lambda row: row[-1], (1, "x"), ["x"]),
        (lambda row: row.count, (1, "x"), None),
    ],
)
def test_functions_read_fields_as_python_does(
    function: object, value: object, expected: list[object] | None
) -> None:
    rows, call = as_columns(RowBatch([value]), FORMS[1]), batch_call(function, enabled=True)
    assert rows is not None and call is not None
    found = call(rows)
    assert (None if found is None else found[0].tolist()) == expected


def test_a_column_has_the_name_that_rows_have_for_it() -> None:
    for value in ({"a": 1}, Plain(1), Pair(1, 2), (1,), 1):
        rows = as_columns(RowBatch([value]), FORMS[1])
        assert rows is not None
        found = [rows.column(name) for name in ("a", "first", "f0")]
        assert [each is not None for each in found] == [
            type(value) is dict,
            type(value) in (Plain, Pair),
            False,
        ]


def test_a_key_is_the_object_in_its_row() -> None:
    batch = columns_of([(2**40, 1.0, True, "a")], keyed=True)
    assert batch.keys is not None
    assert batch.values[0][0] is batch.keys[0]  # type: ignore[index]


def test_columns_of_another_shape_are_not_joined() -> None:
    one = ColumnRows([np.arange(3)], form=VALUE)
    with pytest.raises(AssertionError, match="one shape"):
        joined([one, ColumnRows([np.arange(3)], form=TUPLE)])


def test_types_whose_rows_columns_give_as_they_are() -> None:
    pair = ColumnRows([np.arange(2), np.arange(2) * 0.5], form=TUPLE)
    assert pair.fields == fields_of_type(Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
    assert ColumnRows([np.arange(2) > 0], form=VALUE).fields == fields_of_type(Types.BOOLEAN())
    assert pair.fields != fields_of_type(Types.TUPLE([Types.LONG(), Types.LONG()]))
    assert fields_of_type(Types.STRING()) == ColumnRows([np.array(["a"], "O")], form=VALUE).fields
    assert fields_of_type(Types.TUPLE([Types.LONG(), Types.CHAR()])) is None
    typed = as_columns(RowBatch([Sale("a", 1)]), FORMS[1])
    assert typed is not None and typed.fields == fields_of_type(type_of_hint(Sale))
    named = as_columns(RowBatch([Point(1)]), FORMS[1])
    assert named is not None and named.fields == fields_of_type(type_of_hint(Point))
    rows = as_columns(RowBatch([Row(f0=1)]), FORMS[1])
    assert rows is not None and rows.fields == fields_of_type(Types.ROW([Types.LONG()]))
    assert fields_of_type(Types.ROW([Types.INT()])) is None


def test_rows_of_columns_are_read_by_name_and_place() -> None:
    values: list[object] = [Row(a=1, copy="x"), Row(a=None, copy="y"), Row(a=3, copy="z")]
    for loops in FORMS:
        made = as_columns(RowBatch(values), loops)
        assert made is not None and made.column("copy") is made.columns[1]
        for function in (
            lambda row: (row["a"], row[0], row[-1], row.a, row["copy"]),
            lambda row: {"one": row.copy},
        ):
            call = batch_call(function, enabled=True, named=True)
            assert call is not None
            found = call(made)
            if call.form.names:
                assert found is None
            else:
                assert found is not None
                rows = ColumnRows(found, form=call.form).values
                assert rows == [function(value) for value in values]


edges = [0, 1, 127, 128, -128, -129, 2**15, -(2**15), 2**31 - 1, 2**31, -(2**31), -(2**31) - 1]
WHOLE = [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()]


@given(
    st.lists(st.tuples(st.none() | st.sampled_from(edges), st.integers(-9, 9)), min_size=1),
    st.sampled_from(WHOLE),
    st.sampled_from([Types.TUPLE, Types.ROW]),
)
def test_columns_are_of_the_declared_type_where_their_rows_are(
    values: list[tuple[int | None, int]], whole: Any, of: Any
) -> None:
    made = as_columns(RowBatch(list[object](values)))
    told: list[str] = []
    for batch in (RowBatch(list[object](values)), made or RowBatch(list[object](values))):
        try:
            converted = Conversion(of([whole, Types.INT()]), "step").batch(batch)
            assert isinstance(converted, RowBatch)
            assert isinstance(converted, ColumnRows) == isinstance(batch, ColumnRows)
            told.append(repr(converted.values))
        except UserCodeFailed as failed:
            told.append(str(failed))
    assert told[0] == told[1]


def test_tuples_become_rows_of_their_declared_type_as_columns() -> None:
    declared = Types.ROW_NAMED(["n", "t"], [Types.LONG(), Types.STRING()])
    tuples: list[object] = [(1, "a"), (None, "b"), (3, None)]
    made = as_columns(RowBatch(tuples))
    assert made is not None
    converted = Conversion(declared, "step").batch(made)
    assert isinstance(converted, ColumnRows)
    rows = Conversion(declared, "step").batch(RowBatch(tuples))
    assert isinstance(rows, RowBatch) and repr(converted.values) == repr(rows.values)
    other = Types.ROW_NAMED(["n", "t"], [Types.DOUBLE(), Types.STRING()])
    rows = Conversion(other, "step").batch(made)
    assert isinstance(rows, RowBatch) and not isinstance(rows, ColumnRows)
    assert repr(rows.values[0]) == "Row(n=1.0, t='a')"
