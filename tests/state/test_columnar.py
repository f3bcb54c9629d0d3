"""Columnar keyed state: rows of keys, columns over them, snapshots by key group."""

import copy
import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flinkformat.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from tests.state.counted_columns import COUNT, Columns
from tests.state.world import MAX_PARALLELISM, READER, Subtask, Viewed, restored, snapshot, stored
from tidegate.api.state import ColumnStateDescriptor, ValueStateDescriptor
from tidegate.errors import (
    ConfigError,
    FormatError,
    SerializerIncompatible,
    UnsupportedKey,
    UserError,
)
from tidegate.model.ids import CheckpointId
from tidegate.model.restore import RestoredOperatorState
from tidegate.typeinfo.key_hash import KeyHasher
from tidegate.typeinfo.types import TypeInformation, Types

SCORE = ColumnStateDescriptor("score", pa.float64(), default=-1.0)


def test_each_key_has_one_row() -> None:
    columns = Columns(Subtask())
    first = columns.index(pa.array([5, 7, 5, 9]))
    assert first[0] == first[2] and sorted(set(first.tolist())) == [0, 1, 2]
    again = columns.index(pa.array([9, 8, 7]))
    assert again[0] == first[3] and again[2] == first[1] and again[1] == 3
    assert len(columns.rows) == 4


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([0, -1, 2**63 - 1, -(2**63)]),
        pa.array([1, 2, 3], pa.int16()),
        pa.array(["a", "", "ä", "b" * 100]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([b"", b"x"]),
        pa.array([True, False]),
        pa.array([1.5, float("inf"), 0.0]),
        pa.array([datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)]),
        pa.array([datetime.time(1, 2, 3, 4)]),
        pa.array([0, 1], pa.timestamp("us")),
        pa.array([datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)]),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_of_each_type_come_back(keys: pa.Array) -> None:
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(COUNT)
    state.put(columns.index(keys), np.arange(len(keys)))
    values = columns.values(keys, COUNT)
    [again] = restored([snapshot(columns.subtask)])
    assert Columns(again).values(keys, COUNT) == values
    assert len(again.backend.keyed_columns(None)) == len(set(keys.to_pylist()))


def test_two_nans_are_one_key_and_so_are_two_zeros() -> None:
    columns = Columns(Subtask())
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    rows = columns.index(pa.array(np.array([np.nan, other_nan, 0.0, -0.0])))
    assert rows[0] == rows[1] and rows[2] == rows[3]


def test_a_key_not_yet_written_has_the_default() -> None:
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(SCORE)
    rows = columns.index(pa.array([1, 2]))
    assert state.get(rows).tolist() == [-1.0, -1.0]
    state.put(rows[:1], np.array([2.5]))
    more = columns.index(pa.array(range(5000)))
    assert state.get(rows).tolist() == [2.5, -1.0]
    assert state.get(more[3:]).tolist() == [-1.0] * 4997


def test_what_get_gives_is_the_callers_own() -> None:
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(COUNT)
    rows = columns.index(pa.array([1]))
    state.get(rows)[0] = 5
    assert state.get(rows).tolist() == [0]


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_columns_are_snapshotted_as_at_the_barrier_and_rescaled(kind: str) -> None:
    keys = pa.array(range(500)) if kind == "numbers" else pa.array([f"k{i}" for i in range(500)])
    parts = [Columns(Subtask(index, 2)) for index in range(2)]
    pending = []
    expected: dict[object, object] = {}
    for part in parts:
        mine = part.owned(keys)
        rows = part.index(mine)
        state = part.subtask.backend.column_state(COUNT)
        score = part.subtask.backend.column_state(SCORE)
        state.put(rows, np.arange(len(rows)))
        score.put(rows[:10], np.arange(10.0))
        expected |= part.values(mine, COUNT)
        pending.append(part.subtask.backend.snapshot(CheckpointId(1)))
        state.put(rows, np.full(len(rows), -7))
        part.index(pa.concat_arrays([mine, part.owned(keys)]))
        state.put(part.index(mine), np.full(len(rows), -8))
    states = [stored(each) for each in pending]
    for parallelism in (1, 2, 3):
        found: dict[object, object] = {}
        scores: dict[object, object] = {}
        for subtask in restored(states, parallelism):
            columns = Columns(subtask)
            mine = columns.owned(keys)
            assert len(columns.rows) == len(mine)
            found |= columns.values(mine, COUNT)
            scores |= columns.values(mine, SCORE)
        assert found == expected
        assert sum(value != -1.0 for value in scores.values()) == 20


def test_new_keys_after_the_barrier_are_not_in_the_snapshot() -> None:
    columns = Columns(Subtask())
    columns.subtask.backend.column_state(COUNT)
    columns.index(pa.array([1, 2]))
    pending = columns.subtask.backend.snapshot(CheckpointId(1))
    columns.index(pa.array(range(100)))
    [again] = restored([stored(pending)])
    assert len(again.backend.keyed_columns(None)) == 2


def test_a_column_that_nobody_asks_for_goes_into_the_next_snapshot() -> None:
    columns = Columns(Subtask())
    columns.subtask.backend.column_state(SCORE).put(columns.index(pa.array([1])), np.array([2.0]))
    [second] = restored([snapshot(columns.subtask)])
    Columns(second).index(pa.array([1, 2]))
    [third] = restored([snapshot(second, 2)])
    assert Columns(third).values(pa.array([1, 2]), SCORE) == {1: 2.0, 2: -1.0}


def test_columns_outlive_the_file_that_they_were_read_from() -> None:
    columns, reader = Columns(Subtask()), Viewed()
    name = ColumnStateDescriptor("name", pa.string())
    keys = pa.array(["one", "two"])
    columns.subtask.backend.column_state(name).put(columns.index(keys), pa.array(["a", "b"]))
    [again] = restored([snapshot(columns.subtask)], reader=reader)
    reader.overwrite()
    assert Columns(again).values(keys, name) == {"one": "a", "two": "b"}


def test_a_new_default_holds_for_new_keys_only() -> None:
    columns = Columns(Subtask())
    columns.subtask.backend.column_state(SCORE)
    columns.index(pa.array([1]))
    [again] = restored([snapshot(columns.subtask)])
    other = ColumnStateDescriptor("score", pa.float64(), default=5.0)
    again.backend.column_state(other)
    assert Columns(again).values(pa.array([1, 2]), other) == {1: -1.0, 2: 5.0}


def test_a_wider_column_takes_the_old_values_and_another_type_is_refused() -> None:
    columns = Columns(Subtask())
    narrow = ColumnStateDescriptor("count", pa.int32())
    columns.subtask.backend.column_state(narrow).put(columns.index(pa.array([1])), np.array([7]))
    [again] = restored([snapshot(columns.subtask)])
    with pytest.raises(SerializerIncompatible, match="was int32 and is now double") as raised:
        again.backend.column_state(ColumnStateDescriptor("count", pa.float64()))
    assert raised.value.where == "operator 'counts', column 'count'"
    assert "the value was int32 and is double" in raised.value.what
    assert Columns(again).values(pa.array([1]), COUNT) == {1: 7}


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(fields.items())


@pytest.mark.parametrize(
    ("old", "new", "value", "after"),
    [
        (pa.float32(), pa.float64(), 0.5, 0.5),
        (pa.uint8(), pa.int16(), 200, 200),
        (pa.string(), pa.large_string(), "a", "a"),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), [1], [1]),
        (
            struct(a=pa.int32(), gone=pa.string()),
            struct(new=pa.string(), a=pa.int64()),
            {"a": 1, "gone": "x"},
            {"new": None, "a": 1},
        ),
        (
            pa.map_(pa.string(), struct(a=pa.int8())),
            pa.map_(pa.string(), struct(a=pa.int8(), b=pa.bool_())),
            [("k", {"a": 1})],
            [("k", {"a": 1, "b": None})],
        ),
    ],
    ids=str,
)
def test_a_column_of_another_arrow_type_is_migrated(
    old: pa.DataType, new: pa.DataType, value: object, after: object
) -> None:
    columns, keys = Columns(Subtask()), pa.array([1])
    values = pa.array([value], old)
    held = values.to_numpy(zero_copy_only=False)
    if isinstance(value, list | dict):
        held = np.fromiter([value], object, 1)
    columns.subtask.backend.column_state(ColumnStateDescriptor("x", old)).put(
        columns.index(keys), held
    )
    for _ in range(2):  # the second time it is written in the new type
        [again] = restored([snapshot(columns.subtask)])
        columns = Columns(again)
        assert columns.values(keys, ColumnStateDescriptor("x", new)) == {1: after}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (pa.int64(), pa.int32(), "the value was int64 and is int32"),
        (pa.int64(), pa.uint64(), "the value was int64 and is uint64"),
        (pa.timestamp("us"), pa.timestamp("ms"), "was timestamp[us] and is timestamp[ms]"),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), "is timestamp[us, tz=UTC]"),
        (struct(a=pa.int64()), struct(a=pa.string()), "a was int64 and is string"),
        (pa.list_(struct(a=pa.int64())), pa.list_(struct(a=pa.int8())), "[].a was int64"),
        (
            struct(a=pa.int64()),
            pa.struct([pa.field("b", pa.int64(), nullable=False)]),
            "b is new and can't be null",
        ),
    ],
    ids=str,
)
def test_a_column_that_does_not_fit_names_the_field(
    old: pa.DataType, new: pa.DataType, fault: str
) -> None:
    columns = Columns(Subtask())
    columns.subtask.backend.column_state(ColumnStateDescriptor("x", old))
    columns.index(pa.array([1]))
    [again] = restored([snapshot(columns.subtask)])
    with pytest.raises(SerializerIncompatible) as raised:
        again.backend.column_state(ColumnStateDescriptor("x", new))
    assert fault in raised.value.what
    assert f"was {old} and is now {new}" in raised.value.what


@pytest.mark.parametrize(
    ("arrow", "value"),
    [
        (pa.bool_(), True),
        (pa.uint8(), 200),
        (pa.float32(), 0.5),
        (pa.timestamp("us"), np.datetime64("2020-01-02T03:04:05.000006")),
        (pa.timestamp("ms", "UTC"), np.datetime64("2020-01-02T03:04:05.006")),
        (pa.date32(), np.datetime64("2020-01-02")),
        (pa.duration("s"), np.timedelta64(5, "s")),
        (pa.string(), "ä"),
        (pa.large_binary(), b"x"),
        (pa.decimal128(10, 2), Decimal("1.25")),
        (pa.time64("us"), datetime.time(1, 2)),
        (pa.list_(pa.int64()), [1, None, 2]),
        (pa.struct([("a", pa.int64())]), {"a": 1}),
    ],
    ids=str,
)
def test_values_of_each_type_come_back(arrow: pa.DataType, value: object) -> None:
    descriptor = ColumnStateDescriptor("v", arrow)
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(descriptor)
    rows = columns.index(pa.array([1, 2]))
    state.put(rows[1:], np.fromiter([value], state.get(rows).dtype, 1))
    before = state.get(rows)
    [again] = restored([snapshot(columns.subtask)])
    after = again.backend.column_state(descriptor).get(Columns(again).index(pa.array([1, 2])))
    assert after.dtype == before.dtype and after.tolist() == before.tolist()
    assert after[1] == value


@pytest.mark.parametrize("arrow", [pa.null(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_a_column_of_a_type_without_values_of_its_own_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="can't be of type") as raised:
        Subtask().backend.column_state(ColumnStateDescriptor("v", arrow))
    assert raised.value.where == "operator 'counts', column 'v'"


def test_a_default_that_is_no_value_of_the_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a default"):
        Subtask().backend.column_state(ColumnStateDescriptor("v", pa.int64(), default="many"))
    with pytest.raises(ConfigError, match="'' is not a default for a column of object"):
        Subtask().backend.column_state(ColumnStateDescriptor("v", pa.string(), default=""))


def test_values_of_another_type_are_refused_by_column_when_they_are_written() -> None:
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(ColumnStateDescriptor("name", pa.string()))
    state.put(columns.index(pa.array([1])), np.array([5], object))
    with pytest.raises(
        UserError, match="column 'name' of state holds values that are not of type string"
    ):
        snapshot(columns.subtask)


@pytest.mark.parametrize(
    ("arrow", "values", "shown"),
    [
        (pa.int64(), pa.array([5, None]), "nan"),
        (pa.int64(), np.array([5, None], object), "NoneType"),
        (pa.int64(), np.array([1.0, 1.9]), "1.9"),
        (pa.int32(), np.array([7, 2**40 + 7]), str(2**40 + 7)),
        (pa.int64(), np.array([1, 2**63], np.uint64), str(2**63)),
        (pa.uint8(), np.array([1, -1]), "-1"),
        (pa.bool_(), np.array([1, 2]), "2"),
        (pa.timestamp("s"), np.array([0, 1], "datetime64[ms]"), "datetime.datetime"),
    ],
)
def test_a_value_that_a_column_can_only_hold_as_another_is_refused(
    arrow: pa.DataType, values: Any, shown: str
) -> None:
    columns, keys = Columns(Subtask()), pa.array([1, 2])
    descriptor = ColumnStateDescriptor("last", arrow)
    state = columns.subtask.backend.column_state(descriptor)
    rows = columns.index(keys)
    before = state.get(rows).tolist()
    with pytest.raises(UserError, match="column 'last' of state can't hold") as raised:
        state.put(rows, values)
    assert shown in raised.value.what and state.get(rows).tolist() == before


@pytest.mark.parametrize(
    ("arrow", "values", "held"),
    [
        (pa.int64(), np.array([1.0, -2.0]), [1, -2]),
        (pa.int32(), np.array([7, -8], object), [7, -8]),
        (pa.int16(), pa.array([7, 8]), [7, 8]),
        (pa.bool_(), np.array([1, 0]), [True, False]),
        (pa.float32(), np.array([0.1, np.nan]).tolist(), [float(np.float32(0.1)), np.nan]),
        (pa.date32(), np.array([datetime.date(2020, 1, 2), None]), None),
        (pa.timestamp("s"), np.array([1000, "NaT"], "datetime64[ms]"), None),
    ],
    ids=str,
)
def test_a_column_holds_values_of_other_types_that_fit(
    arrow: pa.DataType, values: Any, held: list[Any] | None
) -> None:
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(ColumnStateDescriptor("last", arrow))
    rows = columns.index(pa.array([1, 2]))
    state.put(rows, values)
    found = state.get(rows)
    np.testing.assert_array_equal(found, values.astype(found.dtype) if held is None else held)


NESTED = [
    (pa.list_(pa.int64()), [1], lambda value: value.append(2)),
    (pa.large_list(pa.int64()), [1], lambda value: value.append(2)),
    (pa.list_(struct(n=pa.int64())), [{"n": 1}], lambda value: value[0].update(n=2)),
    (struct(n=pa.int64()), {"n": 1}, lambda value: value.update(n=2)),
    (struct(n=pa.list_(pa.int64())), {"n": [1]}, lambda value: value["n"].append(2)),
    (pa.map_(pa.string(), pa.int64()), [("n", 1)], lambda value: value.append(("m", 2))),
]


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize(
    ("arrow", "value", "change"), NESTED, ids=[str(arrow) for arrow, _, _ in NESTED]
)
def test_a_value_that_changes_in_place_after_the_barrier_is_written_as_it_was(
    arrow: pa.DataType, value: Any, change: Callable[[Any], None], packed: bool
) -> None:
    subtask, descriptor = Subtask(), ColumnStateDescriptor("seen", arrow)
    panes, keys = Panes(subtask), pa.array(range(9))
    rows = panes.panes.index(keys, panes.hasher.key_groups_of_column(keys))[:1]
    pane, held = panes.panes.pane(1), copy.deepcopy(value)
    pane.add(rows)
    pane.column(descriptor).put(rows, np.fromiter([held], object, 1))
    if packed:
        pane.pack()
    pending = subtask.backend.snapshot(CheckpointId(1))
    change(pane.column(descriptor).get(rows)[0])
    [again] = restored([stored(pending)])
    assert held != value and Panes(again).values(descriptor) == {(1, 0): value}


def test_ufuncs_change_rows_in_place_each_time_a_row_is_named() -> None:
    columns = Columns(Subtask())
    state = columns.subtask.backend.column_state(COUNT)
    rows = columns.index(pa.array(["a", "b", "a"]))
    state.at(np.add, rows, 1)
    state.at(np.add, columns.index(pa.array(["c", "a"])), np.array([5, 7]))
    assert columns.values(pa.array(["a", "b", "c"]), COUNT) == {"a": 9, "b": 1, "c": 5}


class Panes:
    """Panes of a subtask in a test."""

    def __init__(self, subtask: Subtask, key_type: TypeInformation | None = None) -> None:
        self.panes = subtask.backend.keyed_panes(key_type)
        self.hasher = KeyHasher(key_type, MAX_PARALLELISM)
        self.mine = subtask.key_groups

    def put(self, number: int, keys: pa.Array, descriptor: ColumnStateDescriptor) -> None:
        groups = self.hasher.key_groups_of_column(keys)
        owned = (groups >= self.mine.first) & (groups <= self.mine.last)
        pane = self.panes.pane(number)
        rows = self.panes.index(keys.filter(pa.array(owned)), groups[owned])
        pane.add(rows)
        pane.column(descriptor).at(np.add, rows, number)

    def values(self, descriptor: ColumnStateDescriptor) -> dict[tuple[int, object], object]:
        found: dict[tuple[int, object], object] = {}
        for number in self.panes.namespaces():
            pane = self.panes.pane(number)
            rows = pane.rows()
            keys, values = self.panes.keys(rows), pane.column(descriptor).get(rows)
            found |= {
                (number, key): value
                for key, value in zip(keys.to_pylist(), values.tolist(), strict=True)
            }
        return found


@pytest.mark.parametrize("keys", [pa.array(range(99)), pa.array([f"k{i}" for i in range(99)])])
def test_panes_are_snapshotted_by_number_and_rescaled(keys: pa.Array) -> None:
    subtasks = [Subtask(index, 2) for index in range(2)]
    expected: dict[tuple[int, object], object] = {}
    for subtask in subtasks:
        panes = Panes(subtask)
        for number in (-5, 0, 7):
            panes.put(number, keys.slice(0, 40 + number), COUNT)
        panes.panes.drop([0])
        panes.panes.temporary().column(COUNT)
        expected |= panes.values(COUNT)
    assert len(expected) == 35 + 47
    states = [snapshot(subtask) for subtask in subtasks]
    for parallelism in (1, 2, 3):
        found: dict[tuple[int, object], object] = {}
        for subtask in restored(states, parallelism):
            found |= Panes(subtask).values(COUNT)
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_keys_that_no_pane_has_any_more_are_forgotten(kind: pa.DataType) -> None:
    subtask = Subtask()
    panes = Panes(subtask)
    model: dict[tuple[int, object], object] = {}
    for number in range(40):
        keys = pa.array(range(number * 700, number * 700 + 900)).cast(kind)
        panes.put(number, keys, COUNT)
        model |= {(number, key): number for key in keys.to_pylist()}
        if number % 3 == 0:
            panes.panes.pane(number).pack()
        if number % 7 == 0:
            panes.put(number, keys.slice(5, 1), COUNT)
            model[number, keys[5].as_py()] = 2 * number
        if number >= 5:
            panes.panes.drop([number - 5])
            model = {each: value for each, value in model.items() if each[0] > number - 5}
        assert panes.values(COUNT) == model
    assert len(subtask.backend._columns._rows) < 12_000, "28,200 keys came, 3,700 are in panes"
    [again] = restored([snapshot(subtask)])
    assert Panes(again).values(COUNT) == model


def test_a_column_that_only_some_panes_have_is_its_default_in_the_others() -> None:
    subtask = Subtask()
    Panes(subtask).put(1, pa.array([5]), COUNT)
    [again] = restored([snapshot(subtask)])
    Panes(again).put(2, pa.array([6]), SCORE)
    [third] = restored([snapshot(again, 2)])
    assert Panes(third).values(SCORE) == {(1, 5): -1.0, (2, 6): 1.0}
    assert Panes(third).values(COUNT) == {(1, 5): 1, (2, 6): 0}


def test_panes_do_not_become_one_column_a_key_nor_the_reverse() -> None:
    subtask = Subtask()
    Panes(subtask).put(1, pa.array([5]), COUNT)
    [again] = restored([snapshot(subtask)])
    with pytest.raises(SerializerIncompatible, match="was of windows and is now of one column"):
        again.backend.keyed_columns(None)
    columns = Columns(Subtask())
    columns.index(pa.array([1]))
    with pytest.raises(SerializerIncompatible, match="was of one column a key"):
        columns.subtask.backend.keyed_panes(None)


def test_restored_panes_hold_new_ones_to_their_type_of_key() -> None:
    subtask = Subtask()
    Panes(subtask).put(1, pa.array([5]), COUNT)
    [again] = restored([snapshot(subtask)])
    with pytest.raises(UnsupportedKey, match="this batch has string"):
        Panes(again).put(2, pa.array(["a"]), COUNT)
    with pytest.raises(SerializerIncompatible, match="were Long and are now String"):
        again.backend.keyed_panes(Types.STRING())


def test_one_name_means_one_descriptor() -> None:
    backend = Subtask().backend
    assert backend.column_state(COUNT) is backend.column_state(COUNT)
    with pytest.raises(ConfigError, match="asked for as"):
        backend.column_state(ColumnStateDescriptor("count", pa.int32()))


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_time_that_a_column_of_keys_has_no_room_for_is_refused(zone: str | None) -> None:
    columns = Columns(Subtask())
    known = pa.array([0], pa.timestamp("us", zone))
    columns.index(known)
    keys = pa.array([0, 253_402_214_400_000_000], pa.timestamp("us", zone))
    with pytest.raises(UnsupportedKey, match=r"A key such as datetime.datetime\(9999, 12, 31"):
        columns.index(keys)
    assert len(columns.rows) == 1 and columns.index(known).tolist() == [0]


def test_keys_of_another_type_are_refused() -> None:
    columns = Columns(Subtask())
    columns.index(pa.array([1]))
    groups = np.zeros(1, np.int16)
    with pytest.raises(UnsupportedKey, match="this batch has string"):
        columns.rows.index(pa.array(["a"]), groups)
    with pytest.raises(UnsupportedKey, match="null"):
        columns.rows.index(pa.array([None], pa.int64()), groups)
    with pytest.raises(UnsupportedKey, match="not a type of keys for columns"):
        Subtask().backend.keyed_columns(Types.TUPLE([Types.LONG()]))


def test_restored_keys_of_another_declared_type_are_refused() -> None:
    columns = Columns(Subtask(), Types.INT())
    columns.index(pa.array([1]))
    [again] = restored([snapshot(columns.subtask)])
    again.backend.keyed_columns(Types.INT())
    with pytest.raises(SerializerIncompatible, match="were Integer and are now Long"):
        again.backend.keyed_columns(Types.LONG())


def test_rows_and_columns_of_one_operator_share_a_snapshot() -> None:
    subtask = Subtask().on(3)
    count = ValueStateDescriptor("rows", Types.LONG())
    subtask.backend.keyed_state(count).update(1)
    columns = Columns(subtask)
    subtask.backend.column_state(COUNT).put(columns.index(pa.array([3, 4])), np.array([5, 6]))
    [again] = restored([snapshot(subtask)])
    assert again.on(3).backend.keyed_state(count).value() == 1
    assert Columns(again).values(pa.array([3, 4]), COUNT) == {3: 5, 4: 6}


def test_damaged_columns_are_an_error_of_ours() -> None:
    columns = Columns(Subtask())
    columns.subtask.backend.column_state(COUNT).put(columns.index(pa.array([3])), np.array([5]))
    handle = snapshot(columns.subtask).managed_keyed
    assert isinstance(handle, KeyGroupsStateHandle)
    assert isinstance(handle.delegate, ByteStreamStateHandle)
    offset = max(handle.offsets)
    data = bytearray(handle.delegate.data)
    data[offset + 40 : offset + 60] = bytes(range(20))
    torn = KeyGroupsStateHandle(
        handle.key_groups, handle.offsets, ByteStreamStateHandle("torn", bytes(data)), "id"
    )
    with pytest.raises(FormatError, match="can't be read"):
        Subtask().backend.restore(RestoredOperatorState(managed_keyed=(torn,)), READER)
