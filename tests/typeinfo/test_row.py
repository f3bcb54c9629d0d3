from __future__ import annotations

import pickle

import pytest

from flinkformat.row import Row, RowKind


def test_a_row_is_read_and_written_by_index_name_and_attribute() -> None:
    row = Row(id=1, name="a")
    assert (row[0], row["name"], row.name) == (1, "a", "a")
    row[0], row["name"] = 2, "b"
    row.id = 3
    assert list(row) == [3, "b"]
    assert len(row) == 2
    assert "b" in row


def test_a_row_prints_as_pyflinks() -> None:
    assert repr(Row(1, "a")) == "<Row(1, 'a')>"
    assert repr(Row(a=1)) == "Row(a=1)"
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_rows_are_equal_when_names_values_and_kinds_are() -> None:
    assert Row(1, 2) == Row(1, 2)
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert Row(1, 2) != Row(a=1, b=2)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)
    assert Row(1) != (1,)
    assert hash(Row(1, 2)) == hash(Row(1, 2))


def test_names_can_be_given_later() -> None:
    row = Row(1, Row(x=2))
    row.set_field_names(["a", "b"])
    assert row.as_dict() == {"a": 1, "b": Row(x=2)}
    assert row.as_dict(recursive=True) == {"a": 1, "b": {"x": 2}}
    assert row.get_fields_by_names(["b", "a"]) == [Row(x=2), 1]


def test_rows_in_lists_and_dicts_become_dicts_too() -> None:
    row = Row(a=[Row(x=1), 2], b={"k": Row(x=[Row(y=3)])}, c=(Row(x=4),))
    assert row.as_dict(True) == {
        "a": [{"x": 1}, 2],
        "b": {"k": {"x": [{"y": 3}]}},
        "c": (Row(x=4),),
    }
    assert row.as_dict()["a"] == [Row(x=1), 2]


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")
    assert person("Ann", 11) == Row(name="Ann", age=11)
    assert person("Ann") == Row(name="Ann")
    deleted = Row.of_kind(RowKind.DELETE, "name")("Ann")
    assert deleted.get_row_kind() is RowKind.DELETE
    with pytest.raises(ValueError, match="3 values for a Row of 2 names"):
        person("Ann", 11, 12)
    with pytest.raises(TypeError, match="not all texts"):
        Row(1)("Ann")


def test_a_row_is_read_and_written_by_slices() -> None:
    row = Row(1, 2, 3)
    assert row[1:] == [2, 3]
    row[:2] = [7, 8]
    assert row == Row(7, 8, 3)
    named = Row(a=1, b=2)
    named[:] = (3, 4)
    assert named == Row(a=3, b=4)
    with pytest.raises(ValueError, match="1 values for 2 fields"):
        named[:] = [5]


def test_a_row_survives_pickling() -> None:
    row = Row.of_kind(RowKind.UPDATE_AFTER, a=1)
    copy = pickle.loads(pickle.dumps(row))
    assert copy == row
    assert copy.get_row_kind() is RowKind.UPDATE_AFTER
    copy.set_row_kind(RowKind.INSERT)
    assert copy == Row(a=1)


def test_what_a_row_does_not_have_is_told() -> None:
    with pytest.raises(ValueError, match="either positional values or named ones"):
        Row(1, a=2)
    with pytest.raises(ValueError, match="2 names for a Row of 1 values"):
        Row(1).set_field_names(["a", "b"])
    with pytest.raises(TypeError, match="without names"):
        Row(1).as_dict()
    with pytest.raises(KeyError, match="no field 'b'"):
        Row(a=1)["b"]
    with pytest.raises(AttributeError, match="no field 'b'"):
        print(Row(a=1).b)
    with pytest.raises(AttributeError, match="no field 'b'"):
        Row(a=1).b = 2
